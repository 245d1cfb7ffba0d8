//! A thread of a mount: it takes requests as they come, answers hits at once, and goes on with the
//! others when their completions arrive.
//!
//! Invariants: the thread waits only in its sleep, for whatever comes next; what it holds for
//! requests that wait is bounded, and beyond that it takes no more of them.

use super::abi::{self, InHeader, TransferIn, opcode};
use super::device::Received;
use super::directory::Recent;
use super::link::{FuseRequest, Link};
use super::mounted::{Shared, Tree};
use super::ring::RingPayload;
use super::volume_session::{InFlight, Owner, VolumeSession};
use crate::engine::{ArenaCache, ArenaVolume};
use crate::fault::{self, confine};
use crate::frames::ArenaFrames;
use crate::front::errors::log_failure;
use crate::front::observe::Watch;
use crate::front::spin::SpinHistory;
use crate::store::files::SourceFile;
use crate::waker::Waker;
use larder_core::clock::{Clock, Nanos};
use larder_core::completion::Notify;
use larder_core::counters::Classes;
use larder_core::request::{
    Event, ImmediateReply, READ_PIECE_BYTES, ReadRequest, Reply, Request, RequestOp, Session,
    Submitted,
};
use larder_core::store::StoreError;
use larder_core::units::BLOCK_BYTES_U64;
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
const READING_BYTES_MAX: u64 = 4 << 20;
const READING_SHARE: u64 = 16;
/// Number of panics after which a thread ends; it refuses all requests after the first one.
const PANICS_MAX: usize = 3;

/// A thread's state.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) waker: Waker,
    pub(super) cache: Arc<ArenaCache>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sessions: Vec<VolumeSession>,
    /// Nodes of a directory that were used lately.
    pub(super) recent: Recent,
    buffer: Box<[u8]>,
    reading_max: u64,
    parked_max: usize,
    /// Until then a directory's disk is waited for by others.
    pub(super) slow_until: Nanos,
    /// When the last request was taken in; grows from one to the next.
    pub(super) arrived_at: Nanos,
    /// Whether a read was among those that were taken in together.
    pub(super) read_in_batch: bool,
    /// True if the device had no more requests at the last read.
    is_drained: bool,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, link: Link, waker: Waker) -> Self {
        let cache = Arc::clone(shared.engine.cache());
        let clock = shared.engine.clock();
        let pool = u64::from(cache.frame_count()) * BLOCK_BYTES_U64;
        let parked_max = PARKED_BYTES_MAX / shared.wakers().len();
        Worker {
            shared,
            link,
            waker,
            cache,
            clock,
            sessions: Vec::new(),
            recent: Recent::default(),
            // Written, so that its memory is there before the kernel wants to fill it.
            buffer: vec![1; BUFFER_BYTES].into(),
            parked_max,
            reading_max: (pool / READING_SHARE).min(READING_BYTES_MAX),
            slow_until: 0,
            arrived_at: 0,
            read_in_batch: false,
            is_drained: false,
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
                let alone = taken <= 1 && self.sessions.iter().all(VolumeSession::is_idle);
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
                    continue;
                }
                // The device also reports requests that have arrived since, so there is no need to
                // look again before the sleep.
                if !self.is_drained || self.link.shares_processor() {
                    continue;
                }
            }
            if let Err(error) = self.sleep() {
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
        for session in std::mem::take(&mut self.sessions) {
            self.close_session(session, Errno::IO);
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
        self.is_drained = false;
        // The buffer is lent to the request at hand.
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut is_there = true;
        while taken < BATCH_MAX && self.has_room() {
            match self.link.receive(&mut buffer) {
                Ok(Received::Request(len, lent)) => {
                    if taken == 0 {
                        self.shared.spinners.begin_batch();
                    }
                    taken += 1;
                    // By now it has arrived, and whatever its asker has seen answered came before.
                    let now = self.clock.now();
                    self.take_confined(now, &buffer[..len], lent.as_ref().map(RingPayload::data));
                    if let Some(lent) = lent {
                        self.link.give_back(lent);
                    }
                }
                Ok(Received::Nothing) => {
                    self.is_drained = true;
                    break;
                }
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
        if taken > 0 {
            self.shared.spinners.end_batch();
        }
        is_there.then_some(taken)
    }

    /// Whether more requests may be taken in.
    fn has_room(&self) -> bool {
        let is_full = matches!(&self.shared.tree, Tree::Directory { pool, .. } if pool.is_full());
        let requests = || self.sessions.iter().map(|session| &session.requests);
        !is_full
            && requests().map(Session::in_flight).sum::<usize>() < REQUESTS_MAX
            && requests().map(Session::parked_bytes).sum::<usize>() <= self.parked_max
            && requests().map(Session::pinned_bytes).sum::<u64>() < self.reading_max
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
        let asked = FuseRequest { header: &header, body, data: lent.unwrap_or(data) };
        fault::point("mount", self.shared.name());
        let shared = Arc::clone(&self.shared);
        match &shared.tree {
            Tree::Volumes(_) => {
                if !self.take_data_request(now, asked) {
                    self.take_node_request(&header, body);
                }
            }
            Tree::Directory { directory, pool } => {
                if !self.take_file_request((directory, pool), now, asked) {
                    self.take_directory_request(directory, pool, now, asked);
                }
            }
        }
    }

    /// Whether this thread may be asked to make files.
    pub(super) fn makes_files(&self) -> bool {
        matches!(self.shared.tree, Tree::Directory { .. })
    }

    /// Returns the session on the volume of a directory's section. Opens it if necessary.
    pub(super) fn section_session(
        &mut self,
        section: usize,
        volume: &Arc<ArenaVolume>,
    ) -> Result<usize, Errno> {
        let is_its =
            |open: &VolumeSession| matches!(open.owner, Owner::Section(of) if of == section);
        if let Some(index) = self.sessions.iter().position(is_its) {
            return Ok(index);
        }
        self.open_session(volume, Owner::Section(section))
    }

    /// Returns the session on the volume of a node. Opens it if necessary, and finds an open one
    /// without a lock.
    pub(super) fn node_session(&mut self, node: u64) -> Result<usize, Errno> {
        if let Some(index) = self.sessions.iter().position(|open| open.file().node == node) {
            let is_removed = self.sessions[index].file().is_removed();
            return if is_removed { Err(Errno::SHUTDOWN) } else { Ok(index) };
        }
        // A number that is not there any more is that of a file that was removed.
        let file = self.shared.files().at(node).ok_or(Errno::SHUTDOWN)?;
        let index = self.open_session(&file.volume, Owner::Volume(Arc::clone(&file)))?;
        let observer = self.shared.observer.as_ref();
        let watch = observer.map(|observer| Watch::begin(observer, &file.name));
        self.sessions[index].watch = watch;
        Ok(index)
    }

    fn open_session(&mut self, volume: &Arc<ArenaVolume>, owner: Owner) -> Result<usize, Errno> {
        let opened = VolumeSession::open(&self.cache, volume, &self.waker, owner);
        self.sessions.push(opened.map_err(|_closed| Errno::SHUTDOWN)?);
        Ok(self.sessions.len() - 1)
    }

    /// Processes completions of the cache and delayed replies that are due.
    pub(super) fn take_completions(&mut self, now: Nanos) -> bool {
        let mut any = false;
        for index in 0..self.sessions.len() {
            any |= self.sessions[index].requests.advance(&self.cache, now);
            self.answer_ended(now, index);
        }
        any
    }

    /// Submits a request, and answers it if it is complete.
    pub(super) fn submit(
        &mut self,
        now: Nanos,
        index: usize,
        request: Request,
        payload: &[u8],
        in_flight: InFlight,
    ) {
        let mut kept = Some(in_flight);
        let context = || kept.take().expect("a request is queued once");
        let requests = &mut self.sessions[index].requests;
        match requests.submit(&self.cache, now, request, payload, context) {
            Submitted::Done(ImmediateReply { data, classes }) => {
                let request = kept.take().expect("the request was not queued");
                self.answer(now, index, (&request, request.file.as_ref()), Ok(data), classes);
            }
            Submitted::Queued(_) => self.answer_ended(now, index),
        }
    }

    /// Answers the requests of a session that have ended.
    pub(super) fn answer_ended(&mut self, now: Nanos, index: usize) {
        while let Some(event) = self.sessions[index].requests.poll_event() {
            let Event::End(Reply { context: request, data, error, classes, .. }) = event else {
                unreachable!("each read of a mount is one piece")
            };
            let ended = error.map_or(Ok(data), Err);
            self.answer(now, index, (&request, request.file.as_ref()), ended, classes);
        }
    }

    /// Answers a request that has ended.
    pub(super) fn answer(
        &mut self,
        now: Nanos,
        index: usize,
        (request, file): (&InFlight, Option<&Arc<SourceFile>>),
        ended: Result<Option<Box<ReadRequest<ArenaFrames>>>, StoreError>,
        classes: Classes,
    ) {
        let InFlight { unique, op, arrived_at, offset, len, .. } = *request;
        if let Some(file) = file {
            file.count(classes);
        }
        request.note_end();
        match ended {
            Err(error) => self.link.refuse(unique, log_failure(&error)),
            Ok(Some(read)) => {
                self.link.reply_read(unique, self.cache.frames(), &read);
                self.sessions[index].requests.release(&self.cache, now, read);
            }
            Ok(None) if op == RequestOp::Write => self.reply_written(unique, len),
            Ok(None) => self.link.reply(unique, &[]),
        }
        let duration = self.clock.now().saturating_sub(arrived_at);
        let session = &mut self.sessions[index];
        session.requests.record_latency(op, duration);
        if let Some(watch) = &mut session.watch {
            watch.note(op, arrived_at, (offset, len), classes);
        }
    }

    fn publish_events(&mut self) {
        for session in &mut self.sessions {
            if session.watch.as_mut().is_some_and(|watch| !watch.publish(&*self.clock)) {
                session.watch = None;
            }
        }
    }

    /// Closes the sessions of removed files that have no request in flight, and of files that are
    /// cut off.
    fn leave_removed(&mut self) {
        let is_left = |session: &VolumeSession| {
            let Owner::Volume(file) = &session.owner else { return false };
            file.is_cut() || file.is_removed() && session.is_idle()
        };
        while let Some(index) = self.sessions.iter().position(is_left) {
            let session = self.sessions.swap_remove(index);
            self.close_session(session, Errno::SHUTDOWN);
        }
    }

    fn close_session(&mut self, session: VolumeSession, errno: Errno) {
        for unique in session.close(&self.cache) {
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
            if self.link.shares_processor() || shared.spinners.requests_overlap() {
                rustix::thread::sched_yield();
            }
            let came = self.has_room() && self.take_requests().is_none_or(|n| n > 0);
            came || self.has_completions()
        });
        handed_over.unwrap_or(Ok(())).map(|()| came)
    }

    fn has_completions(&self) -> bool {
        self.sessions.iter().any(|session| session.requests.has_completions())
    }

    fn sleep(&mut self) -> std::io::Result<()> {
        let deadlines = self.sessions.iter().filter_map(|open| open.requests.next_deadline());
        let timeout =
            deadlines.min().map(|at| Duration::from_nanos(at.saturating_sub(self.clock.now())));
        if self.has_completions() {
            return Ok(());
        }
        if self.has_room() {
            self.link.sleep(&self.waker, timeout)?;
        } else {
            self.link.submit()?;
            self.waker.sleep(None, timeout)?;
        }
        Ok(())
    }

    /// Gives back everything that the thread holds.
    fn close(mut self) {
        self.publish_events();
        for session in std::mem::take(&mut self.sessions) {
            self.close_session(session, Errno::SHUTDOWN);
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
