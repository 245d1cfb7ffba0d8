//! What the tests share: the program in a folder.

pub(crate) use crate::shared::program::{Said, names};
use std::path::Path;
use std::process::Command;

/// `larder bench postmark` with these words, in a folder.
pub(crate) fn command(folder: &Path, words: &[&str]) -> Command {
    crate::shared::program::bench("postmark", folder, words)
}

/// Runs it to its end.
pub(crate) fn run(folder: &Path, words: &[&str]) -> Said {
    crate::shared::program::said(&mut command(folder, words))
}
