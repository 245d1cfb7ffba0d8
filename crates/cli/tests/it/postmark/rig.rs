//! Shared helpers: the program in a directory.

pub(crate) use crate::shared::program::{Outcome, names};
use std::path::Path;
use std::process::Command;

/// Returns the command `larder bench postmark` with `args`, in a directory.
pub(crate) fn command(directory: &Path, args: &[&str]) -> Command {
    crate::shared::program::bench("postmark", directory, args)
}

/// Runs the command to its end.
pub(crate) fn run(directory: &Path, args: &[&str]) -> Outcome {
    crate::shared::program::run_command(&mut command(directory, args))
}
