//! A thread of a mount: it receives requests, answers hits at once, and continues the others when
//! their completions arrive.
//!
//! Invariants: the thread waits only in its sleep, which any event ends; the resources that it
//! holds for waiting requests are bounded, and beyond the bound it receives no further requests.

mod directory_requests;

use super::abi::{self, InHeader, TransferIn, opcode};
use super::device::Received;
use super::directory::RecentNodes;
use super::link::{FuseRequest, Link};
use super::ring::RingPayload;
use super::shared::{MountContents, Shared};
use super::volume_session::{InFlight, VolumeFiles, VolumeSession};
use crate::engine::{ArenaCache, ArenaVolume};
use crate::fault::{self, confine};
use crate::frames::ArenaFrames;
use crate::front::errors::log_failure;
use crate::front::observe::RequestRecorder;
use crate::front::spin::SpinHistory;
use crate::store::files::SourceFile;
use crate::waker::Waker;
use larder_core::clock::{Clock, Nanos};
use larder_core::counters::Classes;
use larder_core::request::{
    Event, ImmediateReply, ReadRequest, Reply, Request, RequestOp, Session, Submitted,
};
use larder_core::store::StoreError;
use larder_core::units::BLOCK_BYTES_U64;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of the longest request with its header.
const BUFFER_BYTES: usize = abi::WRITE_HEAD_BYTES + abi::WRITE_BYTES_MAX as usize;
/// Maximum number of requests received before completions are processed.
const BATCH_MAX: u32 = 32;
/// Maximum number of requests in flight of one thread; it leaves further ones to other threads, or
/// waiting in the kernel.
const REQUESTS_MAX: usize = 512;
/// Maximum bytes of writes that wait for room or for a fill, of all threads together. All
/// background writes of the kernel fit, so reads do not wait behind them.
const PARKED_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of the cache that the reads of one thread pin; in a small cache a sixteenth of it.
const READING_BYTES_MAX: u64 = 4 << 20;
const READING_SHARE: u64 = 16;
/// Time for which a thread leaves the requests to another one that is polling for them. Then it
/// looks if that thread is held up.
const NAP: Duration = Duration::from_millis(1);
/// Number of panics after which a thread ends; it refuses all requests after the first one.
const PANICS_MAX: usize = 3;

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) waker: Waker,
    pub(super) cache: Arc<ArenaCache>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sessions: Vec<VolumeSession>,
    /// Recently used nodes of a directory.
    pub(super) recent: RecentNodes,
    buffer: Box<[u8]>,
    reading_max: u64,
    parked_max: usize,
    /// Time until which only blocking workers handle requests that may wait for the directory's
    /// disk.
    pub(super) slow_until: Nanos,
    /// Arrival time of the last request; increases from request to request.
    pub(super) arrived_at: Nanos,
    /// True if the current batch of requests contains a read.
    pub(super) read_in_batch: bool,
    /// True if the device had no more requests at the last read.
    is_drained: bool,
    /// Number of batches that all threads had answered at the last sleep of this one, plus those
    /// that it has answered since.
    batches_seen: u64,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, link: Link, waker: Waker) -> Self {
        let cache = Arc::clone(shared.engine.cache());
        let clock = shared.engine.clock();
        let pool = u64::from(cache.frame_count()) * BLOCK_BYTES_U64;
        let parked_max = PARKED_BYTES_MAX / shared.wakers.len();
        Worker {
            shared,
            link,
            waker,
            cache,
            clock,
            sessions: Vec::new(),
            recent: RecentNodes::default(),
            // Filled with ones, so that its memory is allocated before the kernel fills it.
            buffer: vec![1; BUFFER_BYTES].into(),
            parked_max,
            reading_max: (pool / READING_SHARE).min(READING_BYTES_MAX),
            slow_until: 0,
            arrived_at: 0,
            read_in_batch: false,
            is_drained: false,
            batches_seen: 0,
        }
    }

    /// Serves until the file system is unmounted or closed. A panic ends the mount: requests in
    /// flight and all later ones are refused.
    pub(super) fn run(mut self) {
        for _ in 0..PANICS_MAX {
            let Err(panic) = confine(|| self.serve()) else { break };
            panic.end_if_damaging(&self.cache);
            self.shared.failure.fail(&panic);
            if confine(|| self.refuse_all()).is_err() {
                break;
            }
        }
        self.close();
    }

    fn serve(&mut self) {
        let mut spin_history = SpinHistory::default();
        let (mut spin_found, mut stays_awake) = (false, false);
        while !self.shared.is_closing() {
            let now = self.clock.now();
            let mut progressed =
                self.take_completions(now) | self.link.take_queued_answers() | spin_found;
            progressed |= std::mem::take(&mut stays_awake);
            // Requests that a spin has received count as received now.
            self.read_in_batch &= std::mem::take(&mut spin_found);
            let Some(taken) = self.take_requests() else { break };
            progressed |= taken > 0;
            self.publish_events();
            self.close_removed_sessions();
            if progressed {
                let is_single = taken <= 1 && self.sessions.iter().all(VolumeSession::is_idle);
                if spin_history.should_spin(now, is_single, self.read_in_batch) {
                    let before = self.shared.spinners.batches();
                    spin_found = match self.spin() {
                        Ok(spin_found) => spin_found,
                        Err(error) => {
                            tracing::error!(%error, "answers cannot be handed over");
                            break;
                        }
                    };
                    // While this processor is busy, the scheduler leaves the requesting processes
                    // of other threads on the processors where their requests are received, so
                    // spinning also pays for those threads. With two processors, this thread
                    // continues as long as the other one receives requests.
                    let others_progress =
                        self.link.shares_processor() && self.shared.spinners.batches() != before;
                    spin_history.record_spin(spin_found || others_progress);
                    stays_awake = others_progress && self.shared.spinners.has_two_processors();
                    continue;
                }
                // The device also reports requests that have arrived since, so the thread need not
                // poll again before the sleep.
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

    /// Handles a request. If that panics, the mount ends and the request is refused like all
    /// others.
    fn take_confined(
        &mut self,
        now: Nanos,
        header: &InHeader,
        bytes: &[u8],
        payload: Option<&[u8]>,
    ) {
        let Err(panic) = confine(|| self.take_request(now, header, bytes, payload)) else {
            return;
        };
        panic.end_if_damaging(&self.cache);
        self.shared.failure.fail(&panic);
        // The kernel ignores a second reply.
        self.link.refuse(header.unique, Errno::IO);
        self.refuse_all();
    }

    /// Receives and handles the available requests for which there is room; returns their number.
    /// `None` if the file system is unmounted.
    pub(super) fn take_requests(&mut self) -> Option<u32> {
        let (mut taken, mut awaited) = (0, 0);
        self.is_drained = false;
        // The current request borrows the buffer.
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut is_mounted = true;
        while taken < BATCH_MAX && self.has_room() {
            let received = self.link.receive(&mut buffer).unwrap_or_else(|error| {
                tracing::error!(%error, "the kernel hands over no requests");
                Received::Unmounted
            });
            match received {
                Received::Request(len, payload) => {
                    let header: InHeader = abi::head_of(&buffer[..len]);
                    if awaited < 2 && abi::is_awaited(header.opcode) {
                        awaited += 1;
                        match awaited {
                            1 => self.shared.spinners.begin_batch(),
                            _ => self.shared.spinners.note_backlog(),
                        }
                    }
                    taken += 1;
                    // The request has arrived before this time, and after all replies that its
                    // process has received.
                    let now = self.clock.now();
                    let data = payload.as_ref().map(RingPayload::data);
                    self.take_confined(now, &header, &buffer[..len], data);
                    if let Some(payload) = payload {
                        self.link.return_payload(payload);
                    }
                }
                Received::Nothing => {
                    self.is_drained = true;
                    break;
                }
                Received::Unmounted => {
                    is_mounted = false;
                    break;
                }
            }
        }
        self.buffer = buffer;
        if awaited > 0 {
            self.shared.spinners.end_batch();
            self.batches_seen += 1;
        }
        is_mounted.then_some(taken)
    }

    fn has_room(&self) -> bool {
        let is_full =
            matches!(&self.shared.tree, MountContents::Directory(tree) if tree.pool.is_full());
        let requests = || self.sessions.iter().map(|session| &session.requests);
        !is_full
            && requests().map(Session::in_flight).sum::<usize>() < REQUESTS_MAX
            && requests().map(Session::parked_bytes).sum::<usize>() <= self.parked_max
            && requests().map(Session::pinned_bytes).sum::<u64>() < self.reading_max
    }

    fn take_request(
        &mut self,
        now: Nanos,
        header: &InHeader,
        bytes: &[u8],
        payload: Option<&[u8]>,
    ) {
        let len = bytes.len() + payload.map_or(0, <[u8]>::len);
        if bytes.len() < abi::IN_HEADER_BYTES || header.len as usize != len {
            tracing::error!(bytes = len, "the kernel sent a torn request");
            return;
        }
        // Requests of one batch get arrival times that differ by a nanosecond, which keeps their
        // order.
        self.arrived_at = now.max(self.arrived_at + 1);
        let body = &bytes[abi::IN_HEADER_BYTES..];
        let head_len =
            if header.opcode == opcode::WRITE { size_of::<TransferIn>() } else { body.len() };
        let (body, data) = body.split_at(head_len.min(body.len()));
        if self.shared.failure.has_failed() {
            if !abi::is_unanswered(header.opcode) {
                self.link.refuse(header.unique, Errno::IO);
            }
            return;
        }
        let request = FuseRequest { header, body, data: payload.unwrap_or(data) };
        fault::point("mount", self.shared.failure.name());
        let shared = Arc::clone(&self.shared);
        match &shared.tree {
            MountContents::Volumes(_) => {
                if !self.take_data_request(now, request) {
                    self.take_node_request(header, body);
                }
            }
            MountContents::Directory(directory) => {
                if !self.take_file_request(directory, now, request) {
                    self.take_directory_request(directory, now, request);
                }
            }
        }
    }

    /// Returns true if this thread may have to create files.
    pub(super) fn creates_files(&self) -> bool {
        matches!(self.shared.tree, MountContents::Directory(_))
    }

    /// Returns the session on the volume of a directory's section. Opens it if necessary.
    pub(super) fn section_session(
        &mut self,
        section: usize,
        volume: &Arc<ArenaVolume>,
    ) -> Result<usize, Errno> {
        let has_section =
            |open: &VolumeSession| matches!(open.owner, VolumeFiles::Section(of) if of == section);
        if let Some(index) = self.sessions.iter().position(has_section) {
            return Ok(index);
        }
        self.open_session(volume, VolumeFiles::Section(section))
    }

    /// Returns the session on the volume of a node. Opens it if necessary, and finds an open one
    /// without a lock.
    pub(super) fn node_session(&mut self, node: u64) -> Result<usize, Errno> {
        if let Some(index) = self.sessions.iter().position(|open| open.file().node == node) {
            let is_removed = self.sessions[index].file().removed.load(Ordering::Acquire);
            return if is_removed { Err(Errno::SHUTDOWN) } else { Ok(index) };
        }
        // An unknown node number is that of a removed file.
        let file = self.shared.files().by_node(node).ok_or(Errno::SHUTDOWN)?;
        let index = self.open_session(&file.volume, VolumeFiles::Volume(Arc::clone(&file)))?;
        let observer = self.shared.observer.as_ref();
        let recorder = observer.map(|observer| RequestRecorder::begin(observer, &file.name));
        self.sessions[index].recorder = recorder;
        Ok(index)
    }

    fn open_session(
        &mut self,
        volume: &Arc<ArenaVolume>,
        owner: VolumeFiles,
    ) -> Result<usize, Errno> {
        let opened = VolumeSession::open(&self.cache, volume, &self.waker, owner);
        self.sessions.push(opened.map_err(|_closed| Errno::SHUTDOWN)?);
        Ok(self.sessions.len() - 1)
    }

    /// Processes completions of the cache and delayed replies that are due. Returns true if there
    /// were any.
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
        let mut record = Some(in_flight);
        let context = || record.take().expect("a request is queued once");
        let requests = &mut self.sessions[index].requests;
        match requests.submit(&self.cache, now, request, payload, context) {
            Submitted::Done(ImmediateReply { data, classes }) => {
                let request = record.take().expect("the request was not queued");
                self.answer(now, index, (&request, request.file.as_ref()), Ok(data), classes);
            }
            Submitted::Queued(_) => self.answer_ended(now, index),
        }
    }

    pub(super) fn answer_ended(&mut self, now: Nanos, index: usize) {
        while let Some(event) = self.sessions[index].requests.poll_event() {
            let Event::End(Reply { context: request, data, error, classes, .. }) = event else {
                unreachable!("each read of a mount is one piece")
            };
            let result = error.map_or(Ok(data), Err);
            self.answer(now, index, (&request, request.file.as_ref()), result, classes);
        }
    }

    pub(super) fn answer(
        &mut self,
        now: Nanos,
        index: usize,
        (request, file): (&InFlight, Option<&Arc<SourceFile>>),
        result: Result<Option<Box<ReadRequest<ArenaFrames>>>, StoreError>,
        classes: Classes,
    ) {
        let InFlight { unique, op, arrived_at, offset, len, .. } = *request;
        if let Some(file) = file {
            file.count(classes);
        }
        request.record_end();
        match result {
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
        if let Some(recorder) = &mut session.recorder {
            recorder.record(op, arrived_at, (offset, len), classes);
        }
    }

    fn publish_events(&mut self) {
        for session in &mut self.sessions {
            if session.recorder.as_mut().is_some_and(|recorder| !recorder.publish(&*self.clock)) {
                session.recorder = None;
            }
        }
    }

    /// Closes the sessions of removed files that have no request in flight, and the sessions of
    /// files whose requests are cancelled.
    fn close_removed_sessions(&mut self) {
        let is_closable = |session: &VolumeSession| {
            let VolumeFiles::Volume(file) = &session.owner else { return false };
            file.cancelled.load(Ordering::Acquire)
                || file.removed.load(Ordering::Acquire) && session.is_idle()
        };
        while let Some(index) = self.sessions.iter().position(is_closable) {
            let session = self.sessions.swap_remove(index);
            self.close_session(session, Errno::SHUTDOWN);
        }
    }

    fn close_session(&mut self, session: VolumeSession, errno: Errno) {
        for unique in session.close(&self.cache) {
            self.link.refuse(unique, errno);
        }
        // Other sessions may wait for frames that this one had pinned.
        self.shared.wake_all();
    }

    /// Polls for the next request without sleeping. Returns true if one came.
    fn spin(&mut self) -> std::io::Result<bool> {
        let (shared, clock) = (Arc::clone(&self.shared), Arc::clone(&self.clock));
        let mut submitted = None;
        let has_received = shared.spinners.spin(&*clock, || {
            // If this thread may not spin, its sleep submits the replies, which saves a system
            // call.
            if submitted.get_or_insert_with(|| self.link.submit()).is_err() {
                return true;
            }
            // The process that got the last reply may be scheduled on this processor.
            if self.link.shares_processor() || shared.spinners.requests_overlap() {
                rustix::thread::sched_yield();
            }
            let has_received = self.has_room() && self.take_requests().is_none_or(|n| n > 0);
            has_received || self.has_completions()
        });
        submitted.unwrap_or(Ok(())).map(|()| has_received)
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
            // A request wakes a thread that waits for the device, even while another one is polling
            // and receives it first. A nap avoids such wake-ups, which the client pays for.
            let spinners = &self.shared.spinners;
            let naps = !self.link.shares_processor() && spinners.is_attended(self.batches_seen);
            self.batches_seen = spinners.batches();
            if naps {
                self.waker.sleep(None, Some(timeout.map_or(NAP, |timeout| timeout.min(NAP))))?;
            } else {
                self.link.sleep(&self.waker, timeout)?;
            }
        } else {
            self.link.submit()?;
            self.waker.sleep(None, timeout)?;
        }
        Ok(())
    }

    fn close(mut self) {
        self.publish_events();
        for session in std::mem::take(&mut self.sessions) {
            self.close_session(session, Errno::SHUTDOWN);
        }
        if let Err(error) = self.link.submit() {
            tracing::debug!(%error, "the last replies could not be sent");
        }
        self.shared.thread_ended();
    }
}
