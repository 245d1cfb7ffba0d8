//! One client of a rehearsal: a request at a time, in the pieces in which the NBD server takes it.

use super::RehearsalError;
use crate::trace::Op;
use larder_core::cache::Cache;
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::request::{
    self, Event, ReadRequest, RequestId, RequestOp, Submitted, WRITE_PIECE_BYTES, Zeros,
    next_write_piece,
};
use larder_core::store::StoreError;
use std::ops::Range;

/// The requests of a client on one volume.
pub(super) type Session = request::Session<NoFrames, Zeros, ()>;

/// A request to one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index of the volume.
    pub volume: usize,
    /// The operation.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; inside the volume.
    pub len: u64,
}

/// A request in flight.
#[derive(Debug)]
struct Job {
    volume: usize,
    op: RequestOp,
    /// A write of several pieces, and the bytes that are still to be written.
    rest: Option<(RequestId, Range<u64>)>,
}

/// One client, with a session on each volume.
#[derive(Debug)]
pub(super) struct Client {
    sessions: Vec<Session>,
    job: Option<Job>,
    /// When its last request was answered.
    answered_at: Option<Nanos>,
}

/// State of a client after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// It has no request.
    Idle,
    /// It waits for the store or for room.
    Waits,
    /// It waits for this time.
    Until(Nanos),
}

impl Client {
    pub(super) fn new(sessions: Vec<Session>) -> Self {
        Client { sessions, job: None, answered_at: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Returns when it makes its next request, if it has none: `think` after the last answer.
    pub(super) fn ready_at(&self, think: Nanos) -> Option<Nanos> {
        self.is_idle().then(|| self.answered_at.map_or(0, |at| at + think))
    }

    /// Takes a request, and continues it as far as possible now; the client is idle.
    pub(super) fn begin(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        request: &Request,
    ) -> Result<Moved, RehearsalError> {
        debug_assert!(self.is_idle(), "one request at a time");
        let bytes = request.offset..request.offset + request.len;
        let op = match request.op {
            Op::Read => RequestOp::Read,
            Op::Write => RequestOp::Write,
            Op::Flush => RequestOp::Flush,
            Op::Discard => RequestOp::Discard,
            Op::Zero => RequestOp::Zero { keep_allocated: false },
        };
        let session = &mut self.sessions[request.volume];
        let wanted = request::Request::new(op, bytes.clone());
        let mut rest = None;
        if request.op == Op::Write && next_write_piece(&bytes, WRITE_PIECE_BYTES) != bytes {
            rest = Some((session.begin(now, wanted, ()), bytes));
        } else {
            let len = if request.op == Op::Write { request.len } else { 0 };
            let zeros = Zeros(usize::try_from(len).expect("at most a piece"));
            if let Submitted::Done(done) = session.submit(cache, now, wanted, zeros, || ()) {
                session.record_latency(op, 0);
                return self.answered(cache, now, request.volume, done.data, None);
            }
        }
        self.job = Some(Job { volume: request.volume, op, rest });
        self.advance(cache, now)
    }

    /// Continues the request as far as possible now.
    pub(super) fn advance(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
    ) -> Result<Moved, RehearsalError> {
        let Some(job) = &mut self.job else { return Ok(Moved::Idle) };
        let (volume, op) = (job.volume, job.op);
        let session = &mut self.sessions[volume];
        session.advance(cache, now);
        if session.is_stalled() {
            session.retry(cache, now);
        }
        if let Some((id, rest)) = &mut job.rest {
            while !rest.is_empty() && !session.is_stalled() {
                let piece = next_write_piece(rest, WRITE_PIECE_BYTES);
                let zeros = Zeros(usize::try_from(piece.end - piece.start).expect("a piece"));
                session.push(cache, now, *id, piece.start, zeros);
                rest.start = piece.end;
            }
            if rest.is_empty() {
                session.finish(cache, now, *id);
                job.rest = None;
            }
        }
        while let Some(event) = session.poll_event() {
            match event {
                Event::Piece(_, read) => session.release(cache, now, read),
                Event::End(reply) => {
                    session.record_latency(op, now.saturating_sub(reply.started_at));
                    return self.answered(cache, now, volume, reply.data, reply.error);
                }
            }
        }
        Ok(session.next_reply_at().map_or(Moved::Waits, Moved::Until))
    }

    fn answered(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        volume: usize,
        data: Option<Box<ReadRequest<NoFrames>>>,
        error: Option<StoreError>,
    ) -> Result<Moved, RehearsalError> {
        if let Some(read) = data {
            self.sessions[volume].release(cache, now, read);
        }
        (self.job, self.answered_at) = (None, Some(now));
        error.map_or(Ok(Moved::Idle), |error| Err(RehearsalError(error.to_string())))
    }

    /// Cancels the request in flight, and closes the sessions.
    pub(super) fn close(self, cache: &Cache<NoFrames>) {
        for session in self.sessions {
            session.close(cache);
        }
    }
}
