//! A connection: handshake, then requests until the client is gone.
//!
//! The loop of a connection: take in what the inbox brought, receive, answer what can be answered,
//! send, and only when nothing of that moved anything, wait. A client that asks one thing at a time
//! is waited for by spinning for a moment, since waking a sleeping thread costs more than the
//! answer; a client that keeps many requests under way is not.

mod drain;
mod greet;
mod parts;
mod reads;
mod requests;
mod writes;

use super::exports::Export;
use super::handshake::Negotiated;
use super::input::{Input, Received};
use super::output::Output;
use super::reply_memory::Lease;
use super::server::Shared;
use super::socket::Socket;
use super::transport::Transport;
use super::wire;
use crate::engine::{ArenaCache, ArenaLane};
use crate::fault::{self, Thread, confine};
use crate::frames::ArenaFrames;
use crate::front::observe::{Event, Operation, Watch};
use crate::front::spin::SpinHistory;
use crate::wake::Waker;
use drain::SendTimer;
use greet::shake_hands;
use larder_core::clock::{Clock, Nanos};
use larder_core::counters::{Classes, Latency};
use larder_core::lane::{Completion, Notify};
use larder_core::request::READ_PIECE_BYTES;
use larder_core::units::BLOCK_BYTES;
use parts::{Parts, Request};
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use writes::Payload;

/// Memory of unsent replies outside the cache above which no more requests are read. A client that
/// does not receive its replies blocks only itself.
const REPLY_HEAP_BYTES_MAX: usize = 32 << 10;
/// Idle time after which a connection releases its receive buffer.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// How often a stalled request is tried again without having been woken: frames that a reader let
/// go of wake nobody.
const STALL_RETRY: Duration = Duration::from_millis(5);

/// A connection, seen from the server.
pub(super) struct Connection {
    socket: Arc<Socket>,
    waker: Waker,
    done: Arc<AtomicBool>,
    /// What it serves, once that is agreed on.
    export: Arc<OnceLock<Export>>,
    /// Address of a TCP client.
    peer: Option<IpAddr>,
    /// Whether it is to be ended from outside, which ends it even with requests under way.
    cut: Arc<AtomicBool>,
    thread: Mutex<Option<Thread>>,
}

impl Connection {
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns whether the client has not agreed on an export yet.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.export.get().is_none() && !self.is_done()
    }

    /// Returns whether the client has sent anything.
    pub(super) fn has_received(&self) -> bool {
        self.socket.has_received()
    }

    /// Returns the address of a TCP client.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    pub(super) fn serves(&self, export: &Export) -> bool {
        self.export.get().is_some_and(|own| own.is(export))
    }

    /// Has it look whether its export is still there.
    pub(super) fn wake(&self) {
        self.waker.notify();
    }

    pub(super) fn close(&self) {
        self.cut.store(true, Ordering::Release);
        self.socket.shut_down();
        self.waker.notify();
    }

    pub(super) fn join(&self) {
        if let Some(thread) = self.thread.lock().expect("no holder panics").take() {
            thread.join();
        }
    }
}

/// Starts the thread of a connection.
pub(super) fn serve_connection(shared: Arc<Shared>, socket: Socket) -> io::Result<Arc<Connection>> {
    let peer = socket.peer();
    let socket = Arc::new(socket);
    let waker = Waker::new()?;
    let done = Arc::new(AtomicBool::new(false));
    let (export, cut) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
    let thread = {
        let (socket, waker, done) = (Arc::clone(&socket), waker.clone(), Arc::clone(&done));
        let (export, cut) = (Arc::clone(&export), Arc::clone(&cut));
        let cache = Arc::clone(shared.engine.cache());
        let run = move || {
            let _done = EndWhenDropped { done, socket: Arc::clone(&socket) };
            converse(&shared, &socket, &waker, &export, &cut);
        };
        let failed = |error: &dyn fmt::Display| tracing::error!("a connection has ended: {error}");
        fault::spawn("connection", Some(&cache), run, failed)?
    };
    let thread = Mutex::new(Some(thread));
    Ok(Arc::new(Connection { socket, waker, done, export, peer, cut, thread }))
}

/// Shuts down the socket of a connection, and then marks the connection as done.
struct EndWhenDropped {
    done: Arc<AtomicBool>,
    socket: Arc<Socket>,
}

impl Drop for EndWhenDropped {
    fn drop(&mut self) {
        self.socket.shut_down();
        self.done.store(true, Ordering::Release);
    }
}

fn converse(
    shared: &Arc<Shared>,
    socket: &Socket,
    waker: &Waker,
    serves: &OnceLock<Export>,
    cut: &AtomicBool,
) {
    let mut input = Input::new();
    let mut exports = shared.exports.list();
    let mut transport = Transport::new(socket);
    let agreed = shake_hands(shared, &exports, &mut transport, waker, &mut input);
    let Some((negotiated, _place)) = agreed else {
        transport.close();
        return;
    };
    let export = serves.get_or_init(|| exports.swap_remove(negotiated.export));
    let cache = Arc::clone(shared.engine.cache());
    if export.is_removed() {
        return;
    }
    // Its volume may be gone since.
    let Ok(lane) = cache.try_open_lane(&export.volume, Box::new(waker.clone())) else { return };
    let mut session = Session {
        export,
        cut,
        shared,
        transport,
        waker,
        negotiated,
        lease: Lease::default(),
        input: input.for_requests(),
        output: Output::default(),
        send_timer: SendTimer::new(shared.limits.send_time_max),
        parts: Parts::default(),
        payload: None,
        alone: None,
        leaving: false,
        finished_reads: 0,
        finished_writes: 0,
        batch: 0,
        read_in_batch: false,
        arrived_at: 0,
        watch: shared.observer.as_ref().map(|observer| Watch::begin(observer, &export.info.name)),
        lane,
        cache,
        clock: shared.engine.clock(),
    };
    let ended = confine(|| session.run());
    if let Err(panic) = &ended {
        // Its pins and its lane are released anyway.
        let effect = format!("disconnected a client of {}", session.export.info.name);
        panic.report(&session.cache, &effect);
    }
    session.close();
}

/// A connection in transmission.
struct Session<'a> {
    export: &'a Export,
    cut: &'a AtomicBool,
    shared: &'a Shared,
    transport: Transport<'a>,
    waker: &'a Waker,
    negotiated: Negotiated,
    /// Lease of cache memory that its replies may pin beyond its own share.
    lease: Lease,
    cache: Arc<ArenaCache>,
    clock: Arc<dyn Clock>,
    lane: ArenaLane,
    input: Input,
    output: Output,
    send_timer: SendTimer,
    parts: Parts,
    /// A payload that has not come whole.
    payload: Option<Payload>,
    /// A request that is served alone: a large read in simple replies.
    alone: Option<usize>,
    /// The client said goodbye: no more requests.
    leaving: bool,
    /// Requests of this batch that were finished at once, to be recorded when they are sent.
    finished_reads: u32,
    finished_writes: u32,
    /// Requests in this batch, and whether a read was among them.
    batch: u32,
    read_in_batch: bool,
    /// When the last request was taken in; grows from one to the next.
    arrived_at: Nanos,
    /// Who is told of the requests that were answered.
    watch: Option<Watch>,
}

impl Session<'_> {
    fn frames(&self) -> Arc<ArenaCache> {
        Arc::clone(&self.cache)
    }

    fn run(&mut self) {
        let mut completions = Vec::new();
        let mut spins = SpinHistory::default();
        loop {
            let mut now = self.clock.now();
            self.lane.collect(&mut completions);
            let mut moved = !completions.is_empty();
            for completion in completions.drain(..) {
                self.take_in(now, completion);
            }
            moved |= self.release_delayed(now);
            if self.is_open() {
                match self.receive() {
                    Received::Some => {
                        moved = true;
                        // What has come arrived before this, and after whatever its client has seen
                        // answered on other connections.
                        now = self.clock.now();
                    }
                    Received::Nothing => {}
                    Received::Closed => return,
                }
            }
            self.batch = 0;
            self.read_in_batch = false;
            let Some(parsed) = self.parse(now) else { return };
            moved |= parsed;
            let backlog = self.output.backlog();
            if backlog > 0 || self.transport.has_unsent() {
                let frames = self.frames();
                if !self.output.send(frames.frames(), &mut self.transport) {
                    return;
                }
                // There may be room now for requests that have been received already, of which no
                // socket tells.
                moved |= self.output.backlog() < backlog;
            }
            moved |= self.resume_reads(now);
            self.settle_lease();
            self.record_batch(now);
            self.publish_events();
            if self.shared.closing.load(Ordering::Acquire) || self.cut.load(Ordering::Acquire) {
                return;
            }
            if self.is_stuck(now) {
                self.transport.shut_down();
                return;
            }
            if self.export.is_removed() && self.is_quiet() {
                return;
            }
            if self.leaving && self.parts.is_empty() && self.all_sent() {
                return;
            }
            if moved {
                // One thing at a time: it pays to look for the next one.
                let alone = self.batch <= 1 && self.all_sent();
                if spins.pays(now, alone, self.read_in_batch) {
                    spins.ended(self.spin());
                }
                continue;
            }
            if self.sleep(now).is_err() {
                return;
            }
        }
    }

    /// Whether the socket has taken all answers.
    fn all_sent(&self) -> bool {
        self.output.backlog() == 0 && !self.transport.has_unsent()
    }

    /// Whether nothing of the client's is under way.
    fn is_quiet(&self) -> bool {
        self.parts.is_empty() && self.payload.is_none() && self.all_sent()
    }

    fn receive(&mut self) -> Received {
        self.input.receive(&mut self.transport, self.payload.is_some())
    }

    /// Whether requests may be received.
    fn is_open(&self) -> bool {
        !self.leaving && self.alone.is_none() && self.takes_answers() && self.parts.has_room()
    }

    /// Whether the client takes its answers fast enough for more.
    fn takes_answers(&self) -> bool {
        self.output.heap_bytes() < REPLY_HEAP_BYTES_MAX
    }

    /// Returns the bytes of the cache that replies pin, or will pin when the store has read them.
    fn pinned_bytes(&self) -> usize {
        self.output.pinned_bytes() + self.parts.reading_bytes()
    }

    fn cache_bytes(&self) -> usize {
        self.cache.frame_count() as usize * BLOCK_BYTES
    }

    /// Returns how much of a read of `len` bytes may be pinned now: all, a smaller piece, or none.
    fn grant_piece(&mut self, len: u32) -> u32 {
        // Frames at unaligned ends are pinned as a whole.
        let wanted = (len as usize).min(READ_PIECE_BYTES as usize) + 2 * BLOCK_BYTES;
        let (cache_bytes, pinned_bytes) = (self.cache_bytes(), self.pinned_bytes());
        let granted =
            self.shared.reply_memory.grant(&mut self.lease, cache_bytes, pinned_bytes, wanted);
        len.min(READ_PIECE_BYTES).min(u32::try_from(granted).expect("at most a piece"))
    }

    fn settle_lease(&mut self) {
        let (cache_bytes, pinned_bytes) = (self.cache_bytes(), self.pinned_bytes());
        self.shared.reply_memory.settle(&mut self.lease, cache_bytes, pinned_bytes);
    }

    fn record_batch(&mut self, since: Nanos) {
        if self.finished_reads + self.finished_writes == 0 {
            return;
        }
        let duration = self.clock.now() - since;
        let recorder = self.lane.recorder();
        for _ in 0..std::mem::take(&mut self.finished_reads) {
            recorder.record(Latency::Read, duration);
        }
        for _ in 0..std::mem::take(&mut self.finished_writes) {
            recorder.record(Latency::Write, duration);
        }
    }

    /// Notes a request that is answered, for whoever observes.
    fn observe(&mut self, asked: &wire::Request, at: Nanos, classes: Classes) {
        let Some(watch) = &mut self.watch else { return };
        let operation = match asked.command {
            wire::CMD_READ => Operation::Read,
            wire::CMD_WRITE => Operation::Write,
            wire::CMD_FLUSH => Operation::Flush,
            wire::CMD_TRIM => Operation::Trim,
            wire::CMD_WRITE_ZEROES => Operation::Zero,
            _ => return,
        };
        // What a flush says of a range means nothing.
        let wire::Request { offset, len, .. } = *asked;
        let (offset, len) = if operation == Operation::Flush { (0, 0) } else { (offset, len) };
        let class = classes.worst();
        watch.note(Event { at, latency: 0, offset, len, operation, class });
    }

    /// Hands on what was noted, now that the answers have left.
    fn publish_events(&mut self) {
        if self.watch.as_mut().is_some_and(|watch| !watch.publish(&*self.clock)) {
            self.watch = None;
        }
    }

    /// Looks for the next request without sleeping; whether one came.
    fn spin(&mut self) -> bool {
        let (spinners, clock) = (&self.shared.spinners, Arc::clone(&self.clock));
        spinners.spin(&*clock, || {
            let came = self.is_open() && self.receive() != Received::Nothing;
            came || self.lane.has_mail()
        })
    }

    fn sleep(&mut self, now: Nanos) -> io::Result<()> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, self.is_open() && self.input.has_room(self.payload.is_some()));
        wanted.set(PollFlags::OUT, !self.all_sent());
        let delayed = self.parts.next_delayed().map(|at| at.saturating_sub(now));
        let look = self.send_timer.next_look().map(|at| at.saturating_sub(now));
        let next = delayed.into_iter().chain(look).min();
        let mut timeout = next.map(Duration::from_nanos);
        if self.parts.has_stalled() {
            timeout = Some(timeout.map_or(STALL_RETRY, |t| t.min(STALL_RETRY)));
        }
        let whole = self.input.is_whole();
        if whole {
            timeout = Some(timeout.map_or(IDLE_AFTER, |t| t.min(IDLE_AFTER)));
        }
        if self.lane.has_mail() {
            return Ok(());
        }
        // A client that hung up makes the socket ready for ever; where nothing is wanted of it, it
        // is not waited on.
        let socket = (!wanted.is_empty()).then(|| (self.transport.as_fd(), wanted));
        self.waker.sleep(socket, timeout)?;
        if whole && Duration::from_nanos(self.clock.now().saturating_sub(now)) >= IDLE_AFTER {
            self.input.shrink();
        }
        if self.parts.has_stalled() {
            self.retry_stalled(self.clock.now());
        }
        Ok(())
    }

    /// Takes in a completion of the cache.
    fn take_in(&mut self, now: Nanos, completion: Completion<ArenaFrames>) {
        let token = match &completion {
            Completion::Unstalled => {
                self.retry_stalled(now);
                return;
            }
            Completion::Filled { token, .. }
            | Completion::Failed { token, .. }
            | Completion::Continue { token }
            | Completion::Synced { token, .. }
            | Completion::Finished { token, .. } => *token,
        };
        let part = usize::try_from(token).expect("an index of a part");
        self.part_completed(now, part, completion);
    }

    /// Sends replies whose time has come; whether there were any.
    fn release_delayed(&mut self, now: Nanos) -> bool {
        let mut any = false;
        while let Some(request) = self.parts.take_delayed(now) {
            self.reply(&request, now);
            any = true;
        }
        any
    }

    /// Answers a request that carries no data.
    fn reply(&mut self, request: &Request, now: Nanos) {
        self.observe(&request.asked, request.started_at, request.classes);
        let latency = match request.asked.command {
            wire::CMD_READ => Some(Latency::Read),
            wire::CMD_WRITE => Some(Latency::Write),
            wire::CMD_FLUSH => Some(Latency::Flush),
            _ => None,
        };
        if let Some(latency) = latency {
            let duration = now.saturating_sub(request.started_at);
            self.lane.recorder().record(latency, duration);
        }
        let Some(failure) = &request.failure else {
            if request.asked.command != wire::CMD_READ {
                self.reply_ok(request.asked.cookie);
            }
            return;
        };
        let (errno, message) = (failure.errno, failure.message.clone());
        self.reply_error(request.asked.cookie, errno, &message);
    }

    fn reply_ok(&mut self, cookie: u64) {
        if self.negotiated.structured {
            self.output.push(&wire::chunk_none(cookie));
        } else {
            self.output.push(&wire::simple_reply(cookie, Ok(())));
        }
    }

    fn reply_error(&mut self, cookie: u64, errno: wire::Errno, message: &str) {
        if !self.negotiated.structured {
            self.output.push(&wire::simple_reply(cookie, Err(errno)));
            return;
        }
        let mut end = message.len().min(wire::STRING_BYTES_MAX as usize);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let message = &message.as_bytes()[..end];
        let len = u16::try_from(message.len()).expect("at most 4,096");
        self.output.push(&wire::chunk_error(cookie, true, errno, len));
        self.output.push(message);
    }

    /// Gives back everything that the connection holds.
    fn close(mut self) {
        self.publish_events();
        self.transport.close();
        let frames = self.frames();
        self.output.abandon(frames.frames());
        let cache_bytes = self.cache_bytes();
        self.shared.reply_memory.settle(&mut self.lease, cache_bytes, 0);
        self.cache.close_lane(self.lane);
        self.parts.abandon(frames.frames());
        // Frames that were pinned here may be what others wait for.
        self.waker.notify();
    }
}
