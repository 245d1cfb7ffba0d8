//! What cannot be done is refused before anything is done, in one sentence that says why.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs larder in a folder.
fn larder(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).current_dir(folder).output().unwrap()
}

/// What a command says that must fail.
fn refusal(folder: &Path, words: &[&str]) -> String {
    let output = larder(folder, words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
    said
}

#[test]
fn a_watch_whose_result_cannot_be_kept_does_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    // It would go on until a signal.
    let said = refusal(folder.path(), &["watch", "-o", "no/folder"]);
    assert_eq!(said, "larder: failed to write no/folder: No such file or directory (os error 2)\n");
    let said = refusal(folder.path(), &["watch", "-o", "."]);
    assert_eq!(said, "larder: failed to write .: it is a directory\n");
}
