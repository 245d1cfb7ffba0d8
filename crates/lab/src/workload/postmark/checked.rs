//! Work files of a run of today: every result is looked at, every operation is timed.
//!
//! Invariants: the first call that does not do all it was asked for ends the run; only the calls on
//! files are timed, not the making of data. Times are nanoseconds, sizes are bytes.

use super::disk::{OpenMode, Style};
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

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file is made, written and closed.
    Create,
    /// A file is opened, read and closed.
    Read,
    /// A file is opened, written at its end and closed.
    Append,
    /// A file is removed.
    Delete,
    /// Something is made stable, where that is not part of one of the others.
    Sync,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 5] =
        [Operation::Create, Operation::Read, Operation::Append, Operation::Delete, Operation::Sync];

    /// What it is called.
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
pub(super) struct Checked<'a> {
    style: Style,
    fsync: Fsync,
    data: Data,
    control: &'a Control<'a>,
    /// Set when another thread has failed.
    halt: &'a AtomicBool,
    /// What is read.
    memory: Vec<u8>,
    /// The next mark: different in every 512 bytes of a run.
    mark: u64,
    /// Files that this transaction wrote, open, and one of each directory that it changed.
    unstable: Vec<OwnedFd>,
    times: [Histogram; Operation::ALL.len()],
}

impl<'a> Checked<'a> {
    pub(super) fn new(
        options: &Options,
        thread: u32,
        control: &'a Control<'a>,
        halt: &'a AtomicBool,
    ) -> Self {
        Checked {
            style: Style { insist: true, ..Style::of(&options.config) },
            fsync: options.fsync,
            data: options.data,
            control,
            halt,
            memory: Vec::new(),
            mark: u64::from(thread) << 40,
            unstable: Vec::new(),
            times: Default::default(),
        }
    }

    /// The times of an operation.
    pub(super) fn times(&self, operation: Operation) -> &Histogram {
        &self.times[operation as usize]
    }

    /// Makes stable what a transaction wrote, or an operation outside of one, if that is asked for.
    pub(super) fn end_transaction(&mut self) -> Result<(), PostmarkError> {
        if self.unstable.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        for file in self.unstable.drain(..) {
            rustix::fs::fsync(&file)
                .map_err(|error| PostmarkError::of("make stable", "what was written", error))?;
        }
        self.note_operation(Operation::Sync, begun);
        Ok(())
    }

    fn note_operation(&self, operation: Operation, begun: Instant) {
        let passed = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.times[operation as usize].record(passed);
    }

    fn may_go_on(&self) -> Result<(), PostmarkError> {
        let stopped = self.control.is_stopped() || self.halt.load(Ordering::Relaxed);
        if stopped { Err(PostmarkError::Stopped) } else { Ok(()) }
    }

    /// Makes every 512 bytes different from all others of the run.
    fn mark(&mut self, data: &mut [u8]) {
        if self.data != Data::Classic {
            self.mark = random::mark(data, self.mark);
        }
    }

    /// Opens a file, writes to it, makes it stable if that is asked for, and closes it.
    fn write(
        &mut self,
        path: &Path,
        data: &[u8],
        purpose: OpenMode,
        doing: &'static str,
    ) -> Result<(), PostmarkError> {
        let failed = |error| PostmarkError::of(doing, path, error);
        let file = self.style.open(path, purpose).map_err(failed)?;
        self.style.write(&file, data, |result, asked| check_whole(result, asked, doing, path))?;
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

    /// A directory has to be made stable after a name in it came or went.
    fn changed_directory_of(&mut self, path: &Path) -> Result<(), PostmarkError> {
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

/// Closes a file and looks at the result, which is where a file system of the network says that a
/// write was lost.
fn close(file: OwnedFd) -> Result<(), Errno> {
    nix::unistd::close(file).map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// Whether a call did all that it was asked for.
fn check_whole(
    result: Result<usize, Errno>,
    asked: usize,
    doing: &'static str,
    path: &Path,
) -> Result<(), PostmarkError> {
    match result {
        Ok(done) if done == asked => Ok(()),
        Ok(done) => Err(PostmarkError::Short { doing, path: path.to_owned(), done, asked }),
        Err(error) => Err(PostmarkError::of(doing, path, error)),
    }
}

impl Files for Checked<'_> {
    type Stop = PostmarkError;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, PostmarkError> {
        self.may_go_on()?;
        self.mark(data);
        let begun = Instant::now();
        self.write(file.path, data, OpenMode::Create, "create")?;
        self.note_operation(Operation::Create, begun);
        self.changed_directory_of(file.path)?;
        Ok(true)
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, PostmarkError> {
        self.may_go_on()?;
        self.mark(data);
        let begun = Instant::now();
        self.write(file.path, data, OpenMode::Append, "append to")?;
        self.note_operation(Operation::Append, begun);
        Ok(true)
    }

    fn read(&mut self, file: File<'_>) -> Result<bool, PostmarkError> {
        self.may_go_on()?;
        let failed = |error| PostmarkError::of("read", file.path, error);
        let begun = Instant::now();
        let opened = self.style.open(file.path, OpenMode::Read).map_err(failed)?;
        let step = |result, asked| check_whole(result, asked, "read", file.path);
        self.style.read(&opened, file.bytes as usize, &mut self.memory, step)?;
        close(opened).map_err(failed)?;
        self.note_operation(Operation::Read, begun);
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> Result<bool, PostmarkError> {
        self.may_go_on()?;
        let begun = Instant::now();
        rustix::fs::unlink(file.path)
            .map_err(|error| PostmarkError::of("delete", file.path, error))?;
        self.note_operation(Operation::Delete, begun);
        self.changed_directory_of(file.path)?;
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
            let mut files = Checked::new(&options, thread, &control, &halt);
            for _ in 0..40 {
                let mut data = vec![7; 5000];
                files.mark(&mut data);
                let new = data.chunks_exact(MARK_EVERY).filter(|part| seen.insert(part.to_vec()));
                assert_eq!(new.count(), 9);
            }
        }
        let mut files =
            Checked::new(&Options { data: Data::Classic, ..options }, 0, &control, &halt);
        let mut data = vec![7; 5000];
        files.mark(&mut data);
        assert_eq!(data, [7; 5000]);
    }
}
