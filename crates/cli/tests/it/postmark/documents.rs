//! The examples in docs/bench-postmark.md are what the program says.
//!
//! An example is a block after a comment that says how it is made.

use super::rig::run;

/// The script that the examples name.
const SCRIPT: &str = "\
set number 1000
set transactions 2000
set size 500 10000
set subdirectories 5
run
quit
";

/// What an example shows.
fn made(how: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("mail.pm"), SCRIPT).expect("a script");
    if how == "cat mail.pm" {
        return format!("$ {how}\n{SCRIPT}");
    }
    let words: Vec<_> = how.split(' ').collect();
    let said = run(directory.path(), &words);
    assert_eq!(said.code, Some(0), "{said:?}");
    format!("$ larder bench postmark {how}\n{}", said.out)
}

#[test]
fn the_examples_are_real() {
    crate::shared::masked::check("bench-postmark.md", 3, made);
}
