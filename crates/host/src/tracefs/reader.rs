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
use std::os::fd::OwnedFd;

/// Records that were begun so long ago are finished: nobody is kept from finishing one for longer,
/// since interrupts and what they interrupt run to their end.
const UNFINISHED_NS: u64 = 2_000_000;
/// Bytes for records of one round; more are left for the next.
const ROUND_BYTES: usize = 64 << 20;

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
    page: Vec<u8>,
    bytes: Vec<u8>,
    records: Vec<Raw>,
    /// How many of them have been handed out.
    done: usize,
    missed: u64,
    until_ns: u64,
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
        let page = vec![0; layout.bytes];
        let (bytes, records) = (Vec::new(), Vec::new());
        Ok(Reader { buffers, layout, page, bytes, records, done: 0, missed: 0, until_ns: 0 })
    }

    /// Reads what is there and hands out the records that are old enough, in their order; with
    /// `all` everything, once recording has stopped. Says whether more was left.
    ///
    /// # Errors
    /// A buffer cannot be read.
    pub fn round(&mut self, all: bool, each: impl FnMut(u64, &[u8])) -> Result<bool, TraceError> {
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
            let begin = bytes.len();
            bytes.extend_from_slice(data);
            records.push(Raw { time_ns, begin, end: bytes.len() });
        });
        self.records.sort_by_key(|record| record.time_ns);
        let until = if all && !more { u64::MAX } else { until.saturating_sub(UNFINISHED_NS) };
        self.until_ns = until;
        self.done = self.records.partition_point(|record| record.time_ns < until);
        for record in &self.records[..self.done] {
            each(record.time_ns, &self.bytes[record.begin..record.end]);
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
        let mut kept = Vec::new();
        for record in &mut self.records[self.done..] {
            let begin = kept.len();
            kept.extend_from_slice(&self.bytes[record.begin..record.end]);
            (record.begin, record.end) = (begin, kept.len());
        }
        self.records.drain(..self.done);
        self.bytes = kept;
        self.done = 0;
    }

    /// Reads all buffers, each until it is empty or its share of the round is used. Answers up to
    /// which time everything has been read, and whether something was left.
    fn empty_buffers(&mut self) -> Result<(u64, bool), TraceError> {
        let begun = now_ns();
        let (mut until, mut left) = (begun, false);
        let share = ROUND_BYTES / self.buffers.len().max(1);
        for number in 0..self.buffers.len() {
            let room = self.bytes.len() + share;
            loop {
                if self.bytes.len() > room {
                    // Its next record is not older than its last one.
                    until = until.min(self.records.last().map_or(0, |record| record.time_ns));
                    left = true;
                    break;
                }
                match rustix::io::read(&self.buffers[number], &mut self.page[..]) {
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

    fn take_apart(&mut self, bytes: usize) {
        let records = self.layout.records(&self.page[..bytes]);
        self.missed += records.missed;
        for (time_ns, data) in records {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(data);
            self.records.push(Raw { time_ns, begin, end: self.bytes.len() });
        }
    }
}
