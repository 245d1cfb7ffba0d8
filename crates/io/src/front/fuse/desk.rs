//! What one thread has under way at one volume: its lane, the calls on the cache, and the requests
//! that they are parts of.
//!
//! A call's place is the token of its completions. Invariants: a request is answered once, when the
//! last of its calls is over and its time has come; what is given up is refused, so that nobody
//! waits for ever.

use super::files::VolumeFile;
use crate::call::{Call, Exclude, Flush, FlushRange, Mail, Write};
use crate::engine::{ArenaCache, ArenaLane};
use crate::frames::ArenaFrames;
use crate::front::observe::Watch;
use crate::front::spare::Spare;
use crate::store::files::SourceFile;
use larder_core::clock::Nanos;
use larder_core::counters::Classes;
use larder_core::lane::Completion;
use larder_core::request::{Assembly, Status};
use larder_core::store::{StoreError, StoreErrorKind};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a request asks for, as far as it takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
    Zero { keep_allocated: bool },
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) unique: u64,
    pub(super) kind: Kind,
    pub(super) started_at: Nanos,
    pub(super) offset: u64,
    /// Bytes that the answer will speak of.
    pub(super) len: u64,
    /// Calls that are not over.
    pub(super) calls: u32,
    /// What of a zeroing has not been asked for yet.
    pub(super) rest: Range<u64>,
    /// Blocks of a write that must be on stable storage before it is answered.
    pub(super) to_sync: Option<Range<u64>>,
    /// The file of a folder that it is about.
    file: Option<Arc<SourceFile>>,
    /// Not to be answered before then.
    pub(super) not_before: Nanos,
    pub(super) classes: Classes,
    pub(super) failure: Option<Errno>,
}

impl Request {
    pub(super) fn new(kind: Kind, unique: u64, offset: u64, len: u64, at: Nanos) -> Self {
        Request {
            unique,
            kind,
            started_at: at,
            offset,
            len,
            calls: 0,
            rest: 0..0,
            to_sync: None,
            file: None,
            not_before: 0,
            classes: Classes::default(),
            failure: None,
        }
    }

    /// Says which file of a folder it is about, if any.
    pub(super) fn about(mut self, file: Option<&Arc<SourceFile>>) -> Self {
        self.file = file.cloned();
        self
    }

    /// Counts it where its file is counted.
    pub(super) fn count(&self) {
        if let Some(file) = &self.file {
            file.count(self.classes);
            if self.kind == Kind::Write {
                file.write_over();
            }
        }
    }

    /// Notes a failure; the first one counts.
    pub(super) fn fail(&mut self, error: &StoreError) {
        tracing::warn!(%error, "a request failed");
        self.failure.get_or_insert(errno_of(error));
    }
}

/// What a program is told about an error of a store.
pub(super) fn errno_of(error: &StoreError) -> Errno {
    match error.kind {
        StoreErrorKind::NoSpace => Errno::NOSPC,
        StoreErrorKind::ReadOnly => Errno::ROFS,
        StoreErrorKind::Unsupported => Errno::OPNOTSUPP,
        StoreErrorKind::Io
        | StoreErrorKind::Short
        | StoreErrorKind::Gone
        | StoreErrorKind::Away
        | StoreErrorKind::Busy => Errno::IO,
    }
}

/// A call that was not over at once.
#[derive(Debug)]
pub(super) enum Work {
    Read(Assembly<ArenaFrames>),
    /// With the bytes that are not in the cache yet.
    Write(Write<Vec<u8>>),
    Flush(Flush),
    FlushRange(FlushRange),
    Exclude(Exclude),
}

impl Work {
    fn call(&mut self) -> &mut dyn Call {
        match self {
            Work::Read(read) => read,
            Work::Write(write) => write,
            Work::Flush(flush) => flush,
            Work::FlushRange(flush) => flush,
            Work::Exclude(exclude) => exclude,
        }
    }

    fn parked_bytes(&self) -> usize {
        match self {
            Work::Write(write) => write.bytes.len(),
            _ => 0,
        }
    }

    fn reading_bytes(&self) -> usize {
        match self {
            Work::Read(read) => read.len as usize,
            _ => 0,
        }
    }
}

#[derive(Debug)]
struct Part {
    request: usize,
    work: Work,
}

/// A call that is over, and the request that it was a part of.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) request: usize,
    pub(super) work: Work,
    pub(super) status: Status,
}

/// What a desk is for.
#[derive(Debug)]
pub(super) enum Owner {
    /// A volume that is shown as a file.
    Volume(Arc<VolumeFile>),
    /// The volume that files of a folder are, by their section.
    Folder(usize),
}

/// One thread's place at a volume.
pub(super) struct Desk {
    pub(super) owner: Owner,
    pub(super) lane: ArenaLane,
    /// Who is told of the requests that were answered.
    pub(super) watch: Option<Watch>,
    parts: Vec<Option<Part>>,
    free: Vec<usize>,
    requests: Vec<Option<Request>>,
    free_requests: Vec<usize>,
    stalled: VecDeque<usize>,
    /// Requests that wait for their time, the earliest first.
    delayed: BinaryHeap<Reverse<(Nanos, usize)>>,
    parked_bytes: usize,
    reading_bytes: usize,
    /// Assemblies to be used again, with their memory.
    pub(super) spare: Spare,
}

impl Desk {
    pub(super) fn new(owner: Owner, lane: ArenaLane, watch: Option<Watch>) -> Self {
        if let Owner::Volume(file) = &owner {
            file.desks.fetch_add(1, Ordering::AcqRel);
        }
        Desk {
            owner,
            lane,
            watch,
            parts: Vec::new(),
            free: Vec::new(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            stalled: VecDeque::new(),
            delayed: BinaryHeap::new(),
            parked_bytes: 0,
            reading_bytes: 0,
            spare: Spare::default(),
        }
    }

    /// The file, of a volume that is shown as one.
    pub(super) fn file(&self) -> &Arc<VolumeFile> {
        match &self.owner {
            Owner::Volume(file) => file,
            Owner::Folder(_) => unreachable!("the files of a folder are not volumes"),
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.requests.len() == self.free_requests.len()
    }

    /// Requests under way.
    pub(super) fn requests_len(&self) -> usize {
        self.requests.len() - self.free_requests.len()
    }

    /// Bytes of writes that wait here for room.
    pub(super) fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }

    /// Bytes of reads that are under way.
    pub(super) fn reading_bytes(&self) -> usize {
        self.reading_bytes
    }

    pub(super) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    pub(super) fn open(&mut self, request: Request) -> usize {
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

    /// Takes a request out that is to be answered now. One whose time has not come waits for it.
    pub(super) fn close(&mut self, index: usize, now: Nanos) -> Option<Request> {
        let request = self.request(index);
        if request.calls > 0 {
            return None;
        }
        if request.not_before > now {
            let at = request.not_before;
            self.delayed.push(Reverse((at, index)));
            return None;
        }
        self.free_requests.push(index);
        self.requests[index].take()
    }

    /// When the next request's time comes.
    pub(super) fn next_delayed(&self) -> Option<Nanos> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// A request whose time has come.
    pub(super) fn take_delayed(&mut self, now: Nanos) -> Option<usize> {
        if self.next_delayed()? > now {
            return None;
        }
        self.delayed.pop().map(|Reverse((_, index))| index)
    }

    /// The token of the next call.
    pub(super) fn next_token(&mut self) -> u64 {
        if self.free.is_empty() {
            self.parts.push(None);
            self.free.push(self.parts.len() - 1);
        }
        *self.free.last().expect("one was added") as u64
    }

    /// Keeps a call, under the token that [`Desk::next_token`] gave, that is pending or, if
    /// `stalled`, to be made again.
    pub(super) fn keep(&mut self, request: usize, work: Work, stalled: bool) {
        self.parked_bytes += work.parked_bytes();
        self.reading_bytes += work.reading_bytes();
        let index = self.free.pop().expect("a token was asked for");
        debug_assert!(self.parts[index].is_none(), "a token was used twice");
        self.parts[index] = Some(Part { request, work });
        self.request(request).calls += 1;
        if stalled {
            self.stalled.push_back(index);
        }
    }

    /// Tells a call what has come; it, if it is over.
    pub(super) fn tell(&mut self, cache: &ArenaCache, now: Nanos, mail: Mail) -> Option<Over> {
        let token = match &mail {
            Completion::Unstalled => return None,
            Completion::Filled { token, .. }
            | Completion::Failed { token, .. }
            | Completion::Continue { token }
            | Completion::Synced { token, .. }
            | Completion::Finished { token, .. } => *token,
        };
        let index = usize::try_from(token).expect("an index");
        let part = self.parts[index].as_mut().expect("a call under way");
        let status = part.work.call().tell(cache, &mut self.lane, now, mail);
        self.moved(index, status)
    }

    /// The calls that are to be made again, in their order.
    pub(super) fn take_stalled(&mut self) -> VecDeque<usize> {
        std::mem::take(&mut self.stalled)
    }

    /// Makes a call again; it, if it is over.
    pub(super) fn ask_again(
        &mut self,
        cache: &ArenaCache,
        now: Nanos,
        index: usize,
    ) -> Option<Over> {
        let part = self.parts[index].as_mut().expect("a call under way");
        let status = part.work.call().ask(cache, &mut self.lane, now);
        self.moved(index, status)
    }

    fn moved(&mut self, index: usize, status: Status) -> Option<Over> {
        let part = self.parts[index].as_mut().expect("a call under way");
        if let Work::Write(write) = &mut part.work
            && write.task.is_placed()
        {
            self.parked_bytes -= std::mem::take(&mut write.bytes).len();
        }
        match status {
            Status::Pending => return None,
            Status::Stalled => {
                if !self.stalled.contains(&index) {
                    self.stalled.push_back(index);
                }
                return None;
            }
            Status::Done | Status::DoneAt(_) | Status::Failed(_) => {}
        }
        let Part { request, work } = self.parts[index].take().expect("a call under way");
        self.free.push(index);
        self.parked_bytes -= work.parked_bytes();
        self.reading_bytes -= work.reading_bytes();
        self.request(request).calls -= 1;
        Some(Over { request, work, status })
    }

    /// Gives everything up and closes the lane; the requests that nobody will answer any more.
    pub(super) fn abandon(self, cache: &ArenaCache) -> Vec<u64> {
        let Desk { owner, lane, parts, requests, .. } = self;
        cache.close_lane(lane);
        for part in parts.into_iter().flatten() {
            if let Work::Read(mut read) = part.work {
                read.abandon(cache.frames());
            }
        }
        if let Owner::Volume(file) = owner {
            file.desks.fetch_sub(1, Ordering::AcqRel);
        }
        requests.into_iter().flatten().map(|request| request.unique).collect()
    }
}
