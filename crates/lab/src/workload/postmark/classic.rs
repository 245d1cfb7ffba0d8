//! One run exactly as in the original: its system calls, its progress, its whole seconds.
//!
//! Invariants: a file that cannot be opened or deleted is reported and skipped; the results of
//! reads, writes and closes are ignored, and their bytes always count. This makes its results
//! comparable, and is the reason for the other mode.

use super::config::Config;
use super::counts::Counts;
use super::disk::{IoStyle, OpenMode};
use super::engine::Engine;
use super::files::{File, Files};
use super::report::Seconds;
use std::convert::Infallible;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

/// Number of dots that show the progress of the transactions, if their number is a multiple of it.
const DOTS: u32 = 10;

/// Outcome of a run: `None` if it could not begin; no result if it ran out of files.
pub(super) type RunOutcome = Option<Option<(Counts, Seconds)>>;

/// The work files, and the outputs for progress and errors.
struct ClassicFiles<'a> {
    style: IoStyle,
    buffer: Vec<u8>,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// Ignores the result of a system call.
#[expect(clippy::unnecessary_wraps, reason = "one form for those who look at it and this one")]
fn ignore_result(_: Result<usize, rustix::io::Errno>, _: usize) -> Result<(), Infallible> {
    Ok(())
}

impl ClassicFiles<'_> {
    fn report_error(&mut self, what: &str, file: File<'_>, end: &str) -> io::Result<bool> {
        let path = file.path.as_os_str().as_bytes();
        let message = [b"Error: ", what.as_bytes(), b" '", path, b"'", end.as_bytes(), b"\n"];
        self.err.write_all(&message.concat())?;
        Ok(false)
    }

    fn write(&mut self, file: File<'_>, mode: OpenMode, data: &[u8]) -> bool {
        let opened = self.style.open(file.path, mode);
        let Ok(opened) = opened else { return false };
        let Ok(()) = self.style.write(&opened, data, ignore_result);
        true
    }

    fn progress(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl Files for ClassicFiles<'_> {
    type Stop = io::Error;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> io::Result<bool> {
        if self.write(file, OpenMode::Create, data) {
            return Ok(true);
        }
        self.report_error("cannot open", file, " for writing")
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> io::Result<bool> {
        if self.write(file, OpenMode::Append, data) {
            return Ok(true);
        }
        self.report_error("cannot open", file, " for append")
    }

    fn read(&mut self, file: File<'_>) -> io::Result<bool> {
        let Ok(opened) = self.style.open(file.path, OpenMode::Read) else {
            return self.report_error("cannot open", file, " for reading");
        };
        let Ok(()) = self.style.read(&opened, file.bytes as usize, &mut self.buffer, ignore_result);
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> io::Result<bool> {
        if rustix::fs::unlink(file.path).is_ok() {
            return Ok(true);
        }
        self.report_error("Cannot delete", file, "")
    }
}

/// Returns the wall-clock time in whole seconds, truncated.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Returns the subdirectories of all locations, in the order of their creation.
fn directories(config: &Config) -> impl Iterator<Item = PathBuf> {
    let mut parents: Vec<_> = config
        .locations
        .iter()
        .map(|location| PathBuf::from(&location.path))
        .map(|path| if path.as_os_str().is_empty() { "/".into() } else { path })
        .collect();
    if parents.is_empty() {
        parents.push(PathBuf::new());
    }
    let directories = config.directories();
    parents
        .into_iter()
        .flat_map(move |parent| (0..directories).map(move |k| parent.join(format!("s{k}"))))
}

/// Performs one run.
pub(super) fn run(
    config: &Config,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<RunOutcome> {
    let mut engine = match Engine::new(config, None) {
        Ok(engine) => engine,
        Err(error) => {
            writeln!(err, "Error: cannot {error}")?;
            return Ok(None);
        }
    };
    let mut files = ClassicFiles { style: IoStyle::of(config), buffer: Vec::new(), out, err };
    if config.directories() > 0 {
        files.progress("Creating subdirectories...")?;
        for directory in directories(config) {
            // It may exist already; if it cannot be created, the files in it report errors.
            let _created = rustix::fs::mkdir(&directory, rustix::fs::Mode::RWXU);
        }
        files.progress("Done\n")?;
    }
    let start = now();
    files.progress("Creating files...")?;
    for _ in 0..config.number {
        engine.create(&mut files)?;
    }
    files.progress("Done\n")?;
    let transactions_start = now();
    let complete = transactions(config, &mut engine, &mut files)?;
    let transactions_end = now();
    files.progress("Deleting files...")?;
    for index in 0..engine.places() {
        engine.delete_at(index, &mut files)?;
    }
    files.progress("Done\n")?;
    let end = now();
    if config.directories() > 0 {
        files.progress("Deleting subdirectories...")?;
        for directory in directories(config) {
            // A directory that holds other files stays.
            let _removed = rustix::fs::rmdir(&directory);
        }
        files.progress("Done\n")?;
    }
    let between = |from: u64, to: u64| to.saturating_sub(from).max(1);
    let seconds = Seconds {
        total: between(start, end),
        transactions: between(transactions_start, transactions_end),
        creation: between(start, transactions_start),
        deletion: between(transactions_end, end),
    };
    Ok(Some(complete.then_some((engine.counts, seconds))))
}

/// Performs the transactions with their dots. Returns true if all were done.
fn transactions(
    config: &Config,
    engine: &mut Engine,
    files: &mut ClassicFiles<'_>,
) -> io::Result<bool> {
    files.progress("Performing transactions")?;
    // The original divides by zero below ten transactions; here each has a dot in that case.
    let step = (config.transactions / DOTS).max(1);
    for done in 0..config.transactions {
        if engine.is_out_of_files() {
            files.progress(
                "out of files!\nThere are more deletions than files: begin with more files, or \
                 do\nfewer transactions.\n",
            )?;
            return Ok(false);
        }
        engine.transaction(files)?;
        if done % step == 0 {
            files.progress(".")?;
        }
    }
    files.progress("Done\n")?;
    Ok(true)
}
