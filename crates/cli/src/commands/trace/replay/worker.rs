//! One thread of a replay, with a connection to each export: takes requests from the feed, in the
//! order of the trace, and keeps some of them in flight.
//!
//! Invariants: no more than `depth` requests are in flight, over all connections of the thread; a
//! timed request is never sent before it is due; the first failure ends all threads.

use super::feed::{Piece, RequestSource};
use super::outcome::{Outcome, ReplayTotals};
use anyhow::{Context, Result};
use larder_io::nbd_client::{Client, Completion, Request};
use larder_lab::trace::Op;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a thread waits at a time, so that it notices when it is asked to stop.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// When requests are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When the replay began.
    pub(super) started: Instant,
    /// How many times as fast as recorded; none for as fast as answers come.
    pub(super) speed: Option<f64>,
}

impl Pace {
    /// When a request is due; none if at any time.
    fn due(&self, piece: &Piece) -> Option<Instant> {
        #[expect(clippy::cast_precision_loss, reason = "a nanosecond in 104 days")]
        let since = piece.due_ns as f64 / self.speed?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let since = Duration::from_nanos(since as u64);
        // What is due beyond the end of time is not sent before it either.
        self.started.checked_add(since).or_else(|| self.started.checked_add(Duration::MAX / 4))
    }
}

/// A request in flight.
#[derive(Debug)]
struct Flight {
    cookie: u64,
    piece: Piece,
    sent: Instant,
}

/// A connection and what is in flight on it.
#[derive(Debug)]
struct Connection {
    client: Client,
    flights: Vec<Flight>,
}

/// A thread's part of a replay.
pub(super) struct Worker<'a> {
    connections: Vec<Connection>,
    feed: &'a Mutex<RequestSource>,
    pace: Pace,
    depth: usize,
    stopped: &'a AtomicBool,
    in_flight: usize,
    /// A request that is not due yet.
    next: Option<Piece>,
    /// The feed has no more.
    ended: bool,
    /// Buffers that are not in flight.
    spare: Vec<Vec<u8>>,
    tally: ReplayTotals,
}

/// Runs the threads to their ends and adds up what they did; the first failure is the replay's.
pub(super) fn run_all(workers: Vec<Worker<'_>>, outcome: &mut Outcome) -> Result<()> {
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, (ReplayTotals, Result<()>)>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut result = Ok(());
    for (tally, ended) in ended {
        outcome.add(&tally);
        result = result.and(ended);
    }
    result
}

impl<'a> Worker<'a> {
    /// A worker with a client of each export.
    pub(super) fn new(
        clients: Vec<Client>,
        feed: &'a Mutex<RequestSource>,
        pace: Pace,
        depth: usize,
        stopped: &'a AtomicBool,
    ) -> Self {
        let connection = |client| Connection { client, flights: Vec::with_capacity(depth) };
        Worker {
            connections: clients.into_iter().map(connection).collect(),
            feed,
            pace,
            depth,
            stopped,
            in_flight: 0,
            next: None,
            ended: false,
            spare: Vec::new(),
            tally: ReplayTotals::default(),
        }
    }

    /// Replays until the feed ends, somebody asks to stop, or something fails; what was done.
    fn run(mut self) -> (ReplayTotals, Result<()>) {
        let replayed = self.drive();
        if replayed.is_err() {
            // The others stop too: a replay with a hole is none.
            self.stopped.store(true, Ordering::Release);
        }
        self.tally.stopped |= !self.ended || self.next.is_some();
        (self.tally, replayed)
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

    /// Sends what is due and may be in flight.
    fn send_due(&mut self) -> Result<()> {
        while self.in_flight < self.depth {
            let Some(piece) = self.take_next()? else { return Ok(()) };
            let now = Instant::now();
            if let Some(due) = self.pace.due(&piece) {
                if now < due {
                    self.next = Some(piece);
                    return Ok(());
                }
                self.tally.late(&piece, now - due);
            }
            self.send(piece, now)?;
        }
        Ok(())
    }

    /// The request that was not due before, else the next of the feed.
    fn take_next(&mut self) -> Result<Option<Piece>> {
        if self.next.is_none() && !self.ended {
            self.next = self.feed.lock().expect("no holder panics").next()?;
            self.ended = self.next.is_none();
        }
        Ok(self.next.take())
    }

    fn send(&mut self, piece: Piece, now: Instant) -> Result<()> {
        let len = u32::try_from(piece.len).expect("no longer than servers take");
        let request = match piece.op {
            Op::Read => Request::read(piece.offset, self.buffer(len)),
            Op::Write => {
                let mut data = self.buffer(len);
                fill(&piece, &mut data);
                Request::write(piece.offset, data)
            }
            Op::Flush => Request::flush(),
            Op::Discard => Request::trim(piece.offset, len),
            Op::Zero => Request::write_zeroes(piece.offset, len),
        };
        let connection = &mut self.connections[piece.target];
        let cookie = connection.client.submit(request)?;
        connection.flights.push(Flight { cookie, piece, sent: now });
        self.in_flight += 1;
        Ok(())
    }

    fn buffer(&mut self, len: u32) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(len as usize, 0);
        buffer
    }

    /// Takes in what has been answered; waits for it, but not beyond a time.
    fn receive(&mut self, until: Option<Instant>) -> Result<()> {
        let time = until.map(|until| until.saturating_duration_since(Instant::now()));
        if let [connection] = &mut self.connections[..] {
            let completion = match time {
                None => Some(connection.client.wait()?),
                Some(time) => connection.client.wait_for(time.min(WAIT_MAX))?,
            };
            completion.map_or(Ok(()), |completion| self.answered(0, completion))
        } else {
            self.receive_any(time)
        }
    }

    fn receive_any(&mut self, time: Option<Duration>) -> Result<()> {
        let mut any = false;
        for index in 0..self.connections.len() {
            while let connection = &mut self.connections[index]
                && !connection.flights.is_empty()
                && let Some(completion) = connection.client.wait_for(Duration::ZERO)?
            {
                any = true;
                self.answered(index, completion)?;
            }
        }
        if !any {
            let busy = self.connections.iter().filter(|connection| !connection.flights.is_empty());
            let clients: Vec<_> = busy.map(|connection| &connection.client).collect();
            Client::wait_any(&clients, Some(time.unwrap_or(WAIT_MAX).min(WAIT_MAX)))?;
        }
        Ok(())
    }

    /// Takes note of an answer.
    fn answered(&mut self, index: usize, completion: Completion) -> Result<()> {
        let flights = &mut self.connections[index].flights;
        let at = flights.iter().position(|flight| flight.cookie == completion.cookie);
        let flight = flights.swap_remove(at.context("match an answer with a request")?);
        self.in_flight -= 1;
        self.tally.answered(&flight.piece, flight.sent.elapsed(), completion.result.err());
        self.spare.push(completion.data);
        Ok(())
    }
}

/// The bytes of a write: in each 16 of them where they are, and which record of the trace wrote
/// them, both as little-endian words. So every write can be told from every other.
fn fill(piece: &Piece, data: &mut [u8]) {
    for (chunk, offset) in data.chunks_mut(16).zip((piece.offset..).step_by(16)) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&piece.number.to_le_bytes());
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}
