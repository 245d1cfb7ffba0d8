//! What one thread has under way at one volume: its lane, the calls on the cache, and the requests
//! that they are parts of.
//!
//! A call's place is the token of its completions. Invariants: a request is answered once, when the
//! last of its calls is over and its time has come; what is given up is refused, so that nobody
//! waits for ever.

use super::fuse::VolumeFile;
use crate::call::{Call, Exclude, Flush, FlushRange, Mail, Write};
use crate::engine::{ArenaCache, ArenaLane};
use crate::frames::ArenaFrames;
use crate::front::observe::Watch;
use crate::front::spare::Spare;
use crate::store::files::{SourceFile, WriteUnderWay};
use larder_core::cache::cut;
use larder_core::clock::Nanos;
use larder_core::counters::{Classes, Counter};
use larder_core::lane::Completion;
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::{StoreError, StoreErrorKind, StoreOpKind};
use larder_core::units::BLOCK_BYTES;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the ragged ends of a zeroing are written with.
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// A larger zeroing is given to the store in pieces of this many bytes, so that each is over soon.
const ZERO_PIECE_BYTES: u64 = 1 << 30;

/// What a request asks for, as far as it takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::front) enum Kind {
    Read,
    Write,
    Flush,
    Zero { keep_allocated: bool },
}

/// A request under way.
#[derive(Debug)]
pub(in crate::front) struct Request {
    pub(in crate::front) unique: u64,
    pub(in crate::front) kind: Kind,
    pub(in crate::front) started_at: Nanos,
    pub(in crate::front) offset: u64,
    /// Bytes that the answer will speak of.
    pub(in crate::front) len: u64,
    /// Calls that are not over.
    pub(in crate::front) calls: u32,
    /// Blocks of a zeroing that no call covers yet.
    pub(in crate::front) rest: Range<u64>,
    /// Blocks of a write that must be on stable storage before it is answered.
    pub(in crate::front) to_sync: Option<Range<u64>>,
    /// The file of a folder that it is about.
    file: Option<Arc<SourceFile>>,
    /// Held until the write to such a file is answered.
    under_way: Option<WriteUnderWay>,
    /// Not to be answered before then.
    pub(in crate::front) not_before: Nanos,
    pub(in crate::front) classes: Classes,
    pub(in crate::front) failure: Option<Errno>,
}

impl Request {
    pub(in crate::front) fn new(kind: Kind, unique: u64, offset: u64, len: u64, at: Nanos) -> Self {
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
            under_way: None,
            not_before: 0,
            classes: Classes::default(),
            failure: None,
        }
    }

    /// Says which file of a folder it is about, if any.
    pub(in crate::front) fn about(mut self, file: Option<&Arc<SourceFile>>) -> Self {
        self.file = file.cloned();
        self
    }

    /// Holds `under_way` until the request is answered.
    pub(in crate::front) fn holding(mut self, under_way: Option<WriteUnderWay>) -> Self {
        self.under_way = under_way;
        self
    }

    /// Counts it where its file is counted.
    pub(in crate::front) fn count(&self) {
        if let Some(file) = &self.file {
            file.count(self.classes);
            if self.kind == Kind::Write {
                file.write_over();
            }
        }
    }

    /// Notes a failure; the first one counts.
    pub(in crate::front) fn fail(&mut self, error: &StoreError) {
        tracing::warn!(%error, "a request failed");
        self.failure.get_or_insert(errno_of(error));
    }
}

/// What a program is told about an error of a store.
pub(in crate::front) fn errno_of(error: &StoreError) -> Errno {
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
pub(in crate::front) enum Work {
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
pub(in crate::front) struct Over {
    pub(in crate::front) request: usize,
    pub(in crate::front) work: Work,
    pub(in crate::front) status: Status,
}

/// What a desk is for.
#[derive(Debug)]
pub(in crate::front) enum Owner {
    /// A volume that is shown as a file.
    Volume(Arc<VolumeFile>),
    /// The volume that files of a folder are, by their section.
    Folder(usize),
}

/// One thread's place at a volume.
pub(in crate::front) struct Desk {
    pub(in crate::front) owner: Owner,
    pub(in crate::front) lane: ArenaLane,
    /// Who is told of the requests that were answered.
    pub(in crate::front) watch: Option<Watch>,
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
    pub(in crate::front) spare: Spare,
}

impl Desk {
    pub(in crate::front) fn new(owner: Owner, lane: ArenaLane, watch: Option<Watch>) -> Self {
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
    pub(in crate::front) fn file(&self) -> &Arc<VolumeFile> {
        let Owner::Volume(file) = &self.owner else {
            unreachable!("only volumes that are shown as files are asked for theirs")
        };
        file
    }

    /// Whether nothing is under way.
    pub(in crate::front) fn is_quiet(&self) -> bool {
        self.requests.len() == self.free_requests.len()
    }

    /// Requests under way.
    pub(in crate::front) fn requests_len(&self) -> usize {
        self.requests.len() - self.free_requests.len()
    }

    /// Bytes of writes that wait here for room.
    pub(in crate::front) fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }

    /// Bytes of reads that are under way.
    pub(in crate::front) fn reading_bytes(&self) -> usize {
        self.reading_bytes
    }

    pub(in crate::front) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    pub(in crate::front) fn open(&mut self, request: Request) -> usize {
        if let Some(index) = self.free_requests.pop() {
            self.requests[index] = Some(request);
            return index;
        }
        self.requests.push(Some(request));
        self.requests.len() - 1
    }

    pub(in crate::front) fn request(&mut self, index: usize) -> &mut Request {
        self.requests[index].as_mut().expect("a request under way")
    }

    /// Takes a request out that is to be answered now. One whose time has not come waits for it.
    pub(in crate::front) fn close(&mut self, index: usize, now: Nanos) -> Option<Request> {
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
    pub(in crate::front) fn next_delayed(&self) -> Option<Nanos> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// A request whose time has come.
    pub(in crate::front) fn take_delayed(&mut self, now: Nanos) -> Option<usize> {
        if self.next_delayed()? > now {
            return None;
        }
        self.delayed.pop().map(|Reverse((_, index))| index)
    }

    /// The token of the next call.
    pub(in crate::front) fn next_token(&mut self) -> u64 {
        if self.free.is_empty() {
            self.parts.push(None);
            self.free.push(self.parts.len() - 1);
        }
        *self.free.last().expect("one was added") as u64
    }

    /// Keeps a call, under the token that [`Desk::next_token`] gave, that is pending or, if
    /// `stalled`, to be made again.
    pub(in crate::front) fn keep(&mut self, request: usize, work: Work, stalled: bool) {
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
    pub(in crate::front) fn tell(
        &mut self,
        cache: &ArenaCache,
        now: Nanos,
        mail: Mail,
    ) -> Option<Over> {
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

    /// Writes bytes as a part of a request.
    pub(in crate::front) fn write_part(
        &mut self,
        cache: &ArenaCache,
        now: Nanos,
        request: usize,
        (offset, bytes): (u64, &[u8]),
        fua: bool,
    ) {
        let len = u32::try_from(bytes.len()).expect("at most 1 MiB");
        self.lane.recorder().add(Counter::WriteBytes, u64::from(len));
        let token = self.next_token();
        let mut write = Write { task: WriteTask::new(token, offset, len, fua), bytes };
        let status = write.ask(cache, &mut self.lane, now);
        let task = write.task;
        if matches!(status, Status::Pending | Status::Stalled) {
            let bytes = if task.is_placed() { Vec::new() } else { bytes.to_vec() };
            let work = Work::Write(Write { task, bytes });
            self.keep(request, work, status == Status::Stalled);
            return;
        }
        self.request(request).classes.add(task.classes());
        self.note_status(now, request, &status);
    }

    /// Flushes the volume as a part of a request.
    pub(in crate::front) fn flush_part(&mut self, cache: &ArenaCache, now: Nanos, request: usize) {
        let mut flush = Flush { token: self.next_token() };
        match flush.ask(cache, &mut self.lane, now) {
            Status::Pending => self.keep(request, Work::Flush(flush), false),
            status => debug_assert_eq!(status, Status::Done, "a flush waits or is ignored"),
        }
    }

    /// Opens a request to zero a range of a volume of this length, and writes zeros to its ragged
    /// ends; [`Desk::go_on_zeroing`] zeroes the blocks between.
    pub(in crate::front) fn open_zeroing(
        &mut self,
        cache: &ArenaCache,
        now: Nanos,
        mut request: Request,
        length: u64,
    ) -> usize {
        let range = request.offset..request.offset + request.len;
        let pieces = if range.is_empty() { cut(0..0, 0) } else { cut(range, length) };
        request.rest = pieces.blocks;
        let index = self.open(request);
        for ragged in [pieces.head, pieces.tail] {
            let mut at = ragged.start;
            while at < ragged.end {
                let len = usize::try_from((ragged.end - at).min(ZEROS.len() as u64));
                let len = len.expect("a block");
                self.write_part(cache, now, index, (at, &ZEROS[..len]), false);
                at += len as u64;
            }
        }
        index
    }

    /// Asks for the next piece of a zeroing, if nothing of the request is under way.
    pub(in crate::front) fn go_on_zeroing(&mut self, cache: &ArenaCache, now: Nanos, index: usize) {
        let under_way = self.request(index);
        let Kind::Zero { keep_allocated } = under_way.kind else { return };
        if under_way.calls > 0 || under_way.rest.is_empty() || under_way.failure.is_some() {
            return;
        }
        let start = under_way.rest.start;
        let end = under_way.rest.end.min(start + ZERO_PIECE_BYTES / BLOCK_BYTES as u64);
        under_way.rest.start = end;
        let kind = StoreOpKind::Zero { keep_allocated };
        let mut piece = Exclude { token: self.next_token(), kind, blocks: start..end };
        let status = piece.ask(cache, &mut self.lane, now);
        self.keep(index, Work::Exclude(piece), status == Status::Stalled);
    }

    /// Has blocks written and made stable as a part of a request.
    pub(in crate::front) fn sync_part(
        &mut self,
        cache: &ArenaCache,
        now: Nanos,
        request: usize,
        blocks: Range<u64>,
    ) {
        let mut flush = FlushRange { token: self.next_token(), blocks, stable: true };
        match flush.ask(cache, &mut self.lane, now) {
            Status::Pending => self.keep(request, Work::FlushRange(flush), false),
            status => debug_assert_eq!(status, Status::Done, "a flush waits or is ignored"),
        }
    }

    /// Makes what a request has changed stable, if that was asked for and all of it is done.
    pub(in crate::front) fn go_on_syncing(&mut self, cache: &ArenaCache, now: Nanos, index: usize) {
        let request = self.request(index);
        if request.calls > 0 || !request.rest.is_empty() || request.failure.is_some() {
            return;
        }
        if let Some(blocks) = request.to_sync.take() {
            self.sync_part(cache, now, index, blocks);
        }
    }

    /// What a call that is over means for its request.
    pub(in crate::front) fn note_status(&mut self, now: Nanos, index: usize, status: &Status) {
        match status {
            Status::DoneAt(at) => {
                let request = self.request(index);
                request.not_before = request.not_before.max(*at);
                let recorder = self.lane.recorder();
                recorder.add(Counter::ThrottledWrites, 1);
                recorder.add(Counter::ThrottledTime, at.saturating_sub(now));
            }
            Status::Failed(error) => self.request(index).fail(error),
            Status::Done | Status::Pending | Status::Stalled => {}
        }
    }

    /// The calls that are to be made again, in their order.
    pub(in crate::front) fn take_stalled(&mut self) -> VecDeque<usize> {
        std::mem::take(&mut self.stalled)
    }

    /// Makes a call again; it, if it is over.
    pub(in crate::front) fn ask_again(
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
    pub(in crate::front) fn abandon(self, cache: &ArenaCache) -> Vec<u64> {
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
