//! Standard output and standard error, results into files, and errors as sentences.
//!
//! Invariant: all output to a terminal goes through [`stdout`], [`stderr`] or [`error_line`],
//! except this program's own control sequences ([`raw_stdout`], the live view). So the name of a
//! file, a process or a volume cannot send control sequences to a terminal.

mod atomic_file;
mod file;

pub use atomic_file::AtomicFile;
pub use file::DistinctFiles;
pub(crate) use file::real_path;

use anyhow::{Context, Result};
use larder_report::escape::{self, Terminal};
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns standard output for text.
#[must_use]
pub fn stdout() -> Terminal<StdoutLock<'static>> {
    Terminal::new(io::stdout().lock())
}

/// Returns standard error for text.
#[must_use]
pub fn stderr() -> Terminal<StderrLock<'static>> {
    Terminal::new(io::stderr().lock())
}

/// True if neither progress nor notes are printed.
static QUIET: AtomicBool = AtomicBool::new(false);
/// The beginning of a line that is a note.
const NOTE: &str = "larder: note: ";

/// Turns progress and notes off, or on.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Returns true if progress and notes are turned off.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Returns true if progress is shown: on a terminal, unless it is turned off.
#[must_use]
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && !is_quiet()
}

/// Prints one line of progress to standard error, unless progress is turned off.
pub fn progress_line(line: &str) {
    if !is_quiet() {
        error_line(line);
    }
}

/// Prints one line to standard error; ignores a closed stream. A note is left out if notes are
/// turned off.
pub fn error_line(line: &str) {
    if line.starts_with(NOTE) && is_quiet() {
        return;
    }
    // A closed standard error cannot be reported.
    drop(io::stderr().lock().write_all(format!("{}\n", escape::line(line)).as_bytes()));
}

/// Returns unfiltered standard output, for binary traces, messages to another process, and this
/// program's own control sequences.
#[must_use]
pub fn raw_stdout() -> io::Stdout {
    io::stdout()
}

/// Joins an error and its causes into one sentence; omits a cause that the sentence already
/// contains.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    sentence
}

/// Replaces a file atomically: it is written under a temporary name first.
///
/// # Errors
/// The file cannot be written; it is then unchanged.
pub fn write_atomically(file: &Path, text: &str) -> Result<()> {
    let mut new = AtomicFile::begin(file, "")?;
    new.write_all(text.as_bytes()).with_context(|| format!("write {}", file.display()))?;
    new.finish()
}

/// Refuses a file that cannot be written, before the command starts its work. Devices and pipes are
/// not opened, since the reader of a pipe would see its end.
///
/// # Errors
/// The file cannot be written.
pub fn check_writable(file: &Path) -> Result<()> {
    let kind = file.metadata().map(|found| found.file_type());
    match kind {
        Ok(kind) if !kind.is_file() && !kind.is_dir() => Ok(()),
        _ => AtomicFile::begin(file, "").map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(cause);
        assert_eq!(sentence(&error), "entity not found");
        assert_eq!(sentence(&error.context("open x")), "open x: entity not found");
        let path = std::path::PathBuf::from("/x");
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = larder_io::runtime_directory::RuntimeDirectoryError::Open { path, source };
        assert_eq!(sentence(&anyhow::Error::new(error)), "open /x: entity not found");
    }

    #[test]
    fn nothing_is_left_of_a_try() {
        let directory = tempfile::tempdir().unwrap();
        check_writable(&directory.path().join("new")).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
