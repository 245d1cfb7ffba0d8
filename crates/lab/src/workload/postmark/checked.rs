//! Work files of a modern run: every result is checked, every operation is timed.
//!
//! Invariants: the first call that does less than requested ends the run; only the calls on files
//! are timed, not the generation of data. Times are nanoseconds, sizes are bytes.

use super::disk::{IoStyle, OpenMode};
use super::error::PostmarkError;
use super::files::{File, Files};
use super::options::{Control, Data, Fsync, Options};
use super::place::open_directory;
use crate::random;
use larder_core::counters::Histogram;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates, writes and closes a file.
    Create,
    /// Opens, reads and closes a file.
    Read,
    /// Opens a file, writes at its end and closes it.
    Append,
    /// Removes a file.
    Delete,
    /// Flushes data, where that is not part of another operation.
    Sync,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 5] =
        [Operation::Create, Operation::Read, Operation::Append, Operation::Delete, Operation::Sync];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Read => "read",
            Operation::Append => "append",
            Operation::Delete => "delete",
            Operation::Sync => "sync",
        }
    }
}

/// The files of one thread.
pub(super) struct CheckedFiles<'a> {
    style: IoStyle,
    fsync: Fsync,
    data: Data,
    control: &'a Control<'a>,
    /// Set when another thread has failed.
    halt: &'a AtomicBool,
    /// Buffer for reads.
    buffer: Vec<u8>,
    /// The next mark: different in every 512 bytes of a run.
    mark: u64,
    /// Open files that this transaction wrote, and an open descriptor of each directory that it
    /// changed.
    unstable: Vec<OwnedFd>,
    times: [Histogram; Operation::ALL.len()],
}

impl<'a> CheckedFiles<'a> {
    pub(super) fn new(
        options: &Options,
        thread: u32,
        control: &'a Control<'a>,
        halt: &'a AtomicBool,
    ) -> Self {
        CheckedFiles {
            style: IoStyle { completes_short_writes: true, ..IoStyle::of(&options.config) },
            fsync: options.fsync,
            data: options.data,
            control,
            halt,
            buffer: Vec::new(),
            mark: u64::from(thread) << 40,
            unstable: Vec::new(),
            times: Default::default(),
        }
    }

    /// Returns the times of an operation.
    pub(super) fn times(&self, operation: Operation) -> &Histogram {
        &self.times[operation as usize]
    }

    /// Flushes what a transaction wrote, or an operation outside of one, if the options require it.
    pub(super) fn end_transaction(&mut self) -> Result<(), PostmarkError> {
        if self.unstable.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        for file in self.unstable.drain(..) {
            rustix::fs::fsync(&file)
                .map_err(|error| PostmarkError::of("make stable", "what was written", error))?;
        }
        self.note_operation(Operation::Sync, started);
        Ok(())
    }

    fn note_operation(&self, operation: Operation, started: Instant) {
        let elapsed = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.times[operation as usize].record(elapsed);
    }

    fn check_stopped(&self) -> Result<(), PostmarkError> {
        let is_stopped = self.control.is_stopped() || self.halt.load(Ordering::Relaxed);
        if is_stopped { Err(PostmarkError::Stopped) } else { Ok(()) }
    }

    /// Makes every 512 bytes different from all others of the run.
    fn mark(&mut self, data: &mut [u8]) {
        if self.data != Data::Classic {
            self.mark = random::mark(data, self.mark);
        }
    }

    /// Opens a file, writes to it, flushes it if the options require it, and closes it.
    fn write(
        &mut self,
        path: &Path,
        data: &[u8],
        mode: OpenMode,
        operation: &'static str,
    ) -> Result<(), PostmarkError> {
        let failed = |error| PostmarkError::of(operation, path, error);
        let file = self.style.open(path, mode).map_err(failed)?;
        self.style.write(&file, data, |result, requested| {
            check_whole(result, requested, operation, path)
        })?;
        match self.fsync {
            Fsync::None | Fsync::End => close(file).map_err(failed),
            Fsync::Close => {
                rustix::fs::fsync(&file).map_err(failed)?;
                close(file).map_err(failed)
            }
            Fsync::Transaction => {
                self.unstable.push(file);
                Ok(())
            }
        }
    }

    /// Marks the directory of `path` for a flush, after a name in it was created or removed.
    fn mark_directory_unstable(&mut self, path: &Path) -> Result<(), PostmarkError> {
        if self.fsync == Fsync::Transaction
            && let Some(directory) = path.parent()
        {
            let opened = open_directory(directory);
            let opened = opened.map_err(|error| PostmarkError::of("open", directory, error))?;
            self.unstable.push(opened);
        }
        Ok(())
    }
}

/// Closes a file and checks the result, with which a network file system reports a lost write.
fn close(file: OwnedFd) -> Result<(), Errno> {
    nix::unistd::close(file).map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// Checks that a call did everything requested.
fn check_whole(
    result: Result<usize, Errno>,
    requested: usize,
    operation: &'static str,
    path: &Path,
) -> Result<(), PostmarkError> {
    match result {
        Ok(done) if done == requested => Ok(()),
        Ok(done) => Err(PostmarkError::Short { operation, path: path.to_owned(), done, requested }),
        Err(error) => Err(PostmarkError::of(operation, path, error)),
    }
}

impl Files for CheckedFiles<'_> {
    type Stop = PostmarkError;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, PostmarkError> {
        self.check_stopped()?;
        self.mark(data);
        let started = Instant::now();
        self.write(file.path, data, OpenMode::Create, "create")?;
        self.note_operation(Operation::Create, started);
        self.mark_directory_unstable(file.path)?;
        Ok(true)
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, PostmarkError> {
        self.check_stopped()?;
        self.mark(data);
        let started = Instant::now();
        self.write(file.path, data, OpenMode::Append, "append to")?;
        self.note_operation(Operation::Append, started);
        Ok(true)
    }

    fn read(&mut self, file: File<'_>) -> Result<bool, PostmarkError> {
        self.check_stopped()?;
        let failed = |error| PostmarkError::of("read", file.path, error);
        let started = Instant::now();
        let opened = self.style.open(file.path, OpenMode::Read).map_err(failed)?;
        let step = |result, requested| check_whole(result, requested, "read", file.path);
        self.style.read(&opened, file.bytes as usize, &mut self.buffer, step)?;
        close(opened).map_err(failed)?;
        self.note_operation(Operation::Read, started);
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> Result<bool, PostmarkError> {
        self.check_stopped()?;
        let started = Instant::now();
        rustix::fs::unlink(file.path)
            .map_err(|error| PostmarkError::of("delete", file.path, error))?;
        self.note_operation(Operation::Delete, started);
        self.mark_directory_unstable(file.path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::MARK_EVERY;
    use crate::workload::postmark::Config;
    use std::collections::BTreeSet;

    #[test]
    fn no_512_bytes_are_written_twice() {
        let (control, halt) = (Control::default(), AtomicBool::new(false));
        let options = Options::new(Config::default());
        let mut seen = BTreeSet::new();
        for thread in 0..2 {
            let mut files = CheckedFiles::new(&options, thread, &control, &halt);
            for _ in 0..40 {
                let mut data = vec![7; 5000];
                files.mark(&mut data);
                let new = data.chunks_exact(MARK_EVERY).filter(|part| seen.insert(part.to_vec()));
                assert_eq!(new.count(), 9);
            }
        }
        let mut files =
            CheckedFiles::new(&Options { data: Data::Classic, ..options }, 0, &control, &halt);
        let mut data = vec![7; 5000];
        files.mark(&mut data);
        assert_eq!(data, [7; 5000]);
    }
}
