//! Requests that were not finished at once, and their parts.
//!
//! A request of a client may be more than one call on the cache: a large read goes piece by piece,
//! a zeroing has ragged ends. Each such call is a part; its index is the token of its completions.

use crate::frames::ArenaFrames;
use crate::front::nbd::wire::{self, Errno};
use crate::front::spare::Spare;
use larder_core::clock::Nanos;
use larder_core::counters::Classes;
use larder_core::request::{Assembly, WriteTask};
use larder_core::store::{StoreError, StoreErrorKind, StoreOpKind};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// Requests of one connection at a time, and parts of them; a client with more of them under way
/// waits. A large read, or one that only fills the cache, may have no part for a while.
const PARTS_MAX: usize = 512;
/// Bytes of writes that wait for room or for a fill, kept here so that other requests can go on.
const PARKED_BYTES_MAX: usize = 1 << 20;

/// Why a request failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) errno: Errno,
    pub(super) message: String,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let errno = match error.kind {
            StoreErrorKind::NoSpace => Errno::NoSpace,
            StoreErrorKind::ReadOnly => Errno::Perm,
            StoreErrorKind::Unsupported => Errno::NotSup,
            StoreErrorKind::Io
            | StoreErrorKind::Short
            | StoreErrorKind::Gone
            | StoreErrorKind::Away
            | StoreErrorKind::Busy => Errno::Io,
        };
        Failure { errno, message: format!("failed to {error}") }
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Request {
    /// As the client asked it.
    pub(super) asked: wire::Request,
    pub(super) started_at: Nanos,
    /// How the pages of the parts that are finished were classed.
    pub(super) classes: Classes,
    /// Parts that are not finished.
    pub(super) parts: u32,
    /// Whether its payload is still coming.
    pub(super) more: bool,
    /// What of a read has not been asked for yet.
    pub(super) rest: Range<u64>,
    /// Not to be answered before then.
    pub(super) not_before: Nanos,
    /// Whether the header of a simple reply in pieces has been queued.
    pub(super) begun: bool,
    /// Whether a flush has to follow.
    pub(super) then_flush: bool,
    pub(super) failure: Option<Failure>,
}

impl Request {
    pub(super) fn new(asked: &wire::Request, started_at: Nanos) -> Self {
        Request {
            asked: *asked,
            started_at,
            classes: Classes::default(),
            parts: 0,
            more: false,
            rest: 0..0,
            not_before: 0,
            begun: false,
            then_flush: false,
            failure: None,
        }
    }

    pub(super) fn fail(&mut self, failure: impl Into<Failure>) {
        self.failure.get_or_insert(failure.into());
    }
}

/// A call on the cache that was not finished at once.
#[derive(Debug)]
pub(super) enum Work {
    /// A piece of a read, to be sent or, for a client that only wants it cached, not.
    Read { assembly: Assembly<ArenaFrames> },
    /// A piece of a write; its bytes, until they are in the cache.
    Write { task: WriteTask, bytes: Option<Vec<u8>> },
    /// A flush.
    Flush,
    /// Whole blocks to discard or zero; kept for another try if it was stalled.
    Exclude { kind: StoreOpKind, blocks: Range<u64> },
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) request: usize,
    pub(super) work: Work,
}

/// Returns the bytes of the frames that a piece of a read pins.
fn pinned_bytes(assembly: &Assembly<ArenaFrames>) -> usize {
    let ragged = usize::try_from(assembly.offset % BLOCK_BYTES_U64).expect("below a block");
    (ragged + assembly.len as usize).next_multiple_of(BLOCK_BYTES)
}

/// A reply that is held back, the earliest first.
#[derive(Debug)]
struct Delayed(Nanos, Request);

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// Requests and parts by index.
#[derive(Debug, Default)]
pub(super) struct Parts {
    under_way: Vec<Option<Part>>,
    free: Vec<usize>,
    requests: Vec<Option<Request>>,
    free_requests: Vec<usize>,
    stalled: VecDeque<usize>,
    parked_bytes: usize,
    reading_bytes: usize,
    /// Large reads whose next piece waits until the client has taken those before.
    held: VecDeque<usize>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// Assemblies to be used again, with their memory.
    pub(super) spare: Spare,
    requests_len: usize,
}

impl Parts {
    pub(super) fn is_empty(&self) -> bool {
        self.requests_len == 0 && self.delayed.is_empty()
    }

    /// Whether more requests may be taken in.
    pub(super) fn has_room(&self) -> bool {
        self.stalled.is_empty()
            && self.parked_bytes <= PARKED_BYTES_MAX
            && self.under_way.len() - self.free.len() < PARTS_MAX
            && self.requests_len < PARTS_MAX
            && self.delayed.len() < PARTS_MAX
    }

    pub(super) fn open_request(&mut self, request: Request) -> usize {
        self.requests_len += 1;
        if let Some(index) = self.free_requests.pop() {
            self.requests[index] = Some(request);
            return index;
        }
        self.requests.push(Some(request));
        self.requests.len() - 1
    }

    pub(super) fn request(&mut self, index: usize) -> &mut Request {
        self.requests[index].as_mut().expect("a request under way")
    }

    /// Takes a request out if nothing of it is left to do.
    pub(super) fn close_request(&mut self, index: usize) -> Option<Request> {
        let request = self.request(index);
        if request.parts > 0 || request.more {
            return None;
        }
        self.free_requests.push(index);
        self.requests_len -= 1;
        self.requests[index].take()
    }

    /// The index that the next part will have: its token.
    pub(super) fn next_token(&mut self) -> u64 {
        if self.free.is_empty() {
            self.under_way.push(None);
            self.free.push(self.under_way.len() - 1);
        }
        *self.free.last().expect("one was added") as u64
    }

    /// Keeps a part under the token that [`Parts::next_token`] gave.
    pub(super) fn keep(&mut self, request: usize, work: Work) -> usize {
        if let Work::Write { bytes: Some(bytes), .. } = &work {
            self.parked_bytes += bytes.len();
        }
        if let Work::Read { assembly } = &work {
            self.reading_bytes += pinned_bytes(assembly);
        }
        let index = self.free.pop().expect("a token was asked for");
        debug_assert!(self.under_way[index].is_none(), "a token was used twice");
        self.under_way[index] = Some(Part { request, work });
        self.request(request).parts += 1;
        index
    }

    pub(super) fn part(&mut self, index: usize) -> &mut Part {
        self.under_way[index].as_mut().expect("a part under way")
    }

    /// Takes a part out; its request has one less.
    pub(super) fn finish(&mut self, index: usize) -> Part {
        let mut part = self.under_way[index].take().expect("a part under way");
        self.free.push(index);
        self.let_go(&mut part);
        if let Work::Read { assembly } = &part.work {
            self.reading_bytes -= pinned_bytes(assembly);
        }
        self.request(part.request).parts -= 1;
        part
    }

    /// Drops the bytes of a write that are in the cache.
    fn let_go(&mut self, part: &mut Part) {
        if let Work::Write { bytes, .. } = &mut part.work
            && let Some(bytes) = bytes.take()
        {
            self.parked_bytes -= bytes.len();
        }
    }

    /// Drops the bytes of a write part that are in the cache.
    pub(super) fn unpark(&mut self, index: usize) {
        let Some(mut part) = self.under_way[index].take() else { return };
        self.let_go(&mut part);
        self.under_way[index] = Some(part);
    }

    pub(super) fn stall(&mut self, part: usize) {
        if !self.stalled.contains(&part) {
            self.stalled.push_back(part);
        }
    }

    pub(super) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    pub(super) fn take_stalled(&mut self) -> VecDeque<usize> {
        std::mem::take(&mut self.stalled)
    }

    /// Returns the bytes of the frames that pieces of reads in flight pin, or will pin.
    pub(super) fn reading_bytes(&self) -> usize {
        self.reading_bytes
    }

    pub(super) fn hold(&mut self, request: usize) {
        self.held.push_back(request);
    }

    /// Returns the number of large reads that wait.
    pub(super) fn held_len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn take_held(&mut self) -> Option<usize> {
        self.held.pop_front()
    }

    pub(super) fn delay(&mut self, until: Nanos, request: Request) {
        self.delayed.push(Reverse(Delayed(until, request)));
    }

    pub(super) fn next_delayed(&self) -> Option<Nanos> {
        self.delayed.peek().map(|Reverse(Delayed(at, _))| *at)
    }

    pub(super) fn take_delayed(&mut self, now: Nanos) -> Option<Request> {
        if self.next_delayed()? > now {
            return None;
        }
        self.delayed.pop().map(|Reverse(Delayed(_, request))| request)
    }

    /// Gives up everything, after the lane was closed.
    pub(super) fn abandon(&mut self, frames: &ArenaFrames) {
        for part in self.under_way.iter_mut().flatten() {
            if let Work::Read { assembly } = &mut part.work {
                assembly.abandon(frames);
            }
        }
        self.under_way.clear();
    }
}
