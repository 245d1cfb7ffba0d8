//! One client of a simulation: a connection with one or more requests in flight, split into the
//! pieces that the NBD server uses.

use super::SimulationError;
use crate::trace::Op;
use larder_core::cache::Cache;
use larder_core::clock::{Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::request::{
    self, Event, ReadRequest, RequestId, RequestOp, Submitted, WRITE_PIECE_BYTES, ZeroPayload,
    next_write_piece,
};
use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::Range;

/// The requests of a client on one volume.
pub(super) type Session = request::Session<NoFrames, ZeroPayload, Sent>;

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
    /// The number under which its end is reported, if that is wanted.
    pub tag: Option<u64>,
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
        EngineRequest { volume: self.volume, request, parts, tag: None }
    }

    /// Returns the bytes that the request transfers: 0 unless it reads or writes.
    #[must_use]
    pub fn transferred(&self) -> u64 {
        if self.op.transfers() { self.len } else { 0 }
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    op: RequestOp,
    /// Bytes that it transfers.
    transferred: u64,
    tag: Option<u64>,
}

/// A write in several parts that are not all pushed.
#[derive(Debug)]
struct PartialWrite {
    volume: usize,
    id: RequestId,
    unpushed: VecDeque<Range<u64>>,
}

impl PartialWrite {
    /// Pushes parts until one is stalled, and finishes the write after the last one. Returns true
    /// if that is done.
    fn push(&mut self, session: &mut Session, cache: &Cache<NoFrames>, now: Nanos) -> bool {
        while let Some(part) = self.unpushed.front_mut()
            && !session.is_stalled()
        {
            let piece = next_write_piece(part, WRITE_PIECE_BYTES);
            let zeros = ZeroPayload(usize::try_from(piece.end - piece.start).expect("a piece"));
            session.push(cache, now, self.id, piece.start, zeros);
            part.start = piece.end;
            if part.is_empty() {
                self.unpushed.pop_front();
            }
        }
        if self.unpushed.is_empty() {
            session.finish(cache, now, self.id);
        }
        self.unpushed.is_empty()
    }
}

/// A place for a request that is not in flight.
#[derive(Clone, Copy, Debug, Default)]
struct FreePlace {
    /// Bytes that its last request transferred.
    transferred: u64,
    /// Time of the last reply.
    answered_at: Option<Nanos>,
    /// Earliest time of the next request.
    paused_until: Nanos,
}

impl FreePlace {
    /// Returns the time of the next request: `think` after the last reply.
    fn ready_at(&self, think: RequestTime) -> Nanos {
        let ready_at =
            self.answered_at.map_or(0, |at| at.saturating_add(think.of(self.transferred)));
        ready_at.max(self.paused_until)
    }
}

/// One client, with a session on each volume.
#[derive(Debug)]
pub(super) struct Client {
    sessions: Vec<Session>,
    /// Indices of the volumes with requests in flight.
    busy: Vec<usize>,
    partial_writes: Vec<PartialWrite>,
    /// The places of requests that are not in flight.
    free: Vec<FreePlace>,
    /// Tags and times of requests that have ended.
    ended: Vec<(u64, Nanos)>,
    /// Time from the end of a request that has waited until its reply arrives.
    reply: Nanos,
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

/// Progress of the requests of a client on one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// At least one has ended.
    Ended,
    /// They wait for the store or for free frames.
    Waiting,
    /// They wait, until this time at the latest.
    WaitingUntil(Nanos),
}

impl Client {
    /// Creates a client that has up to `depth` requests in flight.
    pub(super) fn new(sessions: Vec<Session>, depth: usize) -> Self {
        let free = vec![FreePlace::default(); depth];
        Client {
            sessions,
            busy: Vec::new(),
            partial_writes: Vec::new(),
            free,
            ended: Vec::new(),
            reply: 0,
        }
    }

    /// Sets the time from the end of a request that has waited until its reply arrives.
    pub(super) fn set_reply_time(&mut self, reply: Nanos) {
        self.reply = reply;
    }

    /// Sets the earliest time of the next requests in the places that are free.
    pub(super) fn pause_until(&mut self, at: Nanos) {
        self.free.iter_mut().for_each(|place| place.paused_until = at);
    }

    /// Returns the tags of requests that have ended, and the times of their ends.
    pub(super) fn ended(&mut self) -> &mut Vec<(u64, Nanos)> {
        &mut self.ended
    }

    /// Returns true if no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.is_empty()
    }

    /// Returns the volumes with requests in flight.
    pub(super) fn busy(&self) -> &[usize] {
        &self.busy
    }

    /// Returns the time of its next request, unless as many as possible are in flight: `think`
    /// after a reply.
    pub(super) fn ready_at(&self, think: RequestTime) -> Option<Nanos> {
        self.free.iter().map(|place| place.ready_at(think)).min()
    }

    /// Chooses the place that is ready first for the next request.
    pub(super) fn choose_place(&mut self, think: RequestTime) {
        let places = self.free.iter().enumerate();
        if let Some((first, _)) = places.min_by_key(|(_, place)| place.ready_at(think)) {
            let last = self.free.len() - 1;
            self.free.swap(first, last);
        }
    }

    /// Starts a request in the chosen place, or in any, and advances it as far as possible now.
    pub(super) fn begin(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        EngineRequest { volume, request, parts, tag }: EngineRequest,
    ) -> Result<Progress, SimulationError> {
        let place = self.free.pop();
        place.expect("a client with room for a request");
        let op = request.op;
        let transfers = matches!(op, RequestOp::Read | RequestOp::Write);
        let sent = Sent { op, transferred: if transfers { request.len } else { 0 }, tag };
        let session = &mut self.sessions[volume];
        if parts.is_empty() {
            let len = if op == RequestOp::Write { request.len } else { 0 };
            let zeros = ZeroPayload(usize::try_from(len).expect("at most a piece"));
            if let Submitted::Done(done) = session.submit(cache, now, request, zeros, || sent) {
                session.record_latency(op, 0);
                self.end_request(cache, (now, now), (volume, sent), done.data);
                return Ok(Progress::Ended);
            }
        } else {
            let id = session.begin(now, request, sent);
            self.partial_writes.push(PartialWrite { volume, id, unpushed: parts });
        }
        if !self.busy.contains(&volume) {
            self.busy.push(volume);
        }
        self.advance(cache, now, volume)
    }

    /// Advances the requests on a volume as far as possible now.
    pub(super) fn advance(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        volume: usize,
    ) -> Result<Progress, SimulationError> {
        let mut has_ended = false;
        loop {
            let session = &mut self.sessions[volume];
            session.advance(cache, now);
            if session.is_stalled() {
                session.retry(cache, now);
            }
            self.partial_writes
                .retain_mut(|write| write.volume != volume || !write.push(session, cache, now));
            while let Some(event) = self.sessions[volume].poll_event() {
                match event {
                    Event::Piece(_, read) => self.sessions[volume].release(cache, now, read),
                    Event::End(reply) => {
                        let sent = reply.context;
                        let answered_at = now.saturating_add(self.reply);
                        let duration = answered_at.saturating_sub(reply.started_at);
                        self.sessions[volume].record_latency(sent.op, duration);
                        let times = (now, answered_at);
                        self.end_request(cache, times, (volume, sent), reply.data);
                        if let Some(error) = reply.error {
                            return Err(SimulationError(error.to_string()));
                        }
                        has_ended = true;
                    }
                }
            }
            // The release of a piece may have woken an operation that waited for its frames.
            if !self.sessions[volume].has_completions() {
                break;
            }
        }
        let session = &self.sessions[volume];
        if session.in_flight() == 0 {
            self.busy.retain(|it| *it != volume);
        }
        Ok(match session.next_deadline() {
            _ if has_ended => Progress::Ended,
            Some(at) => Progress::WaitingUntil(at),
            None => Progress::Waiting,
        })
    }

    /// Frees the place of a request that has been answered.
    fn end_request(
        &mut self,
        cache: &Cache<NoFrames>,
        (now, answered_at): (Nanos, Nanos),
        (volume, sent): (usize, Sent),
        data: Option<Box<ReadRequest<NoFrames>>>,
    ) {
        if let Some(read) = data {
            self.sessions[volume].release(cache, now, read);
        }
        let Sent { transferred, tag, .. } = sent;
        self.ended.extend(tag.map(|tag| (tag, now)));
        self.free.push(FreePlace { transferred, answered_at: Some(answered_at), paused_until: 0 });
    }

    /// Cancels the requests in flight, and closes the sessions.
    pub(super) fn close(self, cache: &Cache<NoFrames>) {
        for session in self.sessions {
            session.close(cache);
        }
    }
}
