//! `larder serve --record`: what clients ask for becomes a trace.
//!
//! The threads of the connections put what they answered into rings; one thread here drains them,
//! orders requests by their arrival and appends them to the file. Invariants: serving never waits
//! for recording, and a recording that fails stops and leaves the volumes served; a killed process
//! loses no more than what arrived in its last [`HOLD`] and [`CUT`]; memory is bounded, but for the
//! file's index of 40 bytes for each second with a request.

use larder_core::clock::{Clock, Nanos, SECOND};
use larder_core::counters::Class;
use larder_io::fault::{self, Thread};
use larder_io::front::observe::{Event, EventReceiver, Observer, Operation};
use larder_lab::trace::ltr::{BLOCK_RECORDS_MAX, Writer, WriterOptions};
use larder_lab::trace::{NameOf, Op, Record};
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// How often rings are looked at that are not half full.
const ROUND: Duration = Duration::from_millis(250);
/// A request is kept back for so long before it is written, so that one that arrived earlier and
/// was answered later comes before it.
const HOLD: Nanos = 2 * SECOND;
/// What was written becomes a block of its own after so long.
const CUT: Nanos = SECOND;
/// The most records that are kept back from one round to the next.
const HELD_MAX: usize = BLOCK_RECORDS_MAX;

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Requests in the file.
    pub(super) requests: u64,
    /// Requests that were answered and are not in it.
    pub(super) lost: u64,
}

/// What the threads share.
struct Shared {
    /// None once the file could not be written, since nothing is recorded any more.
    new: Mutex<Option<New>>,
    recorder: OnceLock<std::thread::Thread>,
    stopping: AtomicBool,
}

/// What the recorder has not seen yet.
struct New {
    /// The exports, whose numbers are those of the trace's volumes. One that comes back under the
    /// same name has the same number.
    volumes: Vec<String>,
    /// So many of them are named in the file.
    named: usize,
    /// Rings of connections.
    rings: Vec<(u32, EventReceiver)>,
}

impl Shared {
    /// Returns the rings and names that the recorder has not collected yet. A recorder that has
    /// panicked must not keep connections from being served.
    fn unseen(&self) -> MutexGuard<'_, Option<New>> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Shared {
    fn connected(&self, export: &str, events: EventReceiver) {
        // Without a recorder the ring is dropped, which tells the connection.
        if let Some(new) = &mut *self.unseen() {
            let number = new.volumes.iter().position(|volume| volume == export);
            let number = number.unwrap_or_else(|| {
                new.volumes.push(export.to_owned());
                new.volumes.len() - 1
            });
            new.rings.push((u32::try_from(number).expect("far fewer exports"), events));
        }
    }

    fn wake(&self) {
        if let Some(recorder) = self.recorder.get() {
            recorder.unpark();
        }
    }
}

/// A recording under way.
pub(super) struct Recording {
    shared: Arc<Shared>,
    thread: Thread<io::Result<Recorded>>,
}

impl Recording {
    /// Begins a trace of these exports in `to`; times are those of `clock`, from now on.
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
            writer.name(NameOf::Volume, number, name)?;
        }
        writer.cut()?;
        let shared = Arc::new(Shared {
            new: Mutex::new(Some(New { named: volumes.len(), volumes, rings: Vec::new() })),
            recorder: OnceLock::new(),
            stopping: AtomicBool::new(false),
        });
        let begun = clock.now();
        let (held, sum) = (Vec::new(), Recorded::default());
        let keeper = RecorderThread { writer, clock, begun, cut_at: begun, held, sum };
        let thread = {
            let (shared, shared_at_end) = (Arc::clone(&shared), Arc::clone(&shared));
            let record = move || keeper.keep(&shared).map(Ok);
            let failed = move |error: &dyn fmt::Display| {
                shared_at_end.unseen().take();
                warn(error);
                Err(io::Error::other(error.to_string()))
            };
            fault::spawn_fallible("record", None, record, failed)?
        };
        shared.recorder.set(thread.thread().clone()).expect("set once");
        Ok(Recording { shared, thread })
    }

    /// Whom the server tells.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.shared) as Arc<dyn Observer>
    }

    /// Ends the trace, once all connections have ended. Says what was recorded, or why not.
    pub(super) fn finish(self) -> io::Result<Recorded> {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        self.thread.join()
    }
}

/// What the recorder's thread has.
struct RecorderThread<W: Write> {
    writer: Writer<W>,
    clock: Arc<dyn Clock>,
    begun: Nanos,
    /// When the last block was ended.
    cut_at: Nanos,
    /// Records that are kept back, in the order of their times but for the latest.
    held: Vec<Record>,
    sum: Recorded,
}

impl<W: Write> RecorderThread<W> {
    fn keep(mut self, shared: &Shared) -> io::Result<Recorded> {
        let mut rings: Vec<(u32, EventReceiver)> = Vec::new();
        loop {
            std::thread::park_timeout(ROUND);
            let stopping = shared.stopping.load(Ordering::Acquire);
            fault::point("recorder", "trace");
            let mut names = Vec::new();
            if let Some(new) = &mut *shared.unseen() {
                rings.append(&mut new.rings);
                let fresh = (0..).zip(&new.volumes).skip(new.named);
                names.extend(fresh.map(|(number, name)| (number, name.clone())));
                new.named = new.volumes.len();
            }
            for (number, name) in names {
                self.writer.name(NameOf::Volume, number, &name)?;
            }
            rings.retain_mut(|(volume, ring)| {
                let over = ring.is_over();
                self.drain(*volume, ring);
                !over
            });
            if stopping {
                self.held.sort_by_key(|record| record.time_ns);
                self.write(self.held.len())?;
                self.writer.finish()?;
                return Ok(self.sum);
            }
            self.write_old()?;
        }
    }

    fn drain(&mut self, volume: u32, ring: &mut EventReceiver) {
        let (begun, held) = (self.begun, &mut self.held);
        ring.drain(|event| held.push(record(&event, volume, begun)));
        let lost = ring.take_lost();
        self.sum.lost += lost;
        self.writer.lost(lost);
    }

    /// Writes what has been kept back for long enough, and now and then ends a block, so that it
    /// survives the process.
    fn write_old(&mut self) -> io::Result<()> {
        self.held.sort_by_key(|record| record.time_ns);
        let now = self.clock.now();
        let end = now.saturating_sub(self.begun).saturating_sub(HOLD);
        let old = self.held.partition_point(|record| record.time_ns < end);
        self.write(old.max(self.held.len().saturating_sub(HELD_MAX)))?;
        if now.saturating_sub(self.cut_at) >= CUT {
            self.cut_at = now;
            self.writer.cut()?;
        }
        Ok(())
    }

    fn write(&mut self, count: usize) -> io::Result<()> {
        self.writer.append(&self.held[..count])?;
        self.held.drain(..count);
        self.sum.requests += count as u64;
        Ok(())
    }
}

fn record(event: &Event, volume: u32, begun: Nanos) -> Record {
    Record {
        time_ns: event.at.saturating_sub(begun),
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
