//! `larder serve --record`: requests of clients as a trace.
//!
//! The connection threads put answered requests into rings; one recorder thread drains the rings,
//! orders requests by arrival and appends them to the file. Invariants: serving never waits for
//! recording, and a recording that fails stops while the volumes are still served; a killed process
//! loses only requests that arrived in its last [`REORDER_WINDOW`] and [`BLOCK_INTERVAL`]; memory
//! is bounded, except for the file's index of 40 bytes for each second with a request.

use crate::lock;
use larder_core::clock::{Clock, Nanos, SECOND};
use larder_core::counters::Class;
use larder_io::fault::{self, Thread};
use larder_io::front::observe::{Event, EventReceiver, Observer, Operation};
use larder_lab::trace::ltr::{BLOCK_RECORDS_MAX, Writer, WriterOptions};
use larder_lab::trace::{NameKind, Op, Record};
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

/// Interval at which rings are drained that are less than half full.
const DRAIN_INTERVAL: Duration = Duration::from_millis(250);
/// Time that a request is held back before it is written, so that a request that arrived earlier
/// and was answered later precedes it.
const REORDER_WINDOW: Nanos = 2 * SECOND;
/// Interval at which written records are completed as a block.
const BLOCK_INTERVAL: Nanos = SECOND;
/// Maximum number of records that are held back.
const PENDING_MAX: usize = BLOCK_RECORDS_MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordingSummary {
    /// Requests in the file.
    pub(super) requests: u64,
    /// Answered requests that are missing in the file.
    pub(super) lost: u64,
}

/// State shared by the recorder and the connections.
struct Shared {
    /// `None` after a failed write: the recording has stopped.
    registrations: Mutex<Option<Registrations>>,
    recorder: OnceLock<std::thread::Thread>,
    stopping: AtomicBool,
}

/// Registrations of exports and connections for the recorder.
struct Registrations {
    /// The exports, whose numbers are those of the trace's volumes. An export that is added again
    /// under the same name keeps its number.
    volumes: Vec<String>,
    /// Number of volumes whose names are in the file.
    named_count: usize,
    /// Rings of new connections.
    rings: Vec<(u32, EventReceiver)>,
}

impl Observer for Shared {
    fn connected(&self, export: &str, events: EventReceiver) {
        // Without a recorder the ring is dropped, which the connection detects.
        if let Some(registrations) = &mut *lock(&self.registrations) {
            let number = registrations.volumes.iter().position(|volume| volume == export);
            let number = number.unwrap_or_else(|| {
                registrations.volumes.push(export.to_owned());
                registrations.volumes.len() - 1
            });
            registrations.rings.push((u32::try_from(number).expect("far fewer exports"), events));
        }
    }

    fn wake(&self) {
        if let Some(recorder) = self.recorder.get() {
            recorder.unpark();
        }
    }
}

/// A running recording.
pub(super) struct Recording {
    shared: Arc<Shared>,
    thread: Thread<io::Result<RecordingSummary>>,
}

impl Recording {
    /// Starts a trace of these exports in `to`; times are those of `clock`, from now on.
    pub(super) fn start(
        to: impl Write + Send + 'static,
        volumes: Vec<String>,
        clock: Arc<dyn Clock>,
        warn: impl FnOnce(&dyn fmt::Display) + Send + 'static,
    ) -> io::Result<Self> {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begun_unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(0);
        let options = WriterOptions { begun_unix_ns, ..WriterOptions::default() };
        let mut writer = Writer::new(to, options)?;
        for (number, name) in (0..).zip(&volumes) {
            writer.name(NameKind::Volume, number, name)?;
        }
        writer.cut()?;
        let shared = Arc::new(Shared {
            registrations: Mutex::new(Some(Registrations {
                named_count: volumes.len(),
                volumes,
                rings: Vec::new(),
            })),
            recorder: OnceLock::new(),
            stopping: AtomicBool::new(false),
        });
        let started_at = clock.now();
        let (pending, summary) = (Vec::new(), RecordingSummary::default());
        let recorder =
            RecorderThread { writer, clock, started_at, cut_at: started_at, pending, summary };
        let thread = {
            let (shared, shared_at_end) = (Arc::clone(&shared), Arc::clone(&shared));
            let record = move || recorder.run(&shared).map(Ok);
            let failed = move |error: &dyn fmt::Display| {
                lock(&shared_at_end.registrations).take();
                warn(error);
                Err(io::Error::other(error.to_string()))
            };
            fault::spawn_fallible("record", None, record, failed)?
        };
        shared.recorder.set(thread.thread().clone()).expect("set once");
        Ok(Recording { shared, thread })
    }

    /// Returns the observer that the server notifies of requests.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.shared) as Arc<dyn Observer>
    }

    /// Ends the trace, once all connections have ended. Returns the summary of the recording, or
    /// its error.
    pub(super) fn finish(self) -> io::Result<RecordingSummary> {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        self.thread.join()
    }
}

/// State of the recorder thread.
struct RecorderThread<W: Write> {
    writer: Writer<W>,
    clock: Arc<dyn Clock>,
    started_at: Nanos,
    /// Time at which the last block was completed.
    cut_at: Nanos,
    /// Records that are held back, sorted by time except for the latest.
    pending: Vec<Record>,
    summary: RecordingSummary,
}

impl<W: Write> RecorderThread<W> {
    fn run(mut self, shared: &Shared) -> io::Result<RecordingSummary> {
        let mut rings: Vec<(u32, EventReceiver)> = Vec::new();
        loop {
            std::thread::park_timeout(DRAIN_INTERVAL);
            let stopping = shared.stopping.load(Ordering::Acquire);
            fault::point("recorder", "trace");
            let mut names = Vec::new();
            if let Some(registrations) = &mut *lock(&shared.registrations) {
                rings.append(&mut registrations.rings);
                let fresh = (0..).zip(&registrations.volumes).skip(registrations.named_count);
                names.extend(fresh.map(|(number, name)| (number, name.clone())));
                registrations.named_count = registrations.volumes.len();
            }
            for (number, name) in names {
                self.writer.name(NameKind::Volume, number, &name)?;
            }
            rings.retain_mut(|(volume, ring)| {
                let over = ring.is_over();
                self.drain(*volume, ring);
                !over
            });
            if stopping {
                self.pending.sort_by_key(|record| record.time_ns);
                self.write(self.pending.len())?;
                self.writer.finish()?;
                return Ok(self.summary);
            }
            self.write_old()?;
        }
    }

    fn drain(&mut self, volume: u32, ring: &mut EventReceiver) {
        let (started_at, pending) = (self.started_at, &mut self.pending);
        ring.drain(|event| pending.push(record(&event, volume, started_at)));
        let lost = ring.take_lost();
        self.summary.lost += lost;
        self.writer.lost(lost);
    }

    /// Writes the records that were held back for long enough, and periodically completes a block,
    /// so that it survives the process.
    fn write_old(&mut self) -> io::Result<()> {
        self.pending.sort_by_key(|record| record.time_ns);
        let now = self.clock.now();
        let end = now.saturating_sub(self.started_at).saturating_sub(REORDER_WINDOW);
        let old = self.pending.partition_point(|record| record.time_ns < end);
        self.write(old.max(self.pending.len().saturating_sub(PENDING_MAX)))?;
        if now.saturating_sub(self.cut_at) >= BLOCK_INTERVAL {
            self.cut_at = now;
            self.writer.cut()?;
        }
        Ok(())
    }

    fn write(&mut self, count: usize) -> io::Result<()> {
        self.writer.append(&self.pending[..count])?;
        self.pending.drain(..count);
        self.summary.requests += count as u64;
        Ok(())
    }
}

fn record(event: &Event, volume: u32, started_at: Nanos) -> Record {
    Record {
        time_ns: event.at.saturating_sub(started_at),
        offset: event.offset,
        len: u64::from(event.len),
        latency_ns: event.latency,
        volume,
        op: match event.operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush => Op::Flush,
            Operation::Trim => Op::Discard,
            Operation::Zero => Op::Zero,
        },
        class: event.class.map_or(0, Class::number),
        ..Record::default()
    }
}

#[cfg(test)]
mod tests;
