//! A thread of a mount: it takes requests as they come, answers hits at once, and goes on with the
//! others when their completions arrive.
//!
//! Invariants: the thread waits only in its sleep, for whatever comes next; what it holds for
//! requests that wait is bounded, and beyond that it takes no more of them.

use super::abi::{self, InHeader, TransferIn, opcode};
use super::device::Received;
use super::folder::Recent;
use super::link::{Asked, Link};
use super::mounted::{Shared, Tree};
use super::ring::Lent;
use crate::engine::{ArenaCache, ArenaVolume};
use crate::fault::{self, confine};
use crate::front::desk::{Desk, Kind, Over, Owner, Request, Work};
use crate::front::observe::{Event, Operation, Watch};
use crate::front::spin::SpinHistory;
use crate::wake::Waker;
use larder_core::clock::{Clock, Nanos};
use larder_core::counters::{Classes, Latency};
use larder_core::lane::Notify;
use larder_core::request::{READ_PIECE_BYTES, Status};
use larder_core::units::BLOCK_BYTES;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a read brings at most.
pub(super) const READ_BYTES_MAX: u32 = READ_PIECE_BYTES;
/// The largest payload of a write: large enough to cost little for each byte, and small enough to
/// be kept while it waits.
pub(super) const WRITE_BYTES_MAX: u32 = 256 << 10;
/// Room for a request with its head.
const BUFFER_BYTES: usize = abi::WRITE_HEAD_BYTES + WRITE_BYTES_MAX as usize;
/// Requests taken in before answers that are ready are looked for.
const BATCH_MAX: u32 = 32;
/// Requests of one thread at a time; with more under way it leaves them to others, or waiting.
const REQUESTS_MAX: usize = 512;
/// Bytes of writes that wait for room or for a fill, of all threads together. All the writes that a
/// kernel has under way unasked can wait, so reads do not wait behind them.
const PARKED_BYTES_MAX: usize = 8 << 20;
/// So much of the cache may the reads of one thread pin, in a small cache a sixteenth of it.
const READING_BYTES_MAX: usize = 4 << 20;
const READING_SHARE: usize = 16;
/// How often a stalled request is tried again without having been woken: frames that a reader let
/// go of wake nobody.
const STALL_RETRY: Duration = Duration::from_millis(5);
/// Number of panics after which a thread ends; it refuses all requests after the first one.
const PANICS_MAX: usize = 3;

/// A thread's state.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) waker: Waker,
    pub(super) cache: Arc<ArenaCache>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) desks: Vec<Desk>,
    /// Nodes of a folder that were used lately.
    pub(super) recent: Recent,
    buffer: Box<[u8]>,
    reading_max: usize,
    parked_max: usize,
    /// Until then a folder's disk is waited for by others.
    pub(super) slow_until: Nanos,
    /// When the last request was taken in; grows from one to the next.
    pub(super) arrived_at: Nanos,
    /// Whether a read was among those that were taken in together.
    pub(super) read_in_batch: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, link: Link, waker: Waker) -> Self {
        let cache = Arc::clone(shared.engine.cache());
        let clock = shared.engine.clock();
        let pool = cache.frame_count() as usize * BLOCK_BYTES;
        let parked_max = PARKED_BYTES_MAX / shared.wakers().len();
        Worker {
            shared,
            link,
            waker,
            cache,
            clock,
            desks: Vec::new(),
            recent: Recent::default(),
            // Written, so that its memory is there before the kernel wants to fill it.
            buffer: vec![1; BUFFER_BYTES].into(),
            parked_max,
            reading_max: (pool / READING_SHARE).min(READING_BYTES_MAX),
            slow_until: 0,
            arrived_at: 0,
            read_in_batch: false,
        }
    }

    /// Serves until the file system is unmounted or closed. A panic ends the mount: requests in
    /// flight and all later ones are refused.
    pub(super) fn run(mut self) {
        for _ in 0..PANICS_MAX {
            let Err(panic) = confine(|| self.serve()) else { break };
            panic.end_if_damaging(&self.cache);
            self.shared.fail(&panic);
            if confine(|| self.refuse_all()).is_err() {
                break;
            }
        }
        self.close();
    }

    fn serve(&mut self) {
        let mut spins = SpinHistory::default();
        let (mut spun, mut stays) = (false, false);
        while !self.shared.is_closing() {
            let now = self.clock.now();
            let mut moved = self.take_completions(now) | self.link.take_answers() | spun;
            moved |= std::mem::take(&mut stays);
            // What a spin found counts as taken now.
            self.read_in_batch &= std::mem::take(&mut spun);
            let Some(taken) = self.take_requests() else { break };
            moved |= taken > 0;
            self.publish_events();
            self.leave_removed();
            if moved {
                let alone = taken <= 1 && self.desks.iter().all(Desk::is_quiet);
                if spins.pays(now, alone, self.read_in_batch) {
                    let before = self.shared.spinners.batches();
                    spun = match self.spin() {
                        Ok(spun) => spun,
                        Err(error) => {
                            tracing::error!(%error, "answers cannot be handed over");
                            break;
                        }
                    };
                    // A processor that is not idle keeps those who ask where their requests are
                    // taken, so that it pays for another thread too: as long as that takes some,
                    // if this is the only processor that they could be moved to.
                    let others =
                        self.link.shares_processor() && self.shared.spinners.batches() != before;
                    spins.ended(spun || others);
                    stays = others && self.shared.spinners.is_pair();
                }
                continue;
            }
            if let Err(error) = self.sleep(now) {
                tracing::error!(%error, "waiting for requests failed");
                break;
            }
        }
    }

    /// Refuses the requests in flight in this thread.
    fn refuse_all(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![1; BUFFER_BYTES].into();
        }
        for desk in std::mem::take(&mut self.desks) {
            self.abandon(desk, Errno::IO);
        }
        self.slow_until = 0;
    }

    /// Takes a request. If that panics, the mount ends and the request is refused like all others.
    fn take_confined(&mut self, now: Nanos, bytes: &[u8], lent: Option<&[u8]>) {
        let Err(panic) = confine(|| self.take_request(now, bytes, lent)) else { return };
        panic.end_if_damaging(&self.cache);
        self.shared.fail(&panic);
        // The kernel ignores a second answer.
        let unique = abi::head_of::<InHeader>(bytes).unique;
        self.link.refuse(unique, Errno::IO);
        self.refuse_all();
    }

    /// Takes in all requests that have come and that there is room for; how many. `None` if the
    /// file system is gone.
    pub(super) fn take_requests(&mut self) -> Option<u32> {
        let mut taken = 0;
        // The buffer is lent to the request at hand.
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut is_there = true;
        while taken < BATCH_MAX && self.has_room() {
            match self.link.receive(&mut buffer) {
                Ok(Received::Request(len, lent)) => {
                    taken += 1;
                    // By now it has arrived, and whatever its asker has seen answered came before.
                    let now = self.clock.now();
                    self.take_confined(now, &buffer[..len], lent.as_ref().map(Lent::data));
                    if let Some(lent) = lent {
                        self.link.give_back(lent);
                    }
                }
                Ok(Received::Nothing) => break,
                Ok(Received::Gone) => {
                    is_there = false;
                    break;
                }
                Err(error) => {
                    tracing::error!(%error, "the kernel hands over no requests");
                    is_there = false;
                    break;
                }
            }
        }
        self.buffer = buffer;
        if taken > 0 && self.link.shares_processor() {
            self.shared.spinners.note_batch();
        }
        is_there.then_some(taken)
    }

    /// Whether more requests may be taken in.
    fn has_room(&self) -> bool {
        let sum = |of: fn(&Desk) -> usize| self.desks.iter().map(of).sum::<usize>();
        sum(Desk::requests_len) < REQUESTS_MAX
            && sum(Desk::parked_bytes) <= self.parked_max
            && sum(Desk::reading_bytes) < self.reading_max
    }

    fn take_request(&mut self, now: Nanos, bytes: &[u8], lent: Option<&[u8]>) {
        let header: InHeader = abi::head_of(bytes);
        let len = bytes.len() + lent.map_or(0, <[u8]>::len);
        if bytes.len() < abi::IN_HEADER_BYTES || header.len as usize != len {
            tracing::error!(bytes = len, "the kernel sent a torn request");
            return;
        }
        // Requests that came together are told apart by a nanosecond, which keeps their order.
        self.arrived_at = now.max(self.arrived_at + 1);
        let body = &bytes[abi::IN_HEADER_BYTES..];
        let own = if header.opcode == opcode::WRITE { size_of::<TransferIn>() } else { body.len() };
        let (body, data) = body.split_at(own.min(body.len()));
        if self.shared.has_failed() {
            if !abi::is_unanswered(header.opcode) {
                self.link.refuse(header.unique, Errno::IO);
            }
            return;
        }
        let asked = Asked { header: &header, body, data: lent.unwrap_or(data) };
        fault::point("mount", self.shared.name());
        let shared = Arc::clone(&self.shared);
        match &shared.tree {
            Tree::Volumes(_) => {
                if !self.take_data_request(now, asked) {
                    self.take_node_request(&header, body);
                }
            }
            Tree::Folder { folder, clerks } => {
                if !self.take_file_request((folder, clerks), now, asked) {
                    self.take_folder_request(folder, clerks, now, asked);
                }
            }
        }
    }

    /// Whether this thread may be asked to make files.
    pub(super) fn makes_files(&self) -> bool {
        matches!(self.shared.tree, Tree::Folder { .. })
    }

    /// The desk for the volume that the files of a folder's section are.
    pub(super) fn folder_desk(
        &mut self,
        section: usize,
        volume: &Arc<ArenaVolume>,
    ) -> Result<usize, Errno> {
        let is_its = |desk: &Desk| matches!(desk.owner, Owner::Folder(of) if of == section);
        if let Some(desk) = self.desks.iter().position(is_its) {
            return Ok(desk);
        }
        let notify = Box::new(self.waker.clone());
        let lane = self.cache.try_open_lane(volume, notify);
        let lane = lane.map_err(|_closed| Errno::SHUTDOWN)?;
        self.desks.push(Desk::new(Owner::Folder(section), lane, None));
        Ok(self.desks.len() - 1)
    }

    /// The desk for the volume of a node, opened if need be. One that is there is found without a
    /// lock.
    pub(super) fn desk(&mut self, node: u64) -> Result<usize, Errno> {
        if let Some(index) = self.desks.iter().position(|desk| desk.file().node == node) {
            let is_removed = self.desks[index].file().is_removed();
            return if is_removed { Err(Errno::SHUTDOWN) } else { Ok(index) };
        }
        // A number that is not there any more is that of a file that was removed.
        let file = self.shared.files().at(node).ok_or(Errno::SHUTDOWN)?;
        let notify = Box::new(self.waker.clone());
        let lane = self.cache.try_open_lane(&file.volume, notify);
        let lane = lane.map_err(|_closed| Errno::SHUTDOWN)?;
        let observer = self.shared.observer.as_ref();
        let watch = observer.map(|observer| Watch::begin(observer, &file.name));
        self.desks.push(Desk::new(Owner::Volume(file), lane, watch));
        Ok(self.desks.len() - 1)
    }

    /// Goes on with what has come from the cache, and with what waited for its time.
    pub(super) fn take_completions(&mut self, now: Nanos) -> bool {
        let mut any = false;
        let mut mail = Vec::new();
        for desk in 0..self.desks.len() {
            self.desks[desk].lane.collect(&mut mail);
            for completion in mail.drain(..) {
                any = true;
                let cache = Arc::clone(&self.cache);
                match completion {
                    larder_core::lane::Completion::Unstalled => self.retry_stalled(now, desk),
                    completion => {
                        if let Some(over) = self.desks[desk].tell(&cache, now, completion) {
                            self.call_over(now, desk, over);
                        }
                    }
                }
            }
            while let Some(index) = self.desks[desk].take_delayed(now) {
                any = true;
                self.end_request(now, desk, index);
            }
        }
        any
    }

    fn retry_stalled(&mut self, now: Nanos, desk: usize) {
        let cache = Arc::clone(&self.cache);
        for index in self.desks[desk].take_stalled() {
            if let Some(over) = self.desks[desk].ask_again(&cache, now, index) {
                self.call_over(now, desk, over);
            }
        }
    }

    /// A call has come to its end.
    fn call_over(&mut self, now: Nanos, desk: usize, over: Over) {
        let Over { request, work, status } = over;
        let place = &mut self.desks[desk];
        match work {
            Work::Read(mut read) => {
                place.request(request).classes.add(read.classes());
                if status == Status::Done {
                    let unique = place.request(request).unique;
                    self.link.reply_read(unique, self.cache.frames(), &read);
                    read.release(self.cache.frames());
                }
                place.spare.recycle(read);
            }
            Work::Write(write) => place.request(request).classes.add(write.task.classes()),
            Work::Flush(_) | Work::FlushRange(_) | Work::Exclude(_) => {}
        }
        self.note_status(now, desk, request, &status);
        self.end_request(now, desk, request);
    }

    /// What a call that is over means for its request.
    pub(super) fn note_status(&mut self, now: Nanos, desk: usize, index: usize, status: &Status) {
        self.desks[desk].note_status(now, index, status);
    }

    /// Answers a request if nothing of it is left to do.
    pub(super) fn end_request(&mut self, now: Nanos, desk: usize, index: usize) {
        self.desks[desk].go_on_zeroing(&self.cache, now, index);
        self.desks[desk].go_on_syncing(&self.cache, now, index);
        let Some(request) = self.desks[desk].close(index, now) else { return };
        request.count();
        let Request { unique, kind, started_at, .. } = request;
        match (request.failure, kind) {
            (Some(errno), _) => self.link.refuse(unique, errno),
            // It was answered when its bytes were there.
            (None, Kind::Read) => {}
            (None, Kind::Write) => self.reply_written(unique, request.len),
            (None, Kind::Flush | Kind::Zero { .. }) => self.link.reply(unique, &[]),
        }
        let latency = match kind {
            Kind::Read => Some(Latency::Read),
            Kind::Write => Some(Latency::Write),
            Kind::Flush => Some(Latency::Flush),
            Kind::Zero { .. } => None,
        };
        if let Some(latency) = latency {
            let duration = self.clock.now().saturating_sub(started_at);
            self.desks[desk].lane.recorder().record(latency, duration);
        }
        self.observe(desk, kind, started_at, request.offset..request.len, request.classes);
    }

    /// Notes a request that is answered, for whoever observes; `span` is its offset and length.
    pub(super) fn observe(
        &mut self,
        desk: usize,
        kind: Kind,
        at: Nanos,
        span: std::ops::Range<u64>,
        classes: Classes,
    ) {
        let Some(watch) = &mut self.desks[desk].watch else { return };
        let operation = match kind {
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write,
            Kind::Flush => Operation::Flush,
            Kind::Zero { .. } => Operation::Zero,
        };
        let (offset, len) = (span.start, u32::try_from(span.end).unwrap_or(u32::MAX));
        let class = classes.worst();
        watch.note(Event { at, latency: 0, offset, len, operation, class });
    }

    fn publish_events(&mut self) {
        for desk in &mut self.desks {
            if desk.watch.as_mut().is_some_and(|watch| !watch.publish(&*self.clock)) {
                desk.watch = None;
            }
        }
    }

    /// Gives up the desks of files that were removed, once nothing is under way there or it is cut.
    fn leave_removed(&mut self) {
        let is_left = |desk: &Desk| {
            let Owner::Volume(file) = &desk.owner else { return false };
            file.is_cut() || file.is_removed() && desk.is_quiet()
        };
        while let Some(index) = self.desks.iter().position(is_left) {
            let desk = self.desks.swap_remove(index);
            self.abandon(desk, Errno::SHUTDOWN);
        }
    }

    fn abandon(&mut self, desk: Desk, errno: Errno) {
        for unique in desk.abandon(&self.cache) {
            self.link.refuse(unique, errno);
        }
        // Frames that were pinned here may be what others wait for.
        self.shared.wake_all();
    }

    /// Looks for the next request without sleeping; whether one came.
    fn spin(&mut self) -> std::io::Result<bool> {
        let (shared, clock) = (Arc::clone(&self.shared), Arc::clone(&self.clock));
        let mut handed_over = None;
        let came = shared.spinners.spin(&*clock, || {
            // Where this thread may not spin, answers go with its sleep, which is one call less.
            if handed_over.get_or_insert_with(|| self.link.submit()).is_err() {
                return true;
            }
            // Who was just answered may have been given this processor.
            if self.link.shares_processor() {
                rustix::thread::sched_yield();
            }
            let came = self.has_room() && self.take_requests().is_none_or(|n| n > 0);
            came || self.desks.iter().any(|desk| desk.lane.has_mail())
        });
        handed_over.unwrap_or(Ok(())).map(|()| came)
    }

    fn sleep(&mut self, now: Nanos) -> std::io::Result<()> {
        let delayed = self.desks.iter().filter_map(Desk::next_delayed).min();
        let mut timeout = delayed.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let has_stalled = self.desks.iter().any(Desk::has_stalled);
        if has_stalled {
            timeout = Some(timeout.map_or(STALL_RETRY, |time| time.min(STALL_RETRY)));
        }
        if self.desks.iter().any(|desk| desk.lane.has_mail()) {
            return Ok(());
        }
        if self.has_room() {
            self.link.sleep(&self.waker, timeout)?;
        } else {
            self.link.submit()?;
            self.waker.sleep(None, timeout)?;
        }
        if has_stalled {
            let now = self.clock.now();
            for desk in 0..self.desks.len() {
                self.retry_stalled(now, desk);
            }
        }
        Ok(())
    }

    /// Gives back everything that the thread holds.
    fn close(mut self) {
        self.publish_events();
        for desk in std::mem::take(&mut self.desks) {
            self.abandon(desk, Errno::SHUTDOWN);
        }
        if let Err(error) = self.link.submit() {
            tracing::debug!(%error, "nobody is there for the last answers");
        }
        self.shared.thread_over();
    }
}

impl Shared {
    /// Has all threads look at what has changed.
    pub(super) fn wake_all(&self) {
        for waker in self.wakers() {
            waker.notify();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}
