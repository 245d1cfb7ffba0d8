//! Shared helpers: the program in a directory on a disk, and its run record.

pub(crate) use crate::shared::program::{Outcome, names};
use larder_schema::run::Run;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Returns the command `larder bench iozone` with `args`, in a directory.
pub(crate) fn command(directory: &Path, args: &[&str]) -> Command {
    crate::shared::program::bench("iozone", directory, args)
}

/// Runs the command to its end.
pub(crate) fn run(directory: &Path, args: &[&str]) -> Outcome {
    crate::shared::program::run_command(&mut command(directory, args))
}

/// Creates a directory on a disk. Files on a file system in memory can be neither cold nor direct.
pub(crate) fn create_disk_directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs with the arguments in `line` and with a run record. Returns the output and the record, and
/// checks that no other file is left behind.
pub(crate) fn run_recorded(line: &str) -> (String, Run) {
    let directory = create_disk_directory();
    let args = line.split_whitespace().chain(["--output", "run.json"]);
    let outcome = run(directory.path(), &args.collect::<Vec<_>>());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(names(directory.path()), ["run.json"]);
    let record = std::fs::read_to_string(directory.path().join("run.json")).unwrap();
    (outcome.out, Run::from_json(&record).unwrap())
}
