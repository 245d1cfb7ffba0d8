//! The examples in docs/bench-postmark.md are what the program says.
//!
//! An example is a block after a comment that says how it is made. The test makes each anew and
//! compares all but the numbers; with `LARDER_WRITE_DOCS=1`, which `cargo xtask docs` sets, it
//! writes them.

use crate::examples::{MARK, renewed};
use crate::rig::run;
use std::path::{Path, PathBuf};

/// The script that the examples name.
const SCRIPT: &str = "\
set number 1000
set transactions 2000
set size 500 10000
set subdirectories 5
run
quit
";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench-postmark.md")
}

/// What an example shows.
fn made(how: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("mail.pm"), SCRIPT).expect("a script");
    if how == "cat mail.pm" {
        return format!("$ {how}\n{SCRIPT}");
    }
    let words: Vec<_> = how.split(' ').collect();
    let said = run(folder.path(), &words);
    assert_eq!(said.code, Some(0), "{said:?}");
    format!("$ larder bench postmark {how}\n{}", said.out)
}

/// A text without numbers, their units, and what depends on how wide they are.
fn masked(text: &str) -> Vec<String> {
    let units = ["ns", "us", "ms", "s", "kilobytes", "megabytes"];
    let is_number = |word: &str| word.chars().all(|c| "0123456789.,-()".contains(c));
    let line = |line: &str| {
        let words = line.split_whitespace();
        let kept = words.filter(|word| !units.contains(word) && !is_number(word));
        kept.collect::<Vec<_>>().join(" ")
    };
    // What machine it was, and what it happened to do meanwhile.
    let differs = |line: &&str| line.contains(", Linux ") || line.starts_with("Doubtful");
    text.lines().filter(|line| !differs(line) && !line.is_empty()).map(line).collect()
}

#[test]
fn the_examples_are_real() {
    let old = std::fs::read_to_string(document()).unwrap();
    assert!(old.matches(MARK).count() >= 3, "there are examples");
    let new = renewed(&old, made);
    if std::env::var_os("LARDER_WRITE_DOCS").is_some() {
        if masked(&new) != masked(&old) {
            std::fs::write(document(), new).unwrap();
        }
        return;
    }
    for (number, (old, new)) in masked(&old).iter().zip(&masked(&new)).enumerate() {
        assert_eq!(old, new, "line {}: run cargo xtask docs", number + 1);
    }
    assert_eq!(masked(&old).len(), masked(&new).len());
}
