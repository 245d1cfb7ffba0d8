//! A file under test, and carrying out passes on it.
//!
//! As in IOzone, the file is flushed after each writing pass and outside of its time, so that it is
//! clean before the next one; the time with the flush is kept beside the one without. If closing
//! counts, the file is closed first, as by a program that never flushes, and opened once more to be
//! flushed. Unlike in IOzone there is no record that is read or written before the clock starts,
//! since a cold file would not be cold then; a single backward pass is made; what a call returns is
//! checked, that of close(2) too; and the making of data does not count. Times are nanoseconds,
//! sizes are bytes.

use super::grid::Cell;
use super::order;
use super::passes::{MAKE, Order, Pass, RecordOrder, passes};
use super::records::Records;
use crate::bench::target::O_DIRECT;
use crate::bench::{BenchError, TrialContext};
use larder_core::clock::Nanos;
use larder_core::counters::{Histogram, HistogramSnapshot};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags of open(2) that make each write wait (include/uapi/asm-generic/fcntl.h).
const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_010_000;

/// What a write waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Nothing.
    #[default]
    None,
    /// Its data (`O_DSYNC`).
    Data,
    /// Its data and everything about the file (`O_SYNC`).
    All,
}

/// How the file is opened and gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPattern {
    /// Past the page cache (`-I`).
    pub direct: bool,
    /// What writes wait for (`-o`).
    pub sync: Sync,
    /// Whether the time of a pass includes closing the file (`-c`).
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
    /// By name, for records of runs.
    pub(super) fn settings(self) -> BTreeMap<String, Value> {
        [
            ("direct".to_owned(), self.direct.into()),
            ("sync".to_owned(), format!("{:?}", self.sync).to_lowercase().into()),
            ("close_counts".to_owned(), self.close_counts.into()),
            ("stride_records".to_owned(), self.stride.into()),
        ]
        .into()
    }
}

/// What one pass took.
#[derive(Clone, Debug, Default)]
pub struct PassResult {
    /// Bytes that were read or written.
    pub bytes: u64,
    /// From the first record to the last, with the closing if that counts.
    pub took: Nanos,
    /// The same with the flush after it, of passes that write.
    pub took_flushed: Option<Nanos>,
    /// Of each record.
    pub times: HistogramSnapshot,
}

/// Ends the passes of all threads when the first of them is through: IOzone's stonewall.
pub type Wall = AtomicBool;

/// One file under test.
pub struct TestFile<'a> {
    stage: &'a TrialContext<'a>,
    path: &'a Path,
    cell: Cell,
    manner: AccessPattern,
    records: Records,
    wall: Option<&'a Wall>,
    /// What the last pass has written and nobody has flushed, unless it is closed.
    unflushed: Option<File>,
}

impl std::fmt::Debug for TestFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("path", &self.path).field("cell", &self.cell).finish()
    }
}

/// Stands between two looks at the clock.
struct Watch<'a> {
    stage: &'a TrialContext<'a>,
    last: Nanos,
    took: Nanos,
    times: Histogram,
}

impl<'a> Watch<'a> {
    fn begin(stage: &'a TrialContext<'a>) -> Self {
        Watch { stage, last: stage.now(), took: 0, times: Histogram::default() }
    }

    /// What was done since the last look does not count.
    fn skip(&mut self) {
        self.last = self.stage.now();
    }

    /// A record is done.
    fn note_record(&mut self) -> Result<(), BenchError> {
        let now = self.stage.now();
        let took = now - self.last;
        self.times.record(took);
        self.took += took;
        self.last = now;
        self.stage.check()
    }

    fn end(self, bytes: u64) -> PassResult {
        let mut times = HistogramSnapshot::default();
        self.times.add_to(&mut times);
        PassResult { bytes, took: self.took, took_flushed: None, times }
    }
}

/// An open file, with what lies between it and the records.
enum Handle {
    Plain(File),
    Out(BufWriter<File>),
    In(BufReader<File>),
}

impl Handle {
    fn write(&mut self, way: RecordOrder, record: &[u8], at: u64) -> io::Result<()> {
        match self {
            Handle::Plain(file) if way == RecordOrder::At => file.write_all_at(record, at),
            Handle::Plain(file) => file.write_all(record),
            Handle::Out(stream) => stream.write_all(record),
            Handle::In(_) => unreachable!("a stream that reads is not written to"),
        }
    }

    fn read(&mut self, way: RecordOrder, record: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Handle::Plain(file) if way == RecordOrder::At => file.read_exact_at(record, at),
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
    /// A file of `cell` for a thread, whose records differ from those of all others.
    #[must_use]
    pub fn new(
        stage: &'a TrialContext<'a>,
        path: &'a Path,
        cell: Cell,
        manner: AccessPattern,
        thread: u64,
    ) -> Self {
        let records = Records::new(&cell, stage.seed, thread);
        TestFile { stage, path, cell, manner, records, wall: None, unflushed: None }
    }

    /// From now on passes end at this wall.
    pub fn set_wall(&mut self, wall: Option<&'a Wall>) {
        self.wall = wall;
    }

    /// Does a test of `-i`, 0 to 7, 9 or 10; what each of its columns showed, in their order.
    ///
    /// # Errors
    /// The system refused something, or somebody wants to stop.
    pub fn run(&mut self, test: u8) -> Result<Vec<PassResult>, BenchError> {
        let mut all = Vec::new();
        for pass in passes(test) {
            let mut passed = self.pass(pass)?;
            if pass.writes {
                passed.took_flushed = Some(passed.took + self.flush()?);
            }
            all.push(passed);
        }
        Ok(all)
    }

    /// Makes the file with all its records, stable. Not timed.
    ///
    /// # Errors
    /// As above.
    pub fn make(&mut self) -> Result<(), BenchError> {
        self.pass(&MAKE)?;
        self.flush().map(|_| ())
    }

    /// Writes what is missing of the file after a pass that a wall ended when `bytes` of it were
    /// written. Not timed.
    ///
    /// # Errors
    /// As above.
    pub fn complete(&mut self, bytes: u64) -> Result<(), BenchError> {
        self.wall = None;
        let order = Order::From(bytes / self.cell.record_bytes);
        self.pass(&Pass { way: RecordOrder::At, order, makes: false, ..MAKE })?;
        self.flush().map(|_| ())
    }

    /// One pass. What it wrote is to be flushed next.
    ///
    /// # Errors
    /// As above.
    pub fn pass(&mut self, pass: &Pass) -> Result<PassResult, BenchError> {
        let mut handle = self.open(pass)?;
        let said = self.io_error(if pass.writes { "write to" } else { "read" });
        let (way, record_bytes) = (pass.way, self.cell.record_bytes);
        let numbers = pass.order.numbers(self.cell.records(), self.manner.stride);
        let mut watch = Watch::begin(self.stage);
        let (mut bytes, mut is_through) = (0, true);
        for number in numbers {
            if self.wall.is_some_and(|wall| wall.load(Ordering::Relaxed)) {
                is_through = false;
                break;
            }
            let at = number * record_bytes;
            let done = if pass.writes {
                let record = self.records.fresh();
                watch.skip();
                handle.write(way, record, at)
            } else {
                handle.read(way, self.records.place(), at)
            };
            if let Err(error) = done {
                return Err(said(error));
            }
            bytes += record_bytes;
            watch.note_record()?;
        }
        if let Some(wall) = self.wall.filter(|_| is_through) {
            wall.store(true, Ordering::Relaxed);
        }
        let file = handle.into_file().map_err(said)?;
        self.leave(file, pass, watch.end(bytes))
    }

    /// Closes what need not be flushed, and counts it if that is asked for.
    fn leave(
        &mut self,
        file: File,
        pass: &Pass,
        mut passed: PassResult,
    ) -> Result<PassResult, BenchError> {
        if pass.writes && !self.manner.close_counts {
            self.unflushed = Some(file);
            return Ok(passed);
        }
        let before = self.stage.now();
        self.close(file)?;
        if self.manner.close_counts {
            passed.took += self.stage.now() - before;
        }
        Ok(passed)
    }

    /// Makes stable what the last pass wrote; how long that took.
    ///
    /// # Errors
    /// As above.
    pub fn flush(&mut self) -> Result<Nanos, BenchError> {
        let file = match self.unflushed.take() {
            Some(file) => file,
            None => {
                OpenOptions::new().write(true).open(self.path).map_err(self.io_error("open"))?
            }
        };
        let before = self.stage.now();
        file.sync_all().map_err(self.io_error("flush"))?;
        let took = self.stage.now() - before;
        self.close(file)?;
        Ok(took)
    }

    /// Closes, and looks at the result: a file system of the network says there that a write was
    /// lost.
    fn close(&self, file: File) -> Result<(), BenchError> {
        nix::unistd::close(file).map_err(io::Error::from).map_err(self.io_error("close"))
    }

    fn io_error(&self, what: &str) -> impl FnOnce(io::Error) -> BenchError + use<> {
        BenchError::io(format!("{what} {}", self.path.display()))
    }

    fn open(&self, pass: &Pass) -> Result<Handle, BenchError> {
        let mut flags = if self.manner.direct { O_DIRECT } else { 0 };
        if pass.writes {
            flags |= match self.manner.sync {
                Sync::None => 0,
                Sync::Data => O_DSYNC,
                Sync::All => O_SYNC,
            };
        }
        let mut options = OpenOptions::new();
        options.read(!pass.writes).write(pass.writes).create(pass.makes).truncate(pass.makes);
        let file = options.custom_flags(flags).open(self.path).map_err(self.io_error("open"))?;
        let size = usize::try_from(self.cell.record_bytes).expect("a record fits memory");
        Ok(match (pass.way, pass.writes) {
            (RecordOrder::Stream, true) => Handle::Out(BufWriter::with_capacity(size, file)),
            (RecordOrder::Stream, false) => Handle::In(BufReader::with_capacity(size, file)),
            _ => Handle::Plain(file),
        })
    }
}
