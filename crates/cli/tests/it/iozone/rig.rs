//! What the tests share: the program in a directory on a disk, and its record.

pub(crate) use crate::shared::program::{Said, names};
use larder_report::run::Run;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// `larder bench iozone` with these words, in a directory.
pub(crate) fn command(directory: &Path, words: &[&str]) -> Command {
    crate::shared::program::bench("iozone", directory, words)
}

/// Runs it to its end.
pub(crate) fn run(directory: &Path, words: &[&str]) -> Said {
    crate::shared::program::said(&mut command(directory, words))
}

/// A directory where files can be cold and direct, which those in memory cannot.
pub(crate) fn on_disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs with a line of words and with a record beside; what was printed, and the record. Nothing is
/// left behind.
pub(crate) fn recorded(line: &str) -> (String, Run) {
    let directory = on_disk();
    let words = line.split_whitespace().chain(["--output", "run.json"]);
    let said = run(directory.path(), &words.collect::<Vec<_>>());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(names(directory.path()), ["run.json"]);
    let record = std::fs::read_to_string(directory.path().join("run.json")).unwrap();
    (said.out, Run::from_json(&record).unwrap())
}
