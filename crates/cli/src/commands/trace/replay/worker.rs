//! One thread of a replay, with a connection to each export: takes requests from the source, in the
//! order of the trace, and keeps some of them in flight.
//!
//! Invariants: no more than `depth` requests are in flight, over all connections of the thread; a
//! timed request is never sent before it is due; the first failure ends all threads.

use super::feed::{ReplayRequest, RequestSource};
use super::outcome::{Outcome, ReplayTotals};
use anyhow::{Context, Result};
use larder_io::nbd_client::{Client, Completion, Request};
use larder_lab::trace::Op;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time of one wait, after which a thread checks for a stop.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The timing of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Start of the replay.
    pub(super) started: Instant,
    /// Speed relative to the recording; `None` to send requests as fast as replies arrive.
    pub(super) speed: Option<f64>,
}

impl Pace {
    /// Returns the time at which a request is due; `None` if at any time.
    fn due(&self, request: &ReplayRequest) -> Option<Instant> {
        #[expect(clippy::cast_precision_loss, reason = "a nanosecond in 104 days")]
        let since = request.due_ns as f64 / self.speed?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let since = Duration::from_nanos(since as u64);
        // A time beyond the range of the clock is replaced by a far one.
        self.started.checked_add(since).or_else(|| self.started.checked_add(Duration::MAX / 4))
    }
}

/// A request in flight.
#[derive(Debug)]
struct RequestInFlight {
    cookie: u64,
    request: ReplayRequest,
    sent: Instant,
}

/// A connection and its requests in flight.
#[derive(Debug)]
struct Connection {
    client: Client,
    requests: Vec<RequestInFlight>,
}

/// State of one thread of a replay.
pub(super) struct Worker<'a> {
    connections: Vec<Connection>,
    source: &'a Mutex<RequestSource>,
    pace: Pace,
    depth: usize,
    stopped: &'a AtomicBool,
    in_flight: usize,
    /// A request that is not due yet.
    next: Option<ReplayRequest>,
    /// True if the source has no more requests.
    at_end: bool,
    /// Buffers that are not in flight.
    spare: Vec<Vec<u8>>,
    totals: ReplayTotals,
}

/// Runs the threads to their ends and sums up their results; returns the first failure.
pub(super) fn run_all(workers: Vec<Worker<'_>>, outcome: &mut Outcome) -> Result<()> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, (ReplayTotals, Result<()>)>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut result = Ok(());
    for (totals, thread_result) in results {
        outcome.add(&totals);
        result = result.and(thread_result);
    }
    result
}

impl<'a> Worker<'a> {
    /// Creates a worker with a client of each export.
    pub(super) fn new(
        clients: Vec<Client>,
        source: &'a Mutex<RequestSource>,
        pace: Pace,
        depth: usize,
        stopped: &'a AtomicBool,
    ) -> Self {
        let connection = |client| Connection { client, requests: Vec::with_capacity(depth) };
        Worker {
            connections: clients.into_iter().map(connection).collect(),
            source,
            pace,
            depth,
            stopped,
            in_flight: 0,
            next: None,
            at_end: false,
            spare: Vec::new(),
            totals: ReplayTotals::default(),
        }
    }

    /// Replays until the source ends, the user stops it, or a request fails; returns the results.
    fn run(mut self) -> (ReplayTotals, Result<()>) {
        let result = self.drive();
        if result.is_err() {
            // The other threads stop too: a replay with a gap is invalid.
            self.stopped.store(true, Ordering::Release);
        }
        self.totals.stopped |= !self.at_end || self.next.is_some();
        (self.totals, result)
    }

    fn drive(&mut self) -> Result<()> {
        while !self.stopped.load(Ordering::Acquire) {
            self.send_due()?;
            if self.in_flight > 0 {
                let until_due = self.next.as_ref().and_then(|next| self.pace.due(next));
                self.receive(until_due)?;
            } else if let Some(due) = self.next.as_ref().and_then(|next| self.pace.due(next)) {
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(WAIT_MAX));
            } else {
                return Ok(());
            }
        }
        while self.in_flight > 0 {
            self.receive(None)?;
        }
        Ok(())
    }

    /// Sends requests that are due, up to the depth.
    fn send_due(&mut self) -> Result<()> {
        while self.in_flight < self.depth {
            let Some(request) = self.take_next()? else { return Ok(()) };
            let now = Instant::now();
            if let Some(due) = self.pace.due(&request) {
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

    /// Returns the request that was not due before, else the next one of the source.
    fn take_next(&mut self) -> Result<Option<ReplayRequest>> {
        if self.next.is_none() && !self.at_end {
            self.next = self.source.lock().expect("no holder panics").next()?;
            self.at_end = self.next.is_none();
        }
        Ok(self.next.take())
    }

    fn send(&mut self, request: ReplayRequest, now: Instant) -> Result<()> {
        let len = u32::try_from(request.len).expect("no longer than servers take");
        let nbd_request = match request.op {
            Op::Read => Request::read(request.offset, self.buffer(len)),
            Op::Write => {
                let mut data = self.buffer(len);
                fill(&request, &mut data);
                Request::write(request.offset, data)
            }
            Op::Flush => Request::flush(),
            Op::Discard => Request::trim(request.offset, len),
            Op::Zero => Request::write_zeroes(request.offset, len),
        };
        let connection = &mut self.connections[request.target];
        let cookie = connection.client.submit(nbd_request)?;
        connection.requests.push(RequestInFlight { cookie, request, sent: now });
        self.in_flight += 1;
        Ok(())
    }

    fn buffer(&mut self, len: u32) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(len as usize, 0);
        buffer
    }

    /// Receives replies; waits for one, at most until the given time.
    fn receive(&mut self, until: Option<Instant>) -> Result<()> {
        let time = until.map(|until| until.saturating_duration_since(Instant::now()));
        if let [connection] = &mut self.connections[..] {
            let completion = match time {
                None => Some(connection.client.wait()?),
                Some(time) => connection.client.wait_for(time.min(WAIT_MAX))?,
            };
            completion.map_or(Ok(()), |completion| self.process_reply(0, completion))
        } else {
            self.receive_any(time)
        }
    }

    fn receive_any(&mut self, time: Option<Duration>) -> Result<()> {
        let mut received = false;
        for index in 0..self.connections.len() {
            while let connection = &mut self.connections[index]
                && !connection.requests.is_empty()
                && let Some(completion) = connection.client.wait_for(Duration::ZERO)?
            {
                received = true;
                self.process_reply(index, completion)?;
            }
        }
        if !received {
            let busy = self.connections.iter().filter(|connection| !connection.requests.is_empty());
            let clients: Vec<_> = busy.map(|connection| &connection.client).collect();
            Client::wait_any(&clients, Some(time.unwrap_or(WAIT_MAX).min(WAIT_MAX)))?;
        }
        Ok(())
    }

    /// Processes a reply.
    fn process_reply(&mut self, index: usize, completion: Completion) -> Result<()> {
        let requests = &mut self.connections[index].requests;
        let at = requests.iter().position(|it| it.cookie == completion.cookie);
        let done = requests.swap_remove(at.context("match an answer with a request")?);
        self.in_flight -= 1;
        self.totals.record_reply(&done.request, done.sent.elapsed(), completion.result.err());
        self.spare.push(completion.data);
        Ok(())
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
