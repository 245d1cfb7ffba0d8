//! One client of a rehearsal: a request at a time, cut into pieces as the NBD server cuts them.

use super::RehearsalError;
use crate::trace::Op;
use larder_core::cache::{Cache, cut};
use larder_core::clock::Nanos;
use larder_core::counters::{Counter, Latency};
use larder_core::frames::NoFrames;
use larder_core::lane::{Completion, Lane};
use larder_core::request::{Assembly, READ_PIECE_BYTES, Status, WRITE_PIECE_BYTES, WriteTask};
use larder_core::store::StoreOpKind;
use larder_core::units::BLOCK_BYTES_U64;
use std::collections::VecDeque;
use std::ops::Range;

/// What is asked of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index of the volume.
    pub volume: usize,
    /// What.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; inside the volume.
    pub len: u64,
}

/// A part of a request that is one call on the cache.
#[derive(Debug)]
enum Piece {
    Read(Range<u64>),
    Write(Range<u64>),
    Flush,
    Exclude { kind: StoreOpKind, blocks: Range<u64> },
}

/// The piece at hand.
#[derive(Debug)]
enum State {
    Read(Assembly<NoFrames>),
    /// A write; whether it is to be asked (again): at first, when it stalled, and when what it
    /// needed has come.
    Write {
        task: WriteTask,
        ask: bool,
    },
    /// A flush that has been asked for.
    Flush,
    /// A discard or zeroing; whether it has been taken.
    Exclude {
        kind: StoreOpKind,
        blocks: Range<u64>,
        taken: bool,
    },
}

/// A request under way.
#[derive(Debug)]
struct Job {
    volume: usize,
    latency: Option<Latency>,
    started_at: Nanos,
    pieces: VecDeque<Piece>,
    state: Option<State>,
    /// Not before this is it answered, so that writers do not outrun the store.
    answer_at: Nanos,
}

/// One client, with a lane to each volume.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) lanes: Vec<Lane<NoFrames>>,
    job: Option<Job>,
    /// When its last request was answered.
    answered_at: Option<Nanos>,
    completions: Vec<Completion<NoFrames>>,
}

/// What moving a client came to.
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
    pub(super) fn new(lanes: Vec<Lane<NoFrames>>) -> Self {
        Client { lanes, job: None, answered_at: None, completions: Vec::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// When it makes its next request, if it has none: after an answer it thinks for so long.
    pub(super) fn ready_at(&self, think: Nanos) -> Option<Nanos> {
        self.is_idle().then(|| self.answered_at.map_or(0, |at| at + think))
    }

    /// Takes a request; the client is idle.
    pub(super) fn begin(&mut self, now: Nanos, request: &Request, length: u64) {
        debug_assert!(self.is_idle(), "one request at a time");
        let recorder = self.lanes[request.volume].recorder();
        let bytes = request.offset..request.offset + request.len;
        let (count, amount, latency) = match request.op {
            Op::Read => (Counter::ReadRequests, Some(Counter::ReadBytes), Some(Latency::Read)),
            Op::Write => (Counter::WriteRequests, Some(Counter::WriteBytes), Some(Latency::Write)),
            Op::Flush => (Counter::FlushRequests, None, Some(Latency::Flush)),
            Op::Discard => (Counter::DiscardRequests, None, None),
            Op::Zero => (Counter::ZeroRequests, None, None),
        };
        recorder.add(count, 1);
        if let Some(amount) = amount {
            recorder.add(amount, request.len);
        }
        self.job = Some(Job {
            volume: request.volume,
            latency,
            started_at: now,
            pieces: pieces(request.op, bytes, length),
            state: None,
            answer_at: now,
        });
    }

    /// Goes on with the request as far as it goes now.
    pub(super) fn advance(
        &mut self,
        cache: &Cache<NoFrames>,
        now: Nanos,
        zeros: &[u8],
    ) -> Result<Moved, RehearsalError> {
        let Client { lanes, job: slot, answered_at, completions } = self;
        let Some(job) = slot else { return Ok(Moved::Idle) };
        let lane = &mut lanes[job.volume];
        loop {
            if job.state.is_none() {
                let Some(piece) = job.pieces.pop_front() else { break };
                job.state = begin_piece(cache, lane, now, piece);
            }
            if let Some(state) = &mut job.state {
                lane.collect(completions);
                match state.advance(cache, lane, now, zeros, completions) {
                    Status::Done => {}
                    Status::DoneAt(at) => job.answer_at = job.answer_at.max(at),
                    Status::Pending | Status::Stalled => return Ok(Moved::Waits),
                    Status::Failed(error) => return Err(RehearsalError(error.to_string())),
                }
            }
            job.state = None;
        }
        if job.answer_at > now {
            return Ok(Moved::Until(job.answer_at));
        }
        if let Some(latency) = job.latency {
            lane.recorder().record(latency, now - job.started_at);
        }
        *slot = None;
        *answered_at = Some(now);
        Ok(Moved::Idle)
    }

    /// Gives up what is under way, and closes the lanes.
    pub(super) fn close(self, cache: &Cache<NoFrames>) {
        for lane in self.lanes {
            cache.close_lane(lane);
        }
        if let Some(Job { state: Some(State::Read(mut assembly)), .. }) = self.job {
            assembly.abandon(cache.frames());
        }
    }
}

/// The calls that a request is made of.
fn pieces(op: Op, bytes: Range<u64>, length: u64) -> VecDeque<Piece> {
    match op {
        Op::Read => cut_up(&bytes, READ_PIECE_BYTES, false).map(Piece::Read).collect(),
        Op::Write => cut_up(&bytes, WRITE_PIECE_BYTES, true).map(Piece::Write).collect(),
        Op::Flush => [Piece::Flush].into(),
        Op::Discard | Op::Zero if bytes.is_empty() => VecDeque::new(),
        Op::Discard | Op::Zero => {
            let parts = cut(bytes, length);
            let mut pieces = VecDeque::new();
            let kind = if op == Op::Zero {
                let ends = [parts.head, parts.tail].into_iter().filter(|range| !range.is_empty());
                pieces.extend(ends.map(Piece::Write));
                StoreOpKind::Zero { keep_allocated: false }
            } else {
                StoreOpKind::Discard
            };
            if !parts.blocks.is_empty() {
                pieces.push_back(Piece::Exclude { kind, blocks: parts.blocks });
            }
            pieces
        }
    }
}

/// Ranges of at most `most` bytes that make up `bytes`; if `whole_blocks`, all but the last end at
/// a border of blocks.
fn cut_up(bytes: &Range<u64>, most: u32, whole_blocks: bool) -> impl Iterator<Item = Range<u64>> {
    let Range { mut start, end } = *bytes;
    std::iter::from_fn(move || {
        let ragged = if whole_blocks { start % BLOCK_BYTES_U64 } else { 0 };
        let piece = start..end.min(start + u64::from(most) - ragged);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Begins a piece; none if it was done at once.
fn begin_piece(
    cache: &Cache<NoFrames>,
    lane: &mut Lane<NoFrames>,
    now: Nanos,
    piece: Piece,
) -> Option<State> {
    let len = |bytes: &Range<u64>| u32::try_from(bytes.end - bytes.start).expect("a piece");
    match piece {
        Piece::Read(bytes) => Some(State::Read(Assembly::new(0, bytes.start, len(&bytes)))),
        Piece::Write(bytes) => {
            let task = WriteTask::new(0, bytes.start, len(&bytes), false);
            Some(State::Write { task, ask: true })
        }
        Piece::Flush => (cache.flush(lane, now, 0) == Status::Pending).then_some(State::Flush),
        Piece::Exclude { kind, blocks } => Some(State::Exclude { kind, blocks, taken: false }),
    }
}

impl State {
    /// Takes in what came, and asks again where something may have changed.
    fn advance(
        &mut self,
        cache: &Cache<NoFrames>,
        lane: &mut Lane<NoFrames>,
        now: Nanos,
        zeros: &[u8],
        completions: &mut Vec<Completion<NoFrames>>,
    ) -> Status {
        let mut came = completions.drain(..).filter(|came| !matches!(came, Completion::Unstalled));
        match self {
            State::Read(assembly) => {
                for completion in came {
                    let status = assembly.absorb(cache.frames(), completion);
                    if matches!(status, Status::Failed(_)) {
                        return status;
                    }
                }
                if assembly.is_pending() {
                    return Status::Pending;
                }
                let status = cache.read(lane, now, assembly);
                if matches!(status, Status::Done | Status::DoneAt(_)) {
                    assembly.release(cache.frames());
                }
                status
            }
            State::Write { task, ask } => {
                let mut status = Status::Pending;
                for completion in came {
                    if matches!(completion, Completion::Continue { .. }) {
                        *ask = true;
                    } else {
                        status = cache.write_completed(lane, now, task, completion);
                    }
                }
                if *ask {
                    status = cache.write(lane, now, task, &zeros[..task.len as usize]);
                    *ask = status == Status::Stalled;
                }
                status
            }
            State::Flush => finished(came.next_back()),
            State::Exclude { kind, blocks, taken } => {
                if *taken {
                    return finished(came.next_back());
                }
                let status = cache.exclude(lane, now, *kind, blocks.clone(), 0);
                *taken = status != Status::Stalled;
                status
            }
        }
    }
}

fn finished(completion: Option<Completion<NoFrames>>) -> Status {
    match completion {
        Some(Completion::Finished { result: Ok(()), .. }) => Status::Done,
        Some(Completion::Finished { result: Err(error), .. }) => Status::Failed(error),
        _ => Status::Pending,
    }
}
