//! The file of a test, and the execution of passes on it.
//!
//! As in IOzone, the file is flushed after each writing pass and outside its time, so that it is
//! clean before the next one; the time with the flush is kept next to the one without. If closing
//! counts, the file is closed first, as by a program that never flushes, and reopened for the
//! flush. Unlike in IOzone, no record is read or written before the clock starts, since a cold file
//! would no longer be cold; there is a single backward pass; the results of all calls are checked,
//! including that of close(2); and the generation of data does not count. Times are nanoseconds,
//! sizes are bytes.

use super::grid::Cell;
use super::order;
use super::passes::{IoMethod, MAKE, Order, Pass, passes};
use super::records::Records;
use crate::bench::target::O_DIRECT;
use crate::bench::workload::parameters;
use crate::bench::{BenchError, TrialContext};
use larder_core::clock::Nanos;
use larder_core::counters::{Histogram, HistogramSnapshot};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags of open(2) for synchronous writes (include/uapi/asm-generic/fcntl.h).
const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_010_000;

/// Synchronous writes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// A write does not wait.
    #[default]
    None,
    /// A write waits for its data (`O_DSYNC`).
    Data,
    /// A write waits for its data and all metadata (`O_SYNC`).
    All,
}

/// The way in which the file is opened and processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPattern {
    /// Bypasses the page cache (`-I`).
    pub direct: bool,
    /// Synchronous writes (`-o`).
    pub sync: Sync,
    /// True if the time of a pass includes closing the file (`-c`).
    pub close_counts: bool,
    /// The stride of the stride test, in records (`-j`).
    pub stride: u64,
}

impl Default for AccessPattern {
    fn default() -> Self {
        AccessPattern {
            direct: false,
            sync: Sync::None,
            close_counts: false,
            stride: order::STRIDE,
        }
    }
}

impl AccessPattern {
    /// Returns the settings by name, for records of runs.
    pub(super) fn settings(self) -> BTreeMap<String, Value> {
        parameters(json!({
            "direct": self.direct,
            "sync": format!("{:?}", self.sync).to_lowercase(),
            "close_counts": self.close_counts,
            "stride_records": self.stride,
        }))
    }
}

/// Result of a pass.
#[derive(Clone, Debug, Default)]
pub struct PassResult {
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Time from the first record to the last, with the close if that counts.
    pub took: Nanos,
    /// The same time with the flush after it, for passes that write.
    pub took_flushed: Option<Nanos>,
    /// Time of each record.
    pub times: HistogramSnapshot,
}

/// Ends the passes of all threads when the first of them has finished: the stonewall of IOzone.
pub(super) type Stonewall = AtomicBool;

/// One file under test.
pub struct TestFile<'a> {
    context: &'a TrialContext<'a>,
    path: PathBuf,
    cell: Cell,
    pattern: AccessPattern,
    records: Records,
    wall: Option<&'a Stonewall>,
    /// The file with unflushed data of the last pass, unless it is closed.
    unflushed: Option<File>,
}

impl std::fmt::Debug for TestFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestFile").field("path", &self.path).field("cell", &self.cell).finish()
    }
}

/// Timer of a pass: adds up the time of its records.
struct PassTimer<'a> {
    context: &'a TrialContext<'a>,
    last: Nanos,
    took: Nanos,
    times: Histogram,
}

impl<'a> PassTimer<'a> {
    fn begin(context: &'a TrialContext<'a>) -> Self {
        PassTimer { context, last: context.now(), took: 0, times: Histogram::default() }
    }

    /// Excludes the time since the last reading.
    fn restart(&mut self) {
        self.last = self.context.now();
    }

    /// Records the time of a record.
    fn end_record(&mut self) -> Result<(), BenchError> {
        let now = self.context.now();
        let took = now - self.last;
        self.times.record(took);
        self.took += took;
        self.last = now;
        self.context.check()
    }

    fn end(self, bytes: u64) -> PassResult {
        let mut times = HistogramSnapshot::default();
        self.times.add_to(&mut times);
        PassResult { bytes, took: self.took, took_flushed: None, times }
    }
}

/// An open file, with its stream if it has one.
enum Handle {
    Plain(File),
    Out(BufWriter<File>),
    In(BufReader<File>),
}

impl Handle {
    fn write(&mut self, method: IoMethod, record: &[u8], at: u64) -> io::Result<()> {
        match self {
            Handle::Plain(file) if method == IoMethod::At => file.write_all_at(record, at),
            Handle::Plain(file) => file.write_all(record),
            Handle::Out(stream) => stream.write_all(record),
            Handle::In(_) => unreachable!("a stream that reads is not written to"),
        }
    }

    fn read(&mut self, method: IoMethod, record: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Handle::Plain(file) if method == IoMethod::At => file.read_exact_at(record, at),
            Handle::Plain(file) => file.read_exact(record),
            Handle::In(stream) => stream.read_exact(record),
            Handle::Out(_) => unreachable!("a stream that writes is not read"),
        }
    }

    fn into_file(self) -> io::Result<File> {
        match self {
            Handle::Plain(file) => Ok(file),
            Handle::Out(stream) => stream.into_inner().map_err(io::IntoInnerError::into_error),
            Handle::In(stream) => Ok(stream.into_inner()),
        }
    }
}

impl<'a> TestFile<'a> {
    /// Returns the file of `cell` for a thread, whose records differ from those of all others.
    #[must_use]
    pub fn new(
        context: &'a TrialContext<'a>,
        path: &Path,
        cell: Cell,
        pattern: AccessPattern,
        thread: u64,
    ) -> Self {
        let (path, records) = (path.to_owned(), Records::new(&cell, context.seed, thread));
        TestFile { context, path, cell, pattern, records, wall: None, unflushed: None }
    }

    /// Returns the clock and the stop flag of its trial.
    pub(super) fn context(&self) -> &'a TrialContext<'a> {
        self.context
    }

    /// Ends later passes at this stonewall.
    pub fn set_wall(&mut self, wall: Option<&'a Stonewall>) {
        self.wall = wall;
    }

    /// Runs a test of `-i`, 0 to 7, 9 or 10. Returns the result of each of its columns, in order.
    ///
    /// # Errors
    /// The system reported an error, or the user stopped the run.
    pub fn run(&mut self, test: u8) -> Result<Vec<PassResult>, BenchError> {
        let mut all = Vec::new();
        for pass in passes(test) {
            let mut result = self.pass(pass)?;
            if pass.writes {
                result.took_flushed = Some(result.took + self.flush()?);
            }
            all.push(result);
        }
        Ok(all)
    }

    /// Creates the file with all its records, and flushes it. Not timed.
    ///
    /// # Errors
    /// As above.
    pub fn make(&mut self) -> Result<(), BenchError> {
        self.pass(&MAKE)?;
        self.flush().map(|_| ())
    }

    /// Writes the missing part of the file after a stonewall ended a pass when `bytes` of it were
    /// written. Not timed.
    ///
    /// # Errors
    /// As above.
    pub fn complete(&mut self, bytes: u64) -> Result<(), BenchError> {
        self.wall = None;
        let order = Order::From(bytes / self.cell.record_bytes);
        self.pass(&Pass { method: IoMethod::At, order, makes: false, ..MAKE })?;
        self.flush().map(|_| ())
    }

    /// Runs one pass. The caller flushes next what it wrote.
    ///
    /// # Errors
    /// As above.
    pub fn pass(&mut self, pass: &Pass) -> Result<PassResult, BenchError> {
        let mut handle = self.open(pass)?;
        let to_error = self.io_error(if pass.writes { "write to" } else { "read" });
        let (method, record_bytes) = (pass.method, self.cell.record_bytes);
        let numbers = pass.order.numbers(self.cell.records(), self.pattern.stride);
        let mut timer = PassTimer::begin(self.context);
        let (mut bytes, mut is_through) = (0, true);
        for number in numbers {
            if self.wall.is_some_and(|wall| wall.load(Ordering::Relaxed)) {
                is_through = false;
                break;
            }
            let at = number * record_bytes;
            let done = if pass.writes {
                let record = self.records.next_record();
                timer.restart();
                handle.write(method, record, at)
            } else {
                handle.read(method, self.records.read_buffer(), at)
            };
            if let Err(error) = done {
                return Err(to_error(error));
            }
            bytes += record_bytes;
            timer.end_record()?;
        }
        if let Some(wall) = self.wall.filter(|_| is_through) {
            wall.store(true, Ordering::Relaxed);
        }
        let file = handle.into_file().map_err(to_error)?;
        self.finish_pass(file, pass, timer.end(bytes))
    }

    /// Closes a file that needs no flush, and counts the time if required.
    fn finish_pass(
        &mut self,
        file: File,
        pass: &Pass,
        mut result: PassResult,
    ) -> Result<PassResult, BenchError> {
        if pass.writes && !self.pattern.close_counts {
            self.unflushed = Some(file);
            return Ok(result);
        }
        let before = self.context.now();
        self.close(file)?;
        if self.pattern.close_counts {
            result.took += self.context.now() - before;
        }
        Ok(result)
    }

    /// Flushes the data of the last pass, and returns the time that this took.
    ///
    /// # Errors
    /// As above.
    pub fn flush(&mut self) -> Result<Nanos, BenchError> {
        let file = match self.unflushed.take() {
            Some(file) => file,
            None => {
                OpenOptions::new().write(true).open(&self.path).map_err(self.io_error("open"))?
            }
        };
        let before = self.context.now();
        file.sync_all().map_err(self.io_error("flush"))?;
        let took = self.context.now() - before;
        self.close(file)?;
        Ok(took)
    }

    /// Closes a file and checks the result, with which a network file system reports a lost write.
    fn close(&self, file: File) -> Result<(), BenchError> {
        nix::unistd::close(file).map_err(io::Error::from).map_err(self.io_error("close"))
    }

    fn io_error(&self, what: &str) -> impl FnOnce(io::Error) -> BenchError + use<> {
        BenchError::io(format!("{what} {}", self.path.display()))
    }

    fn open(&self, pass: &Pass) -> Result<Handle, BenchError> {
        let mut flags = if self.pattern.direct { O_DIRECT } else { 0 };
        if pass.writes {
            flags |= match self.pattern.sync {
                Sync::None => 0,
                Sync::Data => O_DSYNC,
                Sync::All => O_SYNC,
            };
        }
        let mut options = OpenOptions::new();
        options.read(!pass.writes).write(pass.writes).create(pass.makes).truncate(pass.makes);
        let file = options.custom_flags(flags).open(&self.path).map_err(self.io_error("open"))?;
        let size = usize::try_from(self.cell.record_bytes).expect("a record fits memory");
        Ok(match (pass.method, pass.writes) {
            (IoMethod::Stream, true) => Handle::Out(BufWriter::with_capacity(size, file)),
            (IoMethod::Stream, false) => Handle::In(BufReader::with_capacity(size, file)),
            _ => Handle::Plain(file),
        })
    }
}
