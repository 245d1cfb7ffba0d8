//! The examples in docs/bench-postmark.md match the output of the program.
//!
//! An example is a block after a comment that holds its arguments.

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

/// Returns the text of the example with the arguments in `line`.
fn render_example(line: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("mail.pm"), SCRIPT).expect("a script");
    if line == "cat mail.pm" {
        return format!("$ {line}\n{SCRIPT}");
    }
    let args: Vec<_> = line.split(' ').collect();
    let outcome = run(directory.path(), &args);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    format!("$ larder bench postmark {line}\n{}", outcome.out)
}

#[test]
fn the_examples_are_real() {
    crate::shared::masked::check("bench-postmark.md", 3, render_example);
}
