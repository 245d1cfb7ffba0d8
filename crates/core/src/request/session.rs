//! The request engine: the requests that one thread has in flight on one volume.
//!
//! A session splits requests into operations of the cache, keeps them until they complete, retries
//! stalled ones, delays replies to writers that are faster than the store, and replies to each
//! request exactly once. It makes no system call, and has neither a clock nor a reference to the
//! cache: each method takes both. A request that completes at submission needs no entry and
//! allocates nothing.

mod leases;

use super::budget::{SessionLimit, SessionMemory};
use super::handle::open_handle;
use super::operation::{Operation, OperationCall};
use super::{ReadPurpose, ReadRequest, Status, WriteRequest};
use crate::cache::{BlockCut, Cache, HitRead, cut};
use crate::clock::{MILLISECOND, Nanos};
use crate::completion::{Completion, Wake};
use crate::counters::{Classes, Counter, Latency};
use crate::frames::Frames;
use crate::input::Input;
use crate::mapping::{Access, Mapping};
use crate::message::{
    Event, ImmediateReply, Prefetch, Reply, Request, RequestId, RequestOp, Submitted, Then,
};
use crate::payload::{Park, Payload, ZeroPayload};
use crate::settings::SettingError;
use crate::store::{StoreError, StoreOpKind};
use crate::sync::Arc;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, blocks_touched};
use crate::volume::Volume;
use crate::volume::VolumeHandle;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// Maximum number of blocks of one discard or zero operation, 1 GiB, so that each ends soon.
const EXCLUSIVE_BLOCKS_MAX: u64 = (1 << 30) / BLOCK_BYTES_U64;
/// Maximum number of read buffers that a session keeps for reuse.
const SPARE_MAX: usize = 8;
/// Number of entries for which an idle session keeps memory.
const ENTRIES_KEPT: usize = 32;
/// Interval at which stalled operations are retried. The cache wakes the session if the store, a
/// setting or a release frees resources. It does not if another session frees frames during the
/// last step of the search for frames, or returns frames that it has reserved and not used.
const RETRY: Nanos = 5 * MILLISECOND;

/// A request in flight.
#[derive(Debug)]
struct Entry<F: Frames, C> {
    context: C,
    request: Request,
    started_at: Nanos,
    classes: Classes,
    /// Operations that have not completed.
    in_flight: u32,
    /// True while the front end may add operations.
    is_open: bool,
    /// Bytes for which no operation has started: of a read, or whole blocks to zero or discard.
    unstarted: Range<u64>,
    /// The last bytes of a read.
    data: Option<Box<ReadRequest<F>>>,
    mapping: Option<Box<Mapping<F>>>,
    /// Earliest time of the reply.
    due: Nanos,
    error: Option<StoreError>,
}

/// An event that the front end has not polled.
#[derive(Debug)]
enum ReadyEvent<F: Frames> {
    Piece(usize, Box<ReadRequest<F>>),
    /// The end of a request, whose entry is removed when the event is polled.
    End(usize),
}

/// The requests that one thread has in flight on one volume; see the module.
///
/// `P` is the type of parked payloads, and `C` the front end's data of a request.
#[derive(Debug)]
pub struct Session<F: Frames, P, C> {
    volume: Arc<Volume<F>>,
    handle: VolumeHandle<F>,
    requests: Slab<Entry<F, C>>,
    operations: Slab<Operation<F, P>>,
    /// Stalled operations, in order.
    stalled: VecDeque<usize>,
    /// Time of the next retry of stalled operations.
    retry_at: Nanos,
    /// Requests that are complete and wait for the time of their reply, the earliest first.
    delayed: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Large reads whose next piece waits for the release of pins.
    waiting_for_pins: VecDeque<usize>,
    /// Events that the front end has not polled.
    ready: VecDeque<ReadyEvent<F>>,
    /// Bytes of the frames that reads have pinned and the front end has not released, and of those
    /// that reads in flight will pin.
    pinned_bytes: u64,
    memory: SessionMemory,
    /// Bytes of parked payloads.
    parked_bytes: usize,
    #[expect(clippy::vec_box, reason = "they are handed out boxed")]
    spare: Vec<Box<ReadRequest<F>>>,
    completions: Vec<Completion<F>>,
    /// Number of the session in the log of inputs, and number of reads that it has returned to the
    /// front end.
    number: u32,
    reads: u64,
}

impl<F: Frames, P: Payload, C> Session<F, P, C> {
    /// Opens a session on a volume. `waker` wakes its thread when [`Session::advance`] has work.
    ///
    /// # Errors
    /// If the volume is closed or removed.
    pub fn open(
        cache: &Cache<F>,
        volume: &Arc<Volume<F>>,
        waker: Box<dyn Wake>,
        limit: SessionLimit,
    ) -> Result<Self, SettingError> {
        let mut log = cache.log.pause();
        let number = log.as_mut().map_or(0, |log| {
            let session = log.next_session();
            log.add(Input::Open { session, volume: volume.id, limit: limit.as_input() });
            session
        });
        Ok(Session {
            volume: Arc::clone(volume),
            handle: open_handle(cache, volume, waker)?,
            requests: Slab::new(),
            operations: Slab::new(),
            stalled: VecDeque::new(),
            retry_at: 0,
            delayed: BinaryHeap::new(),
            waiting_for_pins: VecDeque::new(),
            ready: VecDeque::new(),
            pinned_bytes: 0,
            memory: SessionMemory::new(limit, Arc::clone(&volume.leased_for_reads)),
            parked_bytes: 0,
            spare: Vec::new(),
            completions: Vec::new(),
            number,
            reads: 0,
        })
    }

    /// Cancels all requests in flight and closes the session. Returns the front end's data of the
    /// requests that get no reply.
    pub fn close(self, cache: &Cache<F>) -> Vec<C> {
        self.close_and_release(cache, std::iter::empty())
    }

    /// As [`Session::close`], and releases pins that the front end has moved out of reads.
    pub fn close_and_release(self, cache: &Cache<F>, pins: impl Iterator<Item = F::Pin>) -> Vec<C> {
        let Session { volume, handle, requests, operations, ready, number, .. } = self;
        let _logged = cache.log.add(|| Input::Close { session: number });
        pins.for_each(|pin| cache.frames().unpin(pin));
        cache.close_handle(handle);
        let unmap = |mapping: Option<Box<Mapping<F>>>| {
            if let Some(mut mapping) = mapping {
                cache.unmap(&volume, &mut mapping);
            }
        };
        for (_, operation) in operations {
            match operation.work {
                OperationCall::Read(mut read) => read.abandon(cache.frames()),
                OperationCall::Map(mapping) | OperationCall::Unpin(mapping) => unmap(Some(mapping)),
                OperationCall::Write(..)
                | OperationCall::WriteZeros(_)
                | OperationCall::Flush { .. }
                | OperationCall::FlushRange { .. }
                | OperationCall::DiscardOrZero { .. } => {}
            }
        }
        let release = |read: Option<Box<ReadRequest<F>>>| {
            if let Some(mut read) = read {
                read.release(cache.frames());
            }
        };
        for event in ready {
            if let ReadyEvent::Piece(_, read) = event {
                release(Some(read));
            }
        }
        let mut contexts = Vec::new();
        for (_, entry) in requests {
            release(entry.data);
            unmap(entry.mapping);
            contexts.push(entry.context);
        }
        cache.pins_released();
        contexts
    }

    /// Returns the volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume<F>> {
        &self.volume
    }

    /// Records the time from the arrival of a request to its reply, as the front end measures it.
    pub fn record_latency(&self, op: RequestOp, duration: Nanos) {
        let latency = match op {
            RequestOp::Read => Latency::Read,
            RequestOp::Write => Latency::Write,
            RequestOp::Flush | RequestOp::FlushAlways | RequestOp::FlushRange { .. } => {
                Latency::Flush
            }
            RequestOp::Populate
            | RequestOp::Zero { .. }
            | RequestOp::Discard
            | RequestOp::Map
            | RequestOp::Unpin => return,
        };
        self.handle.recorder.record(latency, duration);
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of operations in flight.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if an operation is stalled.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Returns the bytes of parked payloads.
    #[must_use]
    pub fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }

    /// Returns the bytes of frames that reads pin or will pin.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Returns true if [`Session::advance`] would process completions.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.handle.completions.has_completions()
    }

    /// Returns the next time at which [`Session::advance`] has work without a completion: a delayed
    /// reply or a retry.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let retry = self.is_stalled().then_some(self.retry_at);
        self.next_reply_at().into_iter().chain(retry).min()
    }

    /// Returns the time of the next delayed reply.
    #[must_use]
    pub fn next_reply_at(&self) -> Option<Nanos> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// Copies the bytes at `offset` to `to` if all of them lie in one cached block. Returns true if
    /// they did. This is the fastest way to read. If they did not, nothing is counted: read them
    /// with [`Session::submit`]. If inputs are logged, it always returns false.
    #[inline]
    pub fn read_hit(&mut self, cache: &Cache<F>, offset: u64, to: &mut [u8]) -> bool {
        let is_hit = cache.read_hit(&self.handle, offset, to);
        if is_hit {
            self.handle.recorder.add(Counter::ReadRequests, 1);
            self.handle.recorder.add(Counter::ReadBytes, to.len() as u64);
        }
        is_hit
    }

    /// Performs [`Session::read_hit`] for each of `reads`, in order. Returns the number of hits.
    /// Prefetches the memory of later reads while it copies earlier ones.
    #[inline]
    pub fn read_hits(&mut self, cache: &Cache<F>, reads: &mut [HitRead<'_>]) -> usize {
        let hits = cache.read_hits(&self.handle, reads);
        let bytes: usize = reads.iter().filter(|read| read.hit).map(|read| read.to.len()).sum();
        self.handle.recorder.add(Counter::ReadRequests, hits as u64);
        self.handle.recorder.add(Counter::ReadBytes, bytes as u64);
        hits
    }

    /// Prefetches the memory with which the cache finds the first blocks of a request that will be
    /// submitted soon. A front end with several requests performs both steps for the later ones
    /// while it submits the earlier ones. Nothing is counted, and a range that is not inside the
    /// volume is ignored. The bytes of the frames are not prefetched: the front end sends them
    /// after the last request of the batch.
    #[inline]
    pub fn prefetch(&self, cache: &Cache<F>, offset: u64, len: u64, step: Prefetch) {
        let length = self.volume.geometry().length;
        if let Some(end) = offset.checked_add(len).filter(|&end| end <= length) {
            cache.prefetch(&self.volume, &(offset..end), step);
        }
    }

    /// Submits a request. `payload` holds the bytes of a write; other operations ignore it.
    /// `context` is called if the request is queued.
    ///
    /// # Panics
    /// If the operation is [`RequestOp::Map`] or [`RequestOp::Unpin`].
    pub fn submit<Q: Park<Parked = P>>(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        request: Request,
        payload: Q,
        context: impl FnOnce() -> C,
    ) -> Submitted<F> {
        let _logged = cache.log.add(|| Input::Submit {
            session: self.number,
            now,
            request: request.clone(),
            payload: payload.len(),
        });
        count(&self.handle, &request);
        match request.op {
            RequestOp::Read | RequestOp::Write if request.len == 0 => {
                Submitted::Done(ImmediateReply { data: None, classes: Classes::default() })
            }
            RequestOp::Read if request.unfragmented || self.may_read(cache, request.len) => {
                self.submit_read(cache, now, request, context)
            }
            RequestOp::Write => self.submit_write(cache, now, request, payload, context),
            _ => {
                let id = self.insert(request, now, context(), false);
                self.split(cache, now, id);
                self.continue_waiting_reads(cache, now);
                Submitted::Queued(RequestId(id))
            }
        }
    }

    fn submit_read(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        request: Request,
        context: impl FnOnce() -> C,
    ) -> Submitted<F> {
        let mut read = self.read_of(&request, request.range());
        match cache.read(&mut self.handle, now, &mut read) {
            Status::Done => {
                self.pinned_bytes += pinned_bytes(&read);
                let classes = read.classes();
                self.number_read(&mut read);
                Submitted::Done(ImmediateReply { data: Some(read), classes })
            }
            status => {
                let id = self.insert(request, now, context(), false);
                let key = self.start(id, OperationCall::Read(read));
                self.record_and_continue(cache, now, key, status);
                Submitted::Queued(RequestId(id))
            }
        }
    }

    fn submit_write<Q: Park<Parked = P>>(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        request: Request,
        payload: Q,
        context: impl FnOnce() -> C,
    ) -> Submitted<F> {
        let mut write = self.write_of(&request, request.offset, payload.len());
        let status = cache.write(&self.volume, &mut self.handle, now, &mut write, &payload);
        if status == Status::Done && request.then == Then::Nothing {
            return Submitted::Done(ImmediateReply { data: None, classes: write.classes });
        }
        let id = self.insert(request, now, context(), false);
        self.keep_write(cache, now, id, write, payload, status);
        Submitted::Queued(RequestId(id))
    }

    /// Maps `len` bytes at `offset` for change; the reply contains the mapping.
    pub fn map(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        (offset, len): (u64, u32),
        access: Access,
        context: C,
    ) -> RequestId {
        let _logged = cache.log.add(|| Input::Unsupported { call: "a mapping".to_owned() });
        let request = Request::new(RequestOp::Map, offset..offset + u64::from(len));
        let id = self.insert(request, now, context, false);
        let token = self.operations.vacant_key() as u64;
        let mapping = Box::new(Mapping::new(token, offset, len, access));
        self.submit_work(cache, now, id, OperationCall::Map(mapping));
        self.continue_request(cache, now, id);
        RequestId(id)
    }

    /// Ends a mapping. The bytes that were marked dirty are in the cache when the request ends. If
    /// it fails, pages whose changes have not reached the cache keep their previous contents.
    pub fn unpin(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        mut mapping: Box<Mapping<F>>,
        context: C,
    ) -> RequestId {
        let _logged = cache.log.add(|| Input::Unsupported { call: "a mapping".to_owned() });
        let recorder = &self.handle.recorder;
        recorder.add(Counter::WriteRequests, 1);
        recorder.add(Counter::WriteBytes, mapping.marked_bytes() as u64);
        let id = self.insert(Request::new(RequestOp::Unpin, mapping.bytes()), now, context, false);
        mapping.set_token(self.operations.vacant_key() as u64);
        self.submit_work(cache, now, id, OperationCall::Unpin(mapping));
        self.continue_request(cache, now, id);
        RequestId(id)
    }

    /// Opens a request whose operations [`Session::push`] adds.
    pub fn begin(&mut self, now: Nanos, request: Request, context: C) -> RequestId {
        let begin = || Input::Begin { session: self.number, now, request: request.clone() };
        drop(self.volume.log.add(begin));
        count(&self.handle, &request);
        RequestId(self.insert(request, now, context, true))
    }

    /// Adds a write to an open request: the bytes of `payload`, from `offset` of the volume on.
    pub fn push<Q: Park<Parked = P>>(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        RequestId(id): RequestId,
        offset: u64,
        payload: Q,
    ) {
        let _logged = cache.log.add(|| Input::Push {
            session: self.number,
            now,
            id,
            offset,
            payload: payload.len(),
        });
        let mut write = self.write_of(&self.requests[id].request, offset, payload.len());
        let status = cache.write(&self.volume, &mut self.handle, now, &mut write, &payload);
        self.keep_write(cache, now, id, write, payload, status);
    }

    /// Adds a flush of a range to an open request.
    pub fn push_flush(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        RequestId(id): RequestId,
        bytes: Range<u64>,
    ) {
        let _logged = cache.log.add(|| Input::PushFlush {
            session: self.number,
            now,
            id,
            bytes: bytes.clone(),
        });
        self.submit_work(
            cache,
            now,
            id,
            OperationCall::FlushRange { blocks: blocks_touched(&bytes), durable: true },
        );
    }

    /// Ends an open request: it completes with its operations.
    pub fn finish(&mut self, cache: &Cache<F>, now: Nanos, RequestId(id): RequestId) {
        let _logged = cache.log.add(|| Input::Finish { session: self.number, now, id });
        self.requests[id].is_open = false;
        self.continue_request(cache, now, id);
    }

    /// Processes completions, retries stalled operations, and ends requests whose reply is due.
    /// Returns true if anything has changed.
    pub fn advance(&mut self, cache: &Cache<F>, now: Nanos) -> bool {
        let mut log = cache.log.pause();
        if let Some(log) = &mut log {
            if !self.has_completions() && self.next_deadline().is_none_or(|at| at > now) {
                return false;
            }
            log.add(Input::Advance { session: self.number, now });
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.handle.completions.collect(&mut completions);
        let mut has_changed = !completions.is_empty();
        let mut has_room = false;
        for completion in completions.drain(..) {
            match token(&completion) {
                Some(key) => self.complete(cache, now, key, completion),
                None => has_room = true,
            }
        }
        self.completions = completions;
        if has_room || self.is_stalled() && self.retry_at <= now {
            self.retry_stalled(cache, now);
        }
        while self.next_reply_at().is_some_and(|due| due <= now) {
            let Some(Reverse((_, id))) = self.delayed.pop() else { break };
            self.ready.push_back(ReadyEvent::End(id));
            has_changed = true;
        }
        has_changed
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event<F, C>> {
        let event = self.ready.pop_front()?;
        drop(self.volume.log.add(|| Input::PollEvent { session: self.number }));
        Some(match event {
            ReadyEvent::Piece(id, mut read) => {
                self.number_read(&mut read);
                Event::Piece(RequestId(id), read)
            }
            ReadyEvent::End(id) => {
                let Entry { context, started_at, classes, mut data, mapping, error, .. } =
                    self.requests.remove(id);
                if let Some(read) = &mut data {
                    self.number_read(read);
                }
                self.shrink();
                Event::End(Reply { context, data, mapping, error, classes, started_at })
            }
        })
    }

    /// Returns the front end's data of a request whose end has not been polled.
    #[must_use]
    pub fn context(&self, RequestId(id): RequestId) -> &C {
        &self.requests[id].context
    }

    /// Releases the blocks of a read, and continues large reads that wait for that.
    pub fn release(&mut self, cache: &Cache<F>, now: Nanos, mut read: Box<ReadRequest<F>>) {
        let number = read.token;
        let _logged = cache.log.add(|| Input::Release { session: self.number, now, read: number });
        let bytes = pinned_bytes(&read);
        cache.release(&mut read);
        self.reuse(read);
        self.uncount_pinned(cache, now, bytes);
    }

    /// Takes back the buffer of a read whose pins the front end has moved out. The front end
    /// releases the pins with [`Session::release_pins`].
    pub fn recycle(&mut self, read: Box<ReadRequest<F>>) {
        drop(self.volume.log.add(|| Input::Recycle { session: self.number, read: read.token }));
        debug_assert!(read.parts.iter().all(Option::is_none), "a read was given back with pins");
        self.reuse(read);
    }

    /// Releases the oldest pins that the front end has moved out of reads, and continues large
    /// reads that wait for that.
    pub fn release_pins(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        pins: impl ExactSizeIterator<Item = F::Pin>,
    ) {
        let count = pins.len();
        if count == 0 {
            return;
        }
        let _logged =
            cache.log.add(|| Input::ReleasePins { session: self.number, now, pins: count });
        pins.for_each(|pin| cache.frames().unpin(pin));
        cache.pins_released();
        self.uncount_pinned(cache, now, (count * BLOCK_BYTES) as u64);
    }

    /// Stops counting `bytes` of pinned frames: they are released, or another holder will release
    /// them. Continues large reads that wait for the release.
    fn uncount_pinned(&mut self, cache: &Cache<F>, now: Nanos, bytes: u64) {
        self.pinned_bytes -= bytes;
        self.return_lease();
        self.continue_waiting_reads(cache, now);
    }

    /// Stops counting the blocks of a read as pinned; their holder releases them later.
    pub fn detach(&mut self, cache: &Cache<F>, now: Nanos, read: &ReadRequest<F>) {
        let _logged = cache.log.add(|| Input::Unsupported { call: "a view".to_owned() });
        self.uncount_pinned(cache, now, pinned_bytes(read));
    }

    /// Returns true if an operation of a request has failed.
    #[must_use]
    pub fn has_failed(&self, RequestId(id): RequestId) -> bool {
        self.requests[id].error.is_some()
    }

    /// Continues large reads that wait for the release of pins.
    fn continue_waiting_reads(&mut self, cache: &Cache<F>, now: Nanos) {
        // Each is tried once: its next piece may have to wait again.
        for _ in 0..self.waiting_for_pins.len() {
            if self.lease_piece(cache, 1) == 0 {
                break;
            }
            let Some(id) = self.waiting_for_pins.pop_front() else { break };
            self.continue_request(cache, now, id);
        }
    }

    /// Retries the stalled operations in order.
    pub fn retry(&mut self, cache: &Cache<F>, now: Nanos) {
        let _logged = cache.log.add(|| Input::Retry { session: self.number, now });
        self.retry_stalled(cache, now);
    }

    fn retry_stalled(&mut self, cache: &Cache<F>, now: Nanos) {
        for key in std::mem::take(&mut self.stalled) {
            let work = &mut self.operations[key].work;
            let status = work.submit(cache, (&self.volume, &mut self.handle), now, key as u64);
            self.record_and_continue(cache, now, key, status);
        }
    }

    /// Gives a read that is returned to the front end its number in the log of inputs.
    fn number_read(&mut self, read: &mut ReadRequest<F>) {
        if self.volume.log.is_used() {
            self.reads += 1;
            read.token = self.reads;
        }
    }

    /// Releases the memory of many requests once none is in flight, since the budget no longer
    /// counts it.
    fn shrink(&mut self) {
        if self.requests.is_empty() && self.requests.capacity() > ENTRIES_KEPT {
            self.requests = Slab::with_capacity(ENTRIES_KEPT);
            self.ready.shrink_to(ENTRIES_KEPT);
            self.completions.shrink_to(ENTRIES_KEPT);
            self.handle.completions.shrink();
            debug_assert!(self.operations.is_empty(), "each belongs to a request");
            self.operations = Slab::with_capacity(ENTRIES_KEPT);
        }
    }

    fn reuse(&mut self, read: Box<ReadRequest<F>>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(read);
        }
    }

    #[expect(clippy::unnecessary_box_returns, reason = "a reused read is boxed already")]
    fn read_of(&mut self, request: &Request, bytes: Range<u64>) -> Box<ReadRequest<F>> {
        let token = self.operations.vacant_key() as u64;
        let len = u32::try_from(bytes.end - bytes.start).expect("at most a piece");
        let mut read = match self.spare.pop() {
            Some(mut read) => {
                read.reset(token, bytes.start, len);
                read
            }
            None => Box::new(ReadRequest::new(token, bytes.start, len)),
        };
        read.interface = request.interface;
        if request.op == RequestOp::Populate {
            read.purpose = ReadPurpose::Populate;
        }
        let bound = request.bound.clone().filter(|bound| !bound.is_empty());
        (read.hint, read.part) = (request.hint, bound);
        read
    }

    fn write_of(&self, request: &Request, offset: u64, len: usize) -> WriteRequest {
        let len = u32::try_from(len).expect("a payload has less than 4 GiB");
        if request.is_counted {
            self.handle.recorder.add(Counter::WriteBytes, u64::from(len));
        }
        let token = self.operations.vacant_key() as u64;
        let mut write = WriteRequest::new(token, offset, len, request.fua);
        (write.hint, write.group) = (request.hint, request.group);
        write
    }

    /// Records the status of a write, and keeps the write unless it is complete.
    fn keep_write<Q: Park<Parked = P>>(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        id: usize,
        write: WriteRequest,
        payload: Q,
        status: Status,
    ) {
        if status == Status::Done {
            self.requests[id].classes.add(write.classes);
            self.continue_request(cache, now, id);
            return;
        }
        let waits = matches!(status, Status::Pending | Status::Stalled) && !write.is_placed();
        let payload = waits.then(|| payload.park());
        self.parked_bytes += payload.as_ref().map_or(0, Payload::len);
        let key = self.start(id, OperationCall::Write(write, payload));
        self.record_and_continue(cache, now, key, status);
    }

    fn insert(&mut self, request: Request, now: Nanos, context: C, is_open: bool) -> usize {
        self.requests.insert(Entry {
            context,
            request,
            started_at: now,
            classes: Classes::default(),
            in_flight: 0,
            is_open,
            unstarted: 0..0,
            data: None,
            mapping: None,
            due: 0,
            error: None,
        })
    }

    /// Splits a request that is not a single operation, and starts it.
    fn split(&mut self, cache: &Cache<F>, now: Nanos, id: usize) {
        let Request { op, offset, len, .. } = self.requests[id].request;
        let range = offset..offset + len;
        match op {
            RequestOp::Read | RequestOp::Populate => self.requests[id].unstarted = range,
            RequestOp::Zero { .. } | RequestOp::Discard if len > 0 => {
                let BlockCut { head, blocks, tail } = cut(range, self.volume.geometry().length);
                self.requests[id].unstarted = blocks;
                let zeroes = matches!(op, RequestOp::Zero { .. });
                for ragged in [head, tail].into_iter().filter(|_| zeroes) {
                    self.write_zeros(cache, now, id, &ragged);
                }
            }
            RequestOp::Flush | RequestOp::FlushAlways | RequestOp::FlushRange { .. } => {
                let work = match op {
                    RequestOp::Flush => OperationCall::Flush { always: false },
                    RequestOp::FlushAlways => OperationCall::Flush { always: true },
                    _ => {
                        let durable = matches!(op, RequestOp::FlushRange { durable: true });
                        OperationCall::FlushRange { blocks: blocks_touched(&range), durable }
                    }
                };
                self.submit_work(cache, now, id, work);
            }
            RequestOp::Zero { .. } | RequestOp::Discard | RequestOp::Write => {}
            RequestOp::Map | RequestOp::Unpin => panic!("mappings have their own methods"),
        }
        self.continue_request(cache, now, id);
    }

    fn write_zeros(&mut self, cache: &Cache<F>, now: Nanos, id: usize, bytes: &Range<u64>) {
        let mut at = bytes.start;
        while at < bytes.end {
            // Each write ends at a block boundary, so that no sector is written in two steps.
            let len = (bytes.end - at).min(BLOCK_BYTES_U64 - at % BLOCK_BYTES_U64);
            let zeros = ZeroPayload(usize::try_from(len).expect("a block"));
            let is_counted = self.requests[id].request.is_counted;
            let request = Request { is_counted, ..Request::new(RequestOp::Write, at..at + len) };
            let write = self.write_of(&request, at, zeros.len());
            self.submit_work(cache, now, id, OperationCall::WriteZeros(write));
            at += len;
        }
    }

    /// Starts an operation of a request without continuing the request.
    fn submit_work(&mut self, cache: &Cache<F>, now: Nanos, id: usize, work: OperationCall<F, P>) {
        let key = self.start(id, work);
        let work = &mut self.operations[key].work;
        let status = work.submit(cache, (&self.volume, &mut self.handle), now, key as u64);
        self.record_status(cache, now, key, status);
    }

    /// Adds an operation to those in flight.
    fn start(&mut self, id: usize, work: OperationCall<F, P>) -> usize {
        if let OperationCall::Read(read) = &work {
            self.pinned_bytes += pinned_bytes(read);
        }
        self.requests[id].in_flight += 1;
        self.operations.insert(Operation { request: id, work })
    }

    fn complete(&mut self, cache: &Cache<F>, now: Nanos, key: usize, completion: Completion<F>) {
        let operation = self.operations.get_mut(key).expect("an operation in flight");
        let status =
            operation.work.complete(cache, (&self.volume, &mut self.handle), now, completion);
        self.record_and_continue(cache, now, key, status);
    }

    fn record_and_continue(&mut self, cache: &Cache<F>, now: Nanos, key: usize, status: Status) {
        if let Some(id) = self.record_status(cache, now, key, status) {
            self.continue_request(cache, now, id);
            // An operation that returns no blocks has released its pins.
            self.continue_waiting_reads(cache, now);
        }
    }

    /// Records the status of an operation. Returns its request if the operation is complete.
    fn record_status(
        &mut self,
        cache: &Cache<F>,
        now: Nanos,
        key: usize,
        status: Status,
    ) -> Option<usize> {
        self.parked_bytes -= self.operations[key].work.unpark();
        match status {
            Status::Pending => return None,
            Status::Stalled => {
                if self.stalled.is_empty() {
                    self.retry_at = now + RETRY;
                }
                if !self.stalled.contains(&key) {
                    self.stalled.push_back(key);
                }
                return None;
            }
            Status::Done | Status::DoneAt(_) | Status::Failed(_) => {}
        }
        let Operation { request: id, work } = self.operations.remove(key);
        self.parked_bytes -= work.parked_bytes();
        self.return_lease();
        let entry = &mut self.requests[id];
        entry.in_flight -= 1;
        entry.classes.add(work.classes());
        let has_failed = matches!(status, Status::Failed(_));
        match status {
            Status::DoneAt(at) => entry.due = entry.due.max(at),
            Status::Failed(error) => {
                entry.error.get_or_insert(error);
            }
            Status::Done | Status::Pending | Status::Stalled => {}
        }
        match work {
            OperationCall::Read(mut read) => {
                let wants_data = entry.request.op == RequestOp::Read && !has_failed;
                match (wants_data, entry.unstarted.is_empty()) {
                    (true, true) => entry.data = Some(read),
                    (true, false) => self.ready.push_back(ReadyEvent::Piece(id, read)),
                    (false, _) => {
                        self.pinned_bytes -= pinned_bytes(&read);
                        self.return_lease();
                        cache.release(&mut read);
                        self.reuse(read);
                    }
                }
            }
            OperationCall::Map(mapping) if !has_failed => entry.mapping = Some(mapping),
            OperationCall::Map(mut mapping) | OperationCall::Unpin(mut mapping) => {
                cache.unmap(&self.volume, &mut mapping);
            }
            OperationCall::Write(..)
            | OperationCall::WriteZeros(_)
            | OperationCall::Flush { .. }
            | OperationCall::FlushRange { .. }
            | OperationCall::DiscardOrZero { .. } => {}
        }
        Some(id)
    }

    /// Continues a request without operations in flight: starts its next part or the step after it,
    /// or ends it.
    fn continue_request(&mut self, cache: &Cache<F>, now: Nanos, id: usize) {
        loop {
            let entry = &mut self.requests[id];
            if entry.in_flight > 0 || entry.is_open {
                return;
            }
            if entry.error.is_some() {
                break;
            }
            if !entry.unstarted.is_empty() {
                if !self.start_next(cache, now, id) {
                    return;
                }
                continue;
            }
            let work = match std::mem::take(&mut entry.request.then) {
                Then::Nothing => break,
                Then::Flush => OperationCall::Flush { always: false },
                Then::FlushRange(bytes) => {
                    OperationCall::FlushRange { blocks: blocks_touched(&bytes), durable: true }
                }
            };
            self.submit_work(cache, now, id, work);
        }
        let due = self.requests[id].due;
        if due > now {
            let recorder = &self.handle.recorder;
            recorder.add(Counter::ThrottledWrites, 1);
            recorder.add(Counter::ThrottledTime, due - now);
            self.delayed.push(Reverse((due, id)));
        } else {
            self.ready.push_back(ReadyEvent::End(id));
        }
    }

    /// Starts the next part of a request. Returns false if it has to wait for the release of pins.
    fn start_next(&mut self, cache: &Cache<F>, now: Nanos, id: usize) -> bool {
        let Range { start, end } = self.requests[id].unstarted;
        let op = self.requests[id].request.op;
        let work = match op {
            RequestOp::Read | RequestOp::Populate => {
                let len = self.lease_piece(cache, end - start);
                if len == 0 {
                    self.waiting_for_pins.push_back(id);
                    return false;
                }
                self.requests[id].unstarted.start = start + len;
                let request = self.requests[id].request.clone();
                OperationCall::Read(self.read_of(&request, start..start + len))
            }
            op => {
                let next = end.min(start + EXCLUSIVE_BLOCKS_MAX);
                self.requests[id].unstarted.start = next;
                let kind = match op {
                    RequestOp::Zero { keep_allocated } => StoreOpKind::Zero { keep_allocated },
                    _ => StoreOpKind::Discard,
                };
                OperationCall::DiscardOrZero { kind, blocks: start..next }
            }
        };
        self.submit_work(cache, now, id, work);
        true
    }
}

/// Returns the operation of a completion; `None` for [`Completion::Unstalled`].
fn token<F: Frames>(completion: &Completion<F>) -> Option<usize> {
    let token = match completion {
        Completion::Unstalled => return None,
        Completion::Filled { token, .. }
        | Completion::Failed { token, .. }
        | Completion::Continue { token, .. }
        | Completion::Synced { token, .. }
        | Completion::Finished { token, .. } => *token,
    };
    Some(usize::try_from(token).expect("an index"))
}

/// Counts a request and the bytes that it reads. Written bytes are counted with each operation.
fn count<F: Frames>(handle: &VolumeHandle<F>, request: &Request) {
    if !request.is_counted {
        return;
    }
    let counter = match request.op {
        RequestOp::Read => {
            handle.recorder.add(Counter::ReadBytes, request.len);
            Counter::ReadRequests
        }
        RequestOp::Write => Counter::WriteRequests,
        RequestOp::Flush | RequestOp::FlushAlways | RequestOp::FlushRange { .. } => {
            Counter::FlushRequests
        }
        RequestOp::Zero { .. } => Counter::ZeroRequests,
        RequestOp::Discard => Counter::DiscardRequests,
        RequestOp::Populate | RequestOp::Map | RequestOp::Unpin => return,
    };
    handle.recorder.add(counter, 1);
}

/// Returns the bytes of the frames that a read pins.
fn pinned_bytes<F: Frames>(read: &ReadRequest<F>) -> u64 {
    (read.parts.len() * BLOCK_BYTES) as u64
}
