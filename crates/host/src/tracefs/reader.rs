//! Decoding and time-ordering of the raw pages of all processors.
//!
//! Each processor has its own buffer, and a thread may migrate between processors, so the reader
//! sorts records before it passes them on. A pass over all buffers reads every record that was
//! complete before the pass began; the reader holds the most recent records back, because an older
//! record may still be incomplete on another processor.
//!
//! Invariant: records are passed on in the order of their times, over all calls.

use super::{Instance, PageLayout, TraceError, Tracefs};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Age after which a record is complete: interrupts and the code that they interrupt run to
/// completion, so no record stays incomplete for longer.
pub(crate) const COMPLETION_TIME: Duration = Duration::from_millis(2);
/// Bytes of records to read per pass; the rest stays for the next pass.
const PASS_BYTES: usize = 64 << 20;
/// Bytes of memory to keep for the next passes: the records of a million lookups per second in two
/// of them. A new allocation in each pass would cost more than all other work of the reader.
const KEPT_BYTES: usize = 4 << 20;

/// A record, as a byte range in the buffer of its pass.
#[derive(Debug)]
struct RawRecord {
    /// Time in nanoseconds of the monotonic clock.
    time_ns: u64,
    range: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct Reader {
    buffers: Vec<OwnedFd>,
    layout: PageLayout,
    bytes: RecordBuffer,
    /// The buffer of the previous pass, for reuse.
    spare: RecordBuffer,
    records: Vec<RawRecord>,
    /// Number of records that were passed on.
    delivered: usize,
    /// Number of events that the kernel reports as lost in page headers.
    pub(super) missed: u64,
    /// Time before which every record has been passed on.
    pub(crate) until_ns: u64,
}

/// A byte buffer with reusable memory.
#[derive(Debug, Default)]
struct RecordBuffer {
    memory: Vec<u8>,
    used: usize,
}

impl RecordBuffer {
    /// Returns free space of `bytes` bytes at the end.
    fn free_space(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.used + bytes;
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.used..end]
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        self.free_space(bytes.len()).copy_from_slice(bytes);
        self.used += bytes.len();
        self.used - bytes.len()..self.used
    }

    /// Empties the buffer and frees memory beyond [`KEPT_BYTES`].
    fn clear(&mut self) {
        self.used = 0;
        self.memory.truncate(KEPT_BYTES);
        self.memory.shrink_to(KEPT_BYTES);
    }
}

/// Returns the current time of the clock that records use, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Reader {
    pub(crate) fn open(tracefs: &Tracefs, instance: &Instance) -> Result<Reader, TraceError> {
        let layout = tracefs.page_layout()?;
        let buffers = instance.processors().map(|processor| {
            let path = processor.join("trace_pipe_raw");
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&path, flags, Mode::empty());
            opened.map_err(|error| TraceError::io("open", &path)(error.into()))
        });
        Ok(Reader {
            buffers: buffers.collect::<Result<_, _>>()?,
            layout,
            bytes: RecordBuffer::default(),
            spare: RecordBuffer::default(),
            records: Vec::new(),
            delivered: 0,
            missed: 0,
            until_ns: 0,
        })
    }

    /// Reads the available records and passes on those that are old enough, in order; with `all` it
    /// passes on every record, for use after recording has stopped. `other_source` passes on all
    /// records of a second source with the same clock. Returns true if records were left in the
    /// buffers.
    pub(crate) fn read_with(
        &mut self,
        all: bool,
        other_source: impl FnOnce(&mut dyn FnMut(u64, &[u8])),
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<bool, TraceError> {
        self.discard_delivered();
        let (until, more) = self.drain_buffers()?;
        let (bytes, records) = (&mut self.bytes, &mut self.records);
        other_source(&mut |time_ns, data| {
            records.push(RawRecord { time_ns, range: bytes.append(data) });
        });
        self.records.sort_by_key(|record| record.time_ns);
        let unfinished_ns = u64::try_from(COMPLETION_TIME.as_nanos()).expect("short");
        let until = if all && !more { u64::MAX } else { until.saturating_sub(unfinished_ns) };
        self.until_ns = until;
        self.delivered = self.records.partition_point(|record| record.time_ns < until);
        for record in &self.records[..self.delivered] {
            each(record.time_ns, &self.bytes.memory[record.range.clone()]);
        }
        Ok(more)
    }

    /// Moves the records that were held back to the front.
    fn discard_delivered(&mut self) {
        self.spare.clear();
        for record in &mut self.records[self.delivered..] {
            record.range = self.spare.append(&self.bytes.memory[record.range.clone()]);
        }
        self.records.drain(..self.delivered);
        std::mem::swap(&mut self.bytes, &mut self.spare);
        self.delivered = 0;
    }

    /// Reads all buffers, each until it is empty or its share of the pass is used. Returns the time
    /// up to which all records have been read, and true if records were left.
    fn drain_buffers(&mut self) -> Result<(u64, bool), TraceError> {
        let pass_start = now_ns();
        let (mut until, mut records_left) = (pass_start, false);
        let share = PASS_BYTES / self.buffers.len().max(1);
        for number in 0..self.buffers.len() {
            let limit = self.bytes.used + share;
            loop {
                if self.bytes.used > limit {
                    // The next record of the buffer is not older than the last one read.
                    until = until.min(self.records.last().map_or(0, |record| record.time_ns));
                    records_left = true;
                    break;
                }
                match rustix::io::read(
                    &self.buffers[number],
                    self.bytes.free_space(self.layout.bytes),
                ) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(bytes) => self.decode_page(bytes),
                    Err(Errno::INTR) => {}
                    Err(error) => {
                        let path = std::path::Path::new("trace_pipe_raw");
                        return Err(TraceError::io("read", path)(error.into()));
                    }
                }
            }
        }
        Ok((until, records_left))
    }

    /// Decodes a page that was read into the end of the buffer.
    fn decode_page(&mut self, bytes: usize) {
        let begin = self.bytes.used;
        let records = self.layout.records(&self.bytes.memory[begin..begin + bytes]);
        self.missed += records.missed;
        self.bytes.used += records.end;
        self.records.extend(records.map(|(time_ns, Range { start, end })| RawRecord {
            time_ns,
            range: begin + start..begin + end,
        }));
    }
}
