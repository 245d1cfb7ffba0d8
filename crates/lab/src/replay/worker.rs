//! One thread of a replay, with a connection to each export: takes requests from the source, in the
//! order of the trace, and keeps some of them in flight.
//!
//! Invariants: no more than `depth` requests are in flight, over all connections of the thread; a
//! timed request is never sent before it is due; the first failure ends all threads.

use super::ReplayError;
use super::outcome::{Outcome, ReplayTotals};
use super::requests::{ReplayRequest, RequestSource};
use crate::connection::{BlockRequest, Connection, Reply};
use crate::trace::Op;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time of one wait, after which a thread checks for a stop.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Maximum requests in flight of each thread.
    pub depth: usize,
    /// Speed relative to the recording; `None` to send requests as fast as replies arrive.
    pub speed: Option<f64>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    request: ReplayRequest,
    at: Instant,
}

/// State of one thread of a replay.
struct Worker<'a, C> {
    /// By export.
    connections: Vec<C>,
    source: &'a Mutex<RequestSource>,
    options: ReplayOptions,
    started: Instant,
    stopped: &'a AtomicBool,
    /// A request that is not due yet.
    next: Option<ReplayRequest>,
    /// True if the source has no more requests.
    at_end: bool,
    /// Buffers that are not in flight.
    spare: Vec<Vec<u8>>,
    totals: ReplayTotals,
}

/// Replays a source over the connections of each thread, until its end, until `stopped` is true, or
/// until the first failure, which is the result.
pub fn run<C: Connection<SentRequest>>(
    threads: Vec<Vec<C>>,
    source: RequestSource,
    options: ReplayOptions,
    stopped: &AtomicBool,
) -> (Outcome, Result<(), ReplayError>) {
    let mut outcome = Outcome::new(threads.len(), options);
    let (source, started) = (Mutex::new(source), Instant::now());
    let worker = |connections| Worker {
        connections,
        source: &source,
        options,
        started,
        stopped,
        next: None,
        at_end: false,
        spare: Vec::new(),
        totals: ReplayTotals::default(),
    };
    let mut result = Ok(());
    std::thread::scope(|scope| {
        let workers = threads.into_iter().map(worker);
        let threads: Vec<_> = workers.map(|worker| scope.spawn(|| worker.run())).collect();
        for thread in threads {
            let joined = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (totals, thread_result) = joined;
            outcome.add(&totals);
            if result.is_ok() {
                result = thread_result;
            }
        }
    });
    outcome.duration_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    outcome.counts = source.into_inner().expect("no holder panics").counts;
    (outcome, result)
}

impl<C: Connection<SentRequest>> Worker<'_, C> {
    /// Replays until the source ends, the user stops it, or a request fails; returns the results.
    fn run(mut self) -> (ReplayTotals, Result<(), ReplayError>) {
        let result = self.drive();
        if result.is_err() {
            // The other threads stop too: a replay with a gap is invalid.
            self.stopped.store(true, Ordering::Release);
        }
        self.totals.stopped |= !self.at_end || self.next.is_some();
        (self.totals, result)
    }

    fn drive(&mut self) -> Result<(), ReplayError> {
        while !self.stopped.load(Ordering::Acquire) {
            self.send_due()?;
            let due = self.next.as_ref().and_then(|next| self.due(next));
            if self.in_flight() > 0 {
                self.receive(due)?;
            } else if let Some(due) = due {
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(WAIT_MAX));
            } else {
                return Ok(());
            }
        }
        while self.in_flight() > 0 {
            self.receive(None)?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.connections.iter().map(|connection| connection.in_flight().len()).sum()
    }

    /// Returns the time at which a request is due; `None` if at any time.
    fn due(&self, request: &ReplayRequest) -> Option<Instant> {
        #[expect(clippy::cast_precision_loss, reason = "a nanosecond in 104 days")]
        let since = request.due_ns as f64 / self.options.speed?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let since = Duration::from_nanos(since as u64);
        // A time beyond the range of the clock is replaced by a far one.
        self.started.checked_add(since).or_else(|| self.started.checked_add(Duration::MAX / 4))
    }

    /// Sends requests that are due, up to the depth.
    fn send_due(&mut self) -> Result<(), ReplayError> {
        for _ in self.in_flight()..self.options.depth {
            if self.next.is_none() && !self.at_end {
                self.next = self.source.lock().expect("no holder panics").next()?;
                self.at_end = self.next.is_none();
            }
            let Some(request) = self.next.take() else { return Ok(()) };
            let now = Instant::now();
            if let Some(due) = self.due(&request) {
                if now < due {
                    self.next = Some(request);
                    return Ok(());
                }
                self.totals.record_delay(&request, now - due);
            }
            self.send(request, now)?;
        }
        Ok(())
    }

    fn send(&mut self, request: ReplayRequest, at: Instant) -> Result<(), ReplayError> {
        let ReplayRequest { op, offset, .. } = request;
        let len = u32::try_from(request.len).expect("no longer than servers take");
        let mut data = Vec::new();
        if op.transfers() {
            data = self.spare.pop().unwrap_or_default();
            data.resize(len as usize, 0);
        }
        if op == Op::Write {
            fill(&request, &mut data);
        }
        let block_request = BlockRequest { op, offset, len, fua: false, data };
        Ok(self.connections[request.export].submit(block_request, SentRequest { request, at })?)
    }

    /// Receives replies; waits for one, at most until the given time.
    fn receive(&mut self, until: Option<Instant>) -> Result<(), ReplayError> {
        let time = until.map(|until| until.saturating_duration_since(Instant::now()).min(WAIT_MAX));
        if let [connection] = &mut self.connections[..] {
            if let Some(reply) = connection.receive(time)? {
                self.process_reply(reply);
            }
            return Ok(());
        }
        let mut received = false;
        for index in 0..self.connections.len() {
            while let connection = &mut self.connections[index]
                && connection.in_flight().len() > 0
                && let Some(reply) = connection.receive(Some(Duration::ZERO))?
            {
                received = true;
                self.process_reply(reply);
            }
        }
        if !received {
            let busy =
                self.connections.iter().filter(|connection| connection.in_flight().len() > 0);
            C::wait_any(&busy.collect::<Vec<_>>(), time.unwrap_or(WAIT_MAX))?;
        }
        Ok(())
    }

    fn process_reply(&mut self, reply: Reply<SentRequest>) {
        let SentRequest { request, at } = reply.context;
        self.totals.record_reply(&request, at.elapsed(), reply.error);
        self.spare.push(reply.data);
    }
}

/// Fills the data of a write: each 16 bytes contain their offset and the number of their record, as
/// little-endian words, so that all writes are distinguishable.
fn fill(request: &ReplayRequest, data: &mut [u8]) {
    for (chunk, offset) in data.chunks_mut(16).zip((request.offset..).step_by(16)) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&request.number.to_le_bytes());
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}
