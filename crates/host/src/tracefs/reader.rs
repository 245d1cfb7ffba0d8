//! The raw pages of all processors, taken apart and put in the order of time.
//!
//! Each processor has a buffer of its own, and a thread may go from one to another, so records are
//! sorted before they are handed out. When all buffers have been emptied, everything older than
//! the moment when that began has been read; a little is kept back for records that a processor
//! had begun and not finished.
//!
//! Invariant: records come in the order of their times, over all calls.

use super::{Instance, PageLayout, TraceError, Tracefs};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Records that were begun so long ago are finished: nobody is kept from finishing one for longer,
/// since interrupts and what they interrupt run to their end.
pub(crate) const UNFINISHED: Duration = Duration::from_millis(2);
/// Bytes for records of one round; more are left for the next.
const ROUND_BYTES: usize = 64 << 20;
/// Bytes that are kept for the next rounds: what a million look-ups a second leave in two of them.
/// Memory that is asked for anew in each round costs more than all else that is done here.
const KEPT_BYTES: usize = 4 << 20;

/// A record, in the bytes of the round.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    begin: usize,
    end: usize,
}

/// Reads one or more instances.
#[derive(Debug)]
pub struct Reader {
    buffers: Vec<OwnedFd>,
    layout: PageLayout,
    bytes: Store,
    /// The store of the round before, to be used again.
    spare: Store,
    records: Vec<Raw>,
    /// How many of them have been handed out.
    done: usize,
    missed: u64,
    until_ns: u64,
}

/// Bytes one after the other, in memory that is used again.
#[derive(Debug, Default)]
struct Store {
    memory: Vec<u8>,
    used: usize,
}

impl Store {
    /// Room behind what is there.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.used + bytes;
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.used..end]
    }

    /// Puts bytes behind what is there, and says where.
    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.used += bytes.len();
        self.used - bytes.len()..self.used
    }

    /// Forgets everything, and gives back what is rarely needed.
    fn clear(&mut self) {
        self.used = 0;
        self.memory.truncate(KEPT_BYTES);
        self.memory.shrink_to(KEPT_BYTES);
    }
}

/// Nanoseconds of the clock that records carry.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Reader {
    /// Opens the buffers of instances.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn open(tracefs: &Tracefs, instances: &[&Instance]) -> Result<Reader, TraceError> {
        let layout = tracefs.page_layout()?;
        let mut buffers = Vec::new();
        for processor in instances.iter().flat_map(|instance| instance.processors()) {
            let path = processor.join("trace_pipe_raw");
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&path, flags, Mode::empty());
            buffers.push(opened.map_err(|error| TraceError::io("open", &path)(error.into()))?);
        }
        Ok(Reader {
            buffers,
            layout,
            bytes: Store::default(),
            spare: Store::default(),
            records: Vec::new(),
            done: 0,
            missed: 0,
            until_ns: 0,
        })
    }

    /// Reads what is there and hands out the records that are old enough, in their order; with
    /// `all` everything, once recording has stopped. Says whether more was left.
    ///
    /// # Errors
    /// A buffer cannot be read.
    pub fn read_available(
        &mut self,
        all: bool,
        each: impl FnMut(u64, &[u8]),
    ) -> Result<bool, TraceError> {
        self.round_with(all, |_| (), each)
    }

    /// The same with another source of records, whose times are of the same clock: `others` hands
    /// out all that it has.
    ///
    /// # Errors
    /// A buffer cannot be read.
    pub fn round_with(
        &mut self,
        all: bool,
        others: impl FnOnce(&mut dyn FnMut(u64, &[u8])),
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<bool, TraceError> {
        self.forget_done();
        let (until, more) = self.empty_buffers()?;
        let (bytes, records) = (&mut self.bytes, &mut self.records);
        others(&mut |time_ns, data| {
            let Range { start: begin, end } = bytes.put(data);
            records.push(Raw { time_ns, begin, end });
        });
        self.records.sort_by_key(|record| record.time_ns);
        let unfinished_ns = u64::try_from(UNFINISHED.as_nanos()).expect("short");
        let until = if all && !more { u64::MAX } else { until.saturating_sub(unfinished_ns) };
        self.until_ns = until;
        self.done = self.records.partition_point(|record| record.time_ns < until);
        for record in &self.records[..self.done] {
            each(record.time_ns, &self.bytes.memory[record.begin..record.end]);
        }
        Ok(more)
    }

    /// Events that the kernel says it lost, as far as pages tell.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Every record from before this time has been handed out.
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "asked for by what counts"))]
    #[must_use]
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Moves what was kept back to the front.
    fn forget_done(&mut self) {
        self.spare.clear();
        for record in &mut self.records[self.done..] {
            let kept = self.spare.put(&self.bytes.memory[record.begin..record.end]);
            (record.begin, record.end) = (kept.start, kept.end);
        }
        self.records.drain(..self.done);
        std::mem::swap(&mut self.bytes, &mut self.spare);
        self.done = 0;
    }

    /// Reads all buffers, each until it is empty or its share of the round is used. Answers up to
    /// which time everything has been read, and whether something was left.
    fn empty_buffers(&mut self) -> Result<(u64, bool), TraceError> {
        let begun = now_ns();
        let (mut until, mut left) = (begun, false);
        let share = ROUND_BYTES / self.buffers.len().max(1);
        for number in 0..self.buffers.len() {
            let room = self.bytes.used + share;
            loop {
                if self.bytes.used > room {
                    // Its next record is not older than its last one.
                    until = until.min(self.records.last().map_or(0, |record| record.time_ns));
                    left = true;
                    break;
                }
                match rustix::io::read(&self.buffers[number], self.bytes.room(self.layout.bytes)) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(bytes) => self.take_apart(bytes),
                    Err(Errno::INTR) => {}
                    Err(error) => {
                        let path = std::path::Path::new("trace_pipe_raw");
                        return Err(TraceError::io("read", path)(error.into()));
                    }
                }
            }
        }
        Ok((until, left))
    }

    /// Takes a page apart that was read behind what is there.
    fn take_apart(&mut self, bytes: usize) {
        let begin = self.bytes.used;
        let mut records = self.layout.records(&self.bytes.memory[begin..begin + bytes]);
        self.missed += records.missed;
        self.bytes.used += records.end();
        while let Some((time_ns, Range { start, end })) = records.place() {
            self.records.push(Raw { time_ns, begin: begin + start, end: begin + end });
        }
    }
}
