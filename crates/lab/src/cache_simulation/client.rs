//! One client of a simulation. It has one request at a time, split into the pieces that the NBD
//! server uses.

use super::SimulationError;
use crate::trace::Op;
use larder_core::cache::Cache;
use larder_core::clock::{Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::request::{
    self, Event, ReadRequest, RequestId, RequestOp, Submitted, WRITE_PIECE_BYTES, ZeroPayload,
    next_write_piece,
};
use larder_core::store::StoreError;
use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::Range;

/// The requests of a client on one volume.
pub(super) type Session = request::Session<NoFrames, ZeroPayload, ()>;

/// A request to one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index of the volume.
    pub volume: usize,
    /// The operation.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; the range is inside the volume.
    pub len: u64,
}

/// A request as a front end gives it to the engine, with all of its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRequest {
    /// Index of the volume.
    pub volume: usize,
    /// The request.
    pub request: request::Request,
    /// The byte ranges of a write in several parts; empty if it is submitted as a whole.
    pub parts: VecDeque<Range<u64>>,
}

impl Request {
    /// Returns the request of the engine, as the NBD server makes it.
    pub(super) fn of_engine(&self) -> EngineRequest {
        let op = match self.op {
            Op::Read => RequestOp::Read,
            Op::Write => RequestOp::Write,
            Op::Flush => RequestOp::Flush,
            Op::Discard => RequestOp::Discard,
            Op::Zero => RequestOp::Zero { keep_allocated: false },
        };
        let bytes = self.offset..self.offset + self.len;
        let is_whole =
            op != RequestOp::Write || next_write_piece(&bytes, WRITE_PIECE_BYTES) == bytes;
        let parts = if is_whole { VecDeque::new() } else { [bytes.clone()].into() };
        let request = request::Request::new(op, bytes);
        EngineRequest { volume: self.volume, request, parts }
    }

    /// Returns the bytes that the request transfers: 0 unless it reads or writes.
    #[must_use]
    pub fn transferred(&self) -> u64 {
        if self.op.transfers() { self.len } else { 0 }
    }
}

/// A request in flight.
#[derive(Debug)]
struct Job {
    volume: usize,
    op: RequestOp,
    /// A write in several parts, and the bytes that are not pushed yet.
    unpushed: Option<(RequestId, VecDeque<Range<u64>>)>,
}

impl Job {
    /// Pushes the parts of a write until one is stalled, and finishes the write after the last one.
    fn push_parts(&mut self, session: &mut Session, cache: &Cache<NoFrames>, now: Nanos) {
        let Some((id, unpushed)) = &mut self.unpushed else { return };
        while let Some(part) = unpushed.front_mut()
            && !session.is_stalled()
        {
            let piece = next_write_piece(part, WRITE_PIECE_BYTES);
            let zeros = ZeroPayload(usize::try_from(piece.end - piece.start).expect("a piece"));
            session.push(cache, now, *id, piece.start, zeros);
            part.start = piece.end;
            if part.is_empty() {
                unpushed.pop_front();
            }
        }
        if unpushed.is_empty() {
            session.finish(cache, now, *id);
            self.unpushed = None;
        }
    }
}

/// One client, with a session on each volume.
#[derive(Debug)]
pub(super) struct Client {
    sessions: Vec<Session>,
    job: Option<Job>,
    /// Bytes that its current or last request transfers.
    transferred: u64,
    /// Time of its last reply.
    answered_at: Option<Nanos>,
}

/// Time that a client or a front end needs for a request: a part for each request, and a part for
/// its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTime {
    /// Nanoseconds for each request.
    pub fixed: Nanos,
    /// Rate of the bytes that a read or write transfers; `None` if they take no time.
    pub bytes_per_s: Option<NonZero<u64>>,
}

impl RequestTime {
    /// Returns the nanoseconds for a request that transfers these bytes.
    #[must_use]
    pub fn of(&self, bytes: u64) -> Nanos {
        let transfer = self
            .bytes_per_s
            .map_or(0, |per_s| u128::from(bytes) * u128::from(SECOND) / u128::from(per_s.get()));
        self.fixed.saturating_add(Nanos::try_from(transfer).unwrap_or(Nanos::MAX))
    }
}

/// State of a client after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientState {
    /// The client has no request.
    Idle,
    /// The client waits for the store or for free frames.
    Waiting,
    /// The client waits until this time.
    WaitingUntil(Nanos),
}

impl Client {
    pub(super) fn new(sessions: Vec<Session>) -> Self {
        Client { sessions, job: None, transferred: 0, answered_at: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Returns the volume of its request.
    pub(super) fn volume(&self) -> Option<usize> {
        self.job.as_ref().map(|job| job.volume)
    }

    /// Returns the time of its next request, if it is idle: `think` after the last reply.
    pub(super) fn ready_at(&self, think: RequestTime) -> Option<Nanos> {
        let ready = |at: Nanos| at.saturating_add(think.of(self.transferred));
        self.is_idle().then(|| self.answered_at.map_or(0, ready))
    }

    /// Starts a request on the idle client, and advances it as far as possible now.
    pub(super) fn begin(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        EngineRequest { volume, request, parts }: EngineRequest,
    ) -> Result<ClientState, SimulationError> {
        debug_assert!(self.is_idle(), "one request at a time");
        let op = request.op;
        let transfers = matches!(op, RequestOp::Read | RequestOp::Write);
        self.transferred = if transfers { request.len } else { 0 };
        let session = &mut self.sessions[volume];
        let mut unpushed = None;
        if parts.is_empty() {
            let len = if op == RequestOp::Write { request.len } else { 0 };
            let zeros = ZeroPayload(usize::try_from(len).expect("at most a piece"));
            if let Submitted::Done(done) = session.submit(cache, now, request, zeros, || ()) {
                session.record_latency(op, 0);
                return self.finish_request(cache, now, volume, done.data, None);
            }
        } else {
            unpushed = Some((session.begin(now, request, ()), parts));
        }
        self.job = Some(Job { volume, op, unpushed });
        self.advance(cache, now)
    }

    /// Advances the request as far as possible now.
    pub(super) fn advance(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
    ) -> Result<ClientState, SimulationError> {
        while let Some(job) = &mut self.job {
            let (volume, op) = (job.volume, job.op);
            let session = &mut self.sessions[volume];
            session.advance(cache, now);
            if session.is_stalled() {
                session.retry(cache, now);
            }
            job.push_parts(session, cache, now);
            while let Some(event) = session.poll_event() {
                match event {
                    Event::Piece(_, read) => session.release(cache, now, read),
                    Event::End(reply) => {
                        session.record_latency(op, now.saturating_sub(reply.started_at));
                        return self.finish_request(cache, now, volume, reply.data, reply.error);
                    }
                }
            }
            // The release of a piece may have woken an operation that waited for its frames.
            if !session.has_completions() {
                let next = session.next_reply_at();
                return Ok(next.map_or(ClientState::Waiting, ClientState::WaitingUntil));
            }
        }
        Ok(ClientState::Idle)
    }

    fn finish_request(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        volume: usize,
        data: Option<Box<ReadRequest<NoFrames>>>,
        error: Option<StoreError>,
    ) -> Result<ClientState, SimulationError> {
        if let Some(read) = data {
            self.sessions[volume].release(cache, now, read);
        }
        (self.job, self.answered_at) = (None, Some(now));
        error.map_or(Ok(ClientState::Idle), |error| Err(SimulationError(error.to_string())))
    }

    /// Cancels the request in flight, and closes the sessions.
    pub(super) fn close(self, cache: &Cache<NoFrames>) {
        for session in self.sessions {
            session.close(cache);
        }
    }
}
