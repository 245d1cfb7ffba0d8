//! Work files of a modern run: every result is checked, every operation is timed.
//!
//! Invariants: the first call that does less than requested ends the run; only the calls on files
//! are timed, not the generation of data. Times are nanoseconds, sizes are bytes.

use super::options::{Data, Fsync, Options};
use crate::bench::{BenchError, TrialContext};
use crate::random;
use crate::workload::postmark::disk::{IoStyle, OpenMode};
use crate::workload::postmark::{File, Files};
use larder_core::clock::Nanos;
use larder_core::counters::Histogram;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// A timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
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

/// All operations with their names.
pub(super) const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Create, "create"),
    (Operation::Read, "read"),
    (Operation::Append, "append"),
    (Operation::Delete, "delete"),
    (Operation::Sync, "sync"),
];

/// The files of one thread.
pub(super) struct CheckedFiles<'a> {
    style: IoStyle,
    fsync: Fsync,
    data: Data,
    context: &'a TrialContext<'a>,
    /// Buffer for reads.
    buffer: Vec<u8>,
    /// The next mark: different in every 512 bytes of a run.
    mark: u64,
    /// Open files that this transaction wrote, and an open descriptor of each directory that it
    /// changed.
    unstable: Vec<OwnedFd>,
    /// The times of each operation.
    pub(super) times: [Histogram; OPERATIONS.len()],
}

impl<'a> CheckedFiles<'a> {
    pub(super) fn new(options: &Options, thread: u32, context: &'a TrialContext<'a>) -> Self {
        CheckedFiles {
            style: IoStyle { completes_short_writes: true, ..IoStyle::of(&options.config) },
            fsync: options.fsync,
            data: options.data,
            context,
            buffer: Vec::new(),
            mark: u64::from(thread) << 40,
            unstable: Vec::new(),
            times: Default::default(),
        }
    }

    /// Flushes what a transaction wrote, or an operation outside of one, if the options require it.
    pub(super) fn end_transaction(&mut self) -> Result<(), BenchError> {
        if self.unstable.is_empty() {
            return Ok(());
        }
        let begun_at = self.context.now();
        for file in self.unstable.drain(..) {
            rustix::fs::fsync(&file)
                .map_err(|error| failed("make stable", Path::new("what was written"), error))?;
        }
        self.end_operation(Operation::Sync, begun_at);
        Ok(())
    }

    /// Records the time of an operation, and returns it.
    pub(super) fn end_operation(&self, operation: Operation, begun_at: Nanos) -> Nanos {
        let took = self.context.now() - begun_at;
        self.times[operation as usize].record(took);
        took
    }

    /// Makes every 512 bytes different from all others of the run.
    fn mark(&mut self, data: &mut [u8]) {
        if self.data != Data::Classic {
            self.mark = random::mark(data, self.mark);
        }
    }

    /// Marks the data, opens a file, writes to it, flushes it if the options require it, and closes
    /// it.
    fn write(
        &mut self,
        path: &Path,
        data: &mut [u8],
        (mode, operation, what): (OpenMode, Operation, &'static str),
    ) -> Result<(), BenchError> {
        self.mark(data);
        let begun_at = self.context.now();
        let to_error = |error| failed(what, path, error);
        let file = self.style.open(path, mode).map_err(to_error)?;
        self.style
            .write(&file, data, |result, requested| check_whole(result, requested, what, path))?;
        match self.fsync {
            Fsync::None | Fsync::End => close(file).map_err(to_error)?,
            Fsync::Close => {
                rustix::fs::fsync(&file).and_then(|()| close(file)).map_err(to_error)?;
            }
            Fsync::Transaction => self.unstable.push(file),
        }
        self.end_operation(operation, begun_at);
        Ok(())
    }

    /// Marks the directory of `path` for a flush, after a name in it was created or removed.
    fn mark_directory_unstable(&mut self, path: &Path) -> Result<(), BenchError> {
        if self.fsync == Fsync::Transaction
            && let Some(directory) = path.parent()
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(directory, flags, Mode::empty());
            self.unstable.push(opened.map_err(|error| failed("open", directory, error))?);
        }
        Ok(())
    }
}

/// Returns the error of an operation.
fn failed(operation: &str, path: &Path, error: Errno) -> BenchError {
    let what = format!("{operation} {}", path.display());
    if matches!(error, Errno::NOSPC | Errno::DQUOT) {
        let full = "the file system is full; what was written has been removed";
        return BenchError::Failed(format!("{what}: {full}"));
    }
    BenchError::io(what)(error.into())
}

/// Closes a file and checks the result, with which a network file system reports a lost write.
fn close(file: OwnedFd) -> Result<(), Errno> {
    nix::unistd::close(file).map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// Checks that a call did everything requested.
fn check_whole(
    result: Result<usize, Errno>,
    requested: usize,
    operation: &str,
    path: &Path,
) -> Result<(), BenchError> {
    match result {
        Ok(done) if done == requested => Ok(()),
        Ok(done) => {
            let path = path.display();
            let short = format!("{operation} {path}: only {done} of {requested} bytes");
            Err(BenchError::Failed(short))
        }
        Err(error) => Err(failed(operation, path, error)),
    }
}

impl Files for CheckedFiles<'_> {
    type Stop = BenchError;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, BenchError> {
        self.write(file.path, data, (OpenMode::Create, Operation::Create, "create"))?;
        self.mark_directory_unstable(file.path)?;
        Ok(true)
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, BenchError> {
        self.write(file.path, data, (OpenMode::Append, Operation::Append, "append to"))?;
        Ok(true)
    }

    fn read(&mut self, file: File<'_>) -> Result<bool, BenchError> {
        let to_error = |error| failed("read", file.path, error);
        let begun_at = self.context.now();
        let opened = self.style.open(file.path, OpenMode::Read).map_err(to_error)?;
        let step = |result, requested| check_whole(result, requested, "read", file.path);
        self.style.read(&opened, file.bytes as usize, &mut self.buffer, step)?;
        close(opened).map_err(to_error)?;
        self.end_operation(Operation::Read, begun_at);
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> Result<bool, BenchError> {
        let begun_at = self.context.now();
        rustix::fs::unlink(file.path).map_err(|error| failed("delete", file.path, error))?;
        self.end_operation(Operation::Delete, begun_at);
        self.mark_directory_unstable(file.path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::{FakeHost, no_stop, trial_context};
    use crate::random::MARK_EVERY;
    use crate::workload::postmark::Config;
    use std::collections::BTreeSet;

    #[test]
    fn no_512_bytes_are_written_twice() {
        let (host, stop) = (FakeHost::default(), no_stop());
        let context = trial_context(&host, &stop);
        let options = Options::new(Config::default());
        let mut seen = BTreeSet::new();
        for thread in 0..2 {
            let mut files = CheckedFiles::new(&options, thread, &context);
            for _ in 0..40 {
                let mut data = vec![7; 5000];
                files.mark(&mut data);
                let new = data.chunks_exact(MARK_EVERY).filter(|part| seen.insert(part.to_vec()));
                assert_eq!(new.count(), 9);
            }
        }
        let options = Options { data: Data::Classic, ..options };
        let mut files = CheckedFiles::new(&options, 0, &context);
        let mut data = vec![7; 5000];
        files.mark(&mut data);
        assert_eq!(data, [7; 5000]);
    }
}
