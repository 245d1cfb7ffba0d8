//! Carrying the tests out: one pass over the records of a file at a time.
//!
//! As in IOzone, the file is flushed after each writing pass and outside of its time, so that it is
//! clean before the next one; the time with the flush is kept beside the one without. Unlike in
//! IOzone there is no record that is read before the clock starts, since a cold file would not be
//! cold then; a single backward pass is made; and what a call returns is checked. Times are
//! nanoseconds, sizes are bytes.

use super::grid::Cell;
use super::order;
use crate::bench::target::{Aligned, O_DIRECT};
use crate::bench::{BenchError, Stage};
use crate::random::Random;
use larder_core::clock::Nanos;
use larder_core::counters::{Histogram, HistogramSnapshot};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

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

/// How the file is opened and filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Past the page cache (`-I`).
    pub direct: bool,
    /// What writes wait for (`-o`).
    pub sync: Sync,
    /// Whether the time of a pass includes closing the file (`-c`).
    pub close_counts: bool,
    /// The stride of the stride test, in records (`-j`).
    pub stride: u64,
}

impl Default for Manner {
    fn default() -> Self {
        Manner { direct: false, sync: Sync::None, close_counts: false, stride: order::STRIDE }
    }
}

/// What one pass took.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// Bytes that were read or written.
    pub bytes: u64,
    /// From the first record to the last, with the closing if that counts.
    pub took: Nanos,
    /// The same with the flush after it, of passes that write.
    pub took_flushed: Option<Nanos>,
    /// Of each record.
    pub times: HistogramSnapshot,
}

/// In which way the records of a pass are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One after the other where the file stands: read(2), write(2).
    Next,
    /// By place: pread(2), pwrite(2).
    At,
}

/// One file under test.
pub struct Subject<'a> {
    stage: &'a Stage<'a>,
    path: &'a Path,
    cell: Cell,
    manner: Manner,
    buffer: Aligned,
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("path", &self.path).field("cell", &self.cell).finish()
    }
}

/// Stands between two looks at the clock.
struct Watch<'a> {
    stage: &'a Stage<'a>,
    begun: Nanos,
    last: Nanos,
    times: Histogram,
}

impl<'a> Watch<'a> {
    fn begin(stage: &'a Stage<'a>) -> Self {
        let begun = stage.now();
        Watch { stage, begun, last: begun, times: Histogram::default() }
    }

    /// A record is done.
    fn note(&mut self) -> Result<(), BenchError> {
        let now = self.stage.now();
        self.times.record(now - self.last);
        self.last = now;
        self.stage.check()
    }

    fn end(self, bytes: u64) -> Passed {
        let mut times = HistogramSnapshot::default();
        self.times.add_to(&mut times);
        Passed { bytes, took: self.last - self.begun, took_flushed: None, times }
    }
}

impl<'a> Subject<'a> {
    /// A file of `cell`, with records whose bytes no store can squeeze or share.
    #[must_use]
    pub fn new(stage: &'a Stage<'a>, path: &'a Path, cell: Cell, manner: Manner) -> Self {
        let mut buffer = Aligned::default();
        let len = usize::try_from(cell.record_bytes).expect("a record fits memory");
        Random::from_seed(stage.seed).fill(buffer.of(len));
        Subject { stage, path, cell, manner, buffer }
    }

    /// Does a test of `-i`, 0 to 7, 9 or 10; what each of its columns showed, in their order.
    ///
    /// # Errors
    /// The system refused something, or somebody wants to stop.
    pub fn run(&mut self, test: u8) -> Result<Vec<Passed>, BenchError> {
        let records = self.cell.records();
        let in_order = || 0..records;
        match test {
            0 => Ok(vec![self.writes(Way::Next, true, in_order())?, self.rewrite(Way::Next)?]),
            1 => Ok(vec![self.reads(Way::Next, in_order())?, self.reads(Way::Next, in_order())?]),
            2 => {
                let order = order::random(records);
                let read = self.reads(Way::At, order.iter().copied())?;
                Ok(vec![read, self.writes(Way::At, false, order.iter().copied())?])
            }
            3 => Ok(vec![self.reads(Way::At, order::backward(records))?]),
            4 => {
                let again = std::iter::repeat_n(0, usize::try_from(records).expect("records"));
                Ok(vec![self.writes(Way::At, false, again)?])
            }
            5 => Ok(vec![self.reads(Way::At, order::strided(records, self.manner.stride))?]),
            6 => Ok(vec![self.fwrites()?, self.fwrites()?]),
            7 => Ok(vec![self.freads()?, self.freads()?]),
            9 => Ok(vec![self.writes(Way::At, false, in_order())?, self.rewrite(Way::At)?]),
            10 => Ok(vec![self.reads(Way::At, in_order())?, self.reads(Way::At, in_order())?]),
            _ => Err(BenchError::Workload(format!("run test {test}: there is none in the grid"))),
        }
    }

    /// Makes the file with all its records, stable. Not timed.
    ///
    /// # Errors
    /// As above.
    pub fn make(&mut self) -> Result<(), BenchError> {
        self.writes(Way::Next, true, 0..self.cell.records()).map(|_| ())
    }

    fn rewrite(&mut self, way: Way) -> Result<Passed, BenchError> {
        self.writes(way, false, 0..self.cell.records())
    }

    fn said(&self, what: &str) -> impl FnOnce(std::io::Error) -> BenchError + use<> {
        BenchError::io(format!("{what} {}", self.path.display()))
    }

    fn open(&self, writes: bool, makes: bool) -> Result<File, BenchError> {
        let mut flags = if self.manner.direct { O_DIRECT } else { 0 };
        if writes {
            flags |= match self.manner.sync {
                Sync::None => 0,
                Sync::Data => O_DSYNC,
                Sync::All => O_SYNC,
            };
        }
        let mut options = OpenOptions::new();
        options.read(!writes).write(writes).create(makes).truncate(makes).custom_flags(flags);
        options.open(self.path).map_err(self.said("open"))
    }

    fn writes(
        &mut self,
        way: Way,
        makes: bool,
        records: impl Iterator<Item = u64>,
    ) -> Result<Passed, BenchError> {
        let mut file = self.open(true, makes)?;
        let (said, record_bytes) = (self.said("write to"), self.cell.record_bytes);
        let mut watch = Watch::begin(self.stage);
        let record = self.buffer.of(usize::try_from(record_bytes).expect("a record"));
        let mut bytes = 0;
        let mut write = |record: &[u8], number: u64| match way {
            Way::Next => file.write_all(record),
            Way::At => file.write_all_at(record, number * record_bytes),
        };
        for number in records {
            // No two records alike.
            record[..8].copy_from_slice(&number.to_le_bytes());
            if let Err(error) = write(record, number) {
                return Err(said(error));
            }
            bytes += record_bytes;
            watch.note()?;
        }
        self.finish(file, watch, bytes)
    }

    /// Flushes and closes what was written.
    fn finish(&self, file: File, watch: Watch<'_>, bytes: u64) -> Result<Passed, BenchError> {
        let mut passed = watch.end(bytes);
        let before = self.stage.now();
        file.sync_all().map_err(self.said("flush"))?;
        let flushed = self.stage.now();
        drop(file);
        let closing = if self.manner.close_counts { self.stage.now() - flushed } else { 0 };
        passed.took_flushed = Some(passed.took + (flushed - before) + closing);
        passed.took += closing;
        Ok(passed)
    }

    fn reads(
        &mut self,
        way: Way,
        records: impl Iterator<Item = u64>,
    ) -> Result<Passed, BenchError> {
        let mut file = self.open(false, false)?;
        let (said, record_bytes) = (self.said("read"), self.cell.record_bytes);
        let mut watch = Watch::begin(self.stage);
        let record = self.buffer.of(usize::try_from(record_bytes).expect("a record"));
        let mut bytes = 0;
        let mut read = |record: &mut [u8], number: u64| match way {
            Way::Next => file.read_exact(record),
            Way::At => file.read_exact_at(record, number * record_bytes),
        };
        for number in records {
            if let Err(error) = read(record, number) {
                return Err(said(error));
            }
            bytes += record_bytes;
            watch.note()?;
        }
        Ok(self.close(file, watch, bytes))
    }

    fn close(&self, file: impl Sized, watch: Watch<'_>, bytes: u64) -> Passed {
        let mut passed = watch.end(bytes);
        let before = self.stage.now();
        drop(file);
        if self.manner.close_counts {
            passed.took += self.stage.now() - before;
        }
        passed
    }

    /// Through a buffer of one record, as stdio with setvbuf: one system call for each.
    fn fwrites(&mut self) -> Result<Passed, BenchError> {
        let size = usize::try_from(self.cell.record_bytes).expect("a record");
        let file = self.open(true, true)?;
        let said = self.said("write to");
        let mut watch = Watch::begin(self.stage);
        let mut stream = BufWriter::with_capacity(size, file);
        let record = self.buffer.of(size);
        for number in 0..self.cell.records() {
            record[..8].copy_from_slice(&number.to_le_bytes());
            if let Err(error) = stream.write_all(record) {
                return Err(said(error));
            }
            watch.note()?;
        }
        let file = stream.into_inner().map_err(|error| said(error.into_error()))?;
        self.finish(file, watch, self.cell.records() * self.cell.record_bytes)
    }

    fn freads(&mut self) -> Result<Passed, BenchError> {
        let size = usize::try_from(self.cell.record_bytes).expect("a record");
        let mut file = self.open(false, false)?;
        file.seek(SeekFrom::Start(0)).map_err(self.said("read"))?;
        let said = self.said("read");
        let mut watch = Watch::begin(self.stage);
        let mut stream = BufReader::with_capacity(size, file);
        let record = self.buffer.of(size);
        for _ in 0..self.cell.records() {
            if let Err(error) = stream.read_exact(record) {
                return Err(said(error));
            }
            watch.note()?;
        }
        Ok(self.close(stream, watch, self.cell.records() * self.cell.record_bytes))
    }
}
