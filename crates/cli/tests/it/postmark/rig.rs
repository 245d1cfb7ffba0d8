//! What the tests share: the program in a directory.

pub(crate) use crate::shared::program::{Said, names};
use std::path::Path;
use std::process::Command;

/// `larder bench postmark` with these words, in a directory.
pub(crate) fn command(directory: &Path, words: &[&str]) -> Command {
    crate::shared::program::bench("postmark", directory, words)
}

/// Runs it to its end.
pub(crate) fn run(directory: &Path, words: &[&str]) -> Said {
    crate::shared::program::said(&mut command(directory, words))
}
