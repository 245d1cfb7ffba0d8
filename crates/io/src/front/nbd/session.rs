//! A connection: handshake, then requests until the client disconnects.
//!
//! The loop of a connection: process completions, receive, answer the requests that can be
//! answered, send, and wait only if no step made progress. For a client with one request in flight
//! at a time, the thread polls briefly before it sleeps, since waking a sleeping thread costs more
//! than the reply; for a client with many requests in flight it does not.

mod disconnect;
mod drain;
mod greet;
mod replies;
mod requests;
mod writes;

use super::connection::Connection;
use super::exports::Export;
use super::handshake::Negotiated;
use super::input::{Input, LEASE_BYTES, Received};
use super::output::Output;
use super::shared::Shared;
use super::socket::Socket;
use crate::engine::{ArenaCache, ArenaSession};
use crate::fault::{self, confine};
use crate::front::observe::RequestRecorder;
use crate::front::spin::SpinHistory;
use crate::nbd_wire as wire;
use crate::tls::Transport;
use crate::waker::Waker;
use disconnect::HangupDetector;
use drain::SendTimer;
use greet::run_handshake;
use larder_core::clock::{Clock, Nanos};
use larder_core::completion::Wake;
use larder_core::request::{RequestOp, SMALL_WRITE_PIECE_BYTES, Session, SessionLimit};
use replies::UninterruptedRead;
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use writes::Payload;

/// Memory of unsent replies outside the cache above which the connection reads no more requests. A
/// client that does not receive its replies blocks only itself.
const REPLY_HEAP_BYTES_MAX: usize = 16 << 10;
/// Maximum number of requests in flight, and of the operations that they consist of; a client with
/// more of them waits.
const REQUESTS_MAX: usize = 512;
/// Idle time after which a connection releases its receive buffers.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// A client's request while it is in flight.
#[derive(Clone, Copy, Debug)]
struct ClientRequest {
    request: wire::Request,
    op: RequestOp,
    arrived_at: Nanos,
}

pub(super) fn serve_connection(shared: Arc<Shared>, socket: Socket) -> io::Result<Arc<Connection>> {
    let connection = Arc::new(Connection::new(socket)?);
    let (cache, inside) = (Arc::clone(shared.engine.cache()), Arc::clone(&connection));
    let run = move || {
        crate::time_slice::shorten();
        let acceptor = shared.acceptor.clone();
        let guard = DisconnectGuard { connection: inside, acceptor };
        run_connection(&shared, &guard.connection);
    };
    let failed = |error: &dyn fmt::Display| tracing::error!("a connection has ended: {error}");
    let thread = fault::spawn("connection", Some(&cache), run, failed)?;
    *connection.thread.lock().expect("no holder panics") = Some(thread);
    Ok(connection)
}

/// Shuts down the socket of a connection, marks the connection as done, and makes the acceptor
/// release it.
struct DisconnectGuard {
    connection: Arc<Connection>,
    acceptor: Waker,
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.connection.socket.shut_down();
        self.connection.done.store(true, Ordering::Release);
        self.acceptor.wake();
    }
}

fn run_connection(shared: &Arc<Shared>, connection: &Connection) {
    let mut input = Input::new();
    let mut exports = shared.exports.list();
    let mut transport = Transport::new(&connection.socket);
    let outcome = run_handshake(shared, &exports, &mut transport, &connection.waker, &mut input);
    let Some((negotiated, _slot)) = outcome else {
        close_transport(&mut transport);
        return;
    };
    let export = connection.export.get_or_init(|| exports.swap_remove(negotiated.export));
    drop(exports);
    let cache = Arc::clone(shared.engine.cache());
    if export.is_removed() {
        return;
    }
    let limit = SessionLimit::Shared(Arc::clone(&shared.budget));
    let waker = Box::new(connection.waker.clone());
    let requests = Session::open(&cache, &export.volume, waker, limit);
    // The volume may have been removed since.
    let Ok(requests) = requests else { return };
    let mut transmission = Transmission {
        export,
        connection,
        shared,
        transport,
        negotiated,
        input: input.into_requests(),
        output: Output::default(),
        send_timer: SendTimer::new(shared.limits.send_time_max),
        hang_up: HangupDetector::default(),
        requests,
        payload: None,
        uninterrupted_read: None,
        is_disconnecting: false,
        finished_reads: 0,
        finished_writes: 0,
        batch: 0,
        read_in_batch: false,
        arrived_at: 0,
        recorder: shared
            .observer
            .as_ref()
            .map(|observer| RequestRecorder::begin(observer, &export.info.name)),
        cache,
        clock: shared.engine.clock(),
    };
    let ended = confine(|| transmission.run());
    if let Err(panic) = &ended {
        // `close` releases its pins and its session.
        let effect = format!("disconnected a client of {}", transmission.export.info.name);
        panic.report(&transmission.cache, &effect);
    }
    transmission.close();
}

/// Closes TLS with a client that has received all its replies.
fn close_transport(transport: &mut Transport<&Socket>) {
    if let Some(channel) = &mut transport.channel {
        channel.close(&transport.socket);
    }
}

struct Transmission<'a> {
    export: &'a Export,
    connection: &'a Connection,
    shared: &'a Shared,
    transport: Transport<&'a Socket>,
    negotiated: Negotiated,
    cache: Arc<ArenaCache>,
    clock: Arc<dyn Clock>,
    requests: ArenaSession<ClientRequest>,
    input: Input,
    output: Output,
    send_timer: SendTimer,
    hang_up: HangupDetector,
    /// A write payload that has not arrived completely.
    payload: Option<Payload>,
    /// A large read in simple replies, which is the only request in flight.
    uninterrupted_read: Option<UninterruptedRead>,
    /// True after `NBD_CMD_DISC`: the client sends no more requests.
    is_disconnecting: bool,
    /// Number of reads of this batch that were complete at once; their latency is recorded when
    /// they are sent.
    finished_reads: u32,
    finished_writes: u32,
    batch: u32,
    read_in_batch: bool,
    /// Arrival time of the last request; increases from request to request.
    arrived_at: Nanos,
    /// Recorder of the answered requests, if the server has an observer.
    recorder: Option<RequestRecorder>,
}

impl Transmission<'_> {
    fn run(&mut self) {
        let mut spin_history = SpinHistory::default();
        loop {
            let mut now = self.clock.now();
            let mut progressed = self.requests.advance(&self.cache, now);
            progressed |= self.take_events(now);
            if self.may_receive() {
                match self.receive() {
                    Received::Some => {
                        progressed = true;
                        // The received requests arrived before this time, and after any replies
                        // that the client has received on other connections.
                        now = self.clock.now();
                    }
                    Received::Nothing => {}
                    Received::Closed => return,
                }
            }
            self.batch = 0;
            self.read_in_batch = false;
            let Some(parsed) = self.parse(now) else { return };
            progressed |= parsed;
            let backlog = self.output.backlog();
            if backlog > 0 || self.transport.has_unsent() {
                if !self.send(now) {
                    return;
                }
                // There may be room now for requests in the receive buffer, for which poll(2) does
                // not report the socket.
                progressed |= self.output.backlog() < backlog;
            }
            progressed |= self.take_events(now);
            // A refused read has pinned nothing.
            self.requests.settle_share(&self.cache);
            self.record_batch(now);
            self.publish_events();
            if self.shared.closing.load(Ordering::Acquire)
                || self.connection.close_requested.load(Ordering::Acquire)
            {
                return;
            }
            if self.has_send_timed_out(now) {
                self.connection.socket.shut_down();
                return;
            }
            if self.export.is_removed() && self.is_idle() {
                return;
            }
            if self.is_disconnecting && self.requests.in_flight() == 0 && self.all_sent() {
                return;
            }
            if progressed {
                // With one request at a time, it pays to poll for the next one.
                let is_single = self.batch <= 1 && self.all_sent();
                if spin_history.should_spin(now, is_single, self.read_in_batch) {
                    spin_history.record_spin(self.spin());
                }
                continue;
            }
            if self.sleep(now).is_err() || self.poll_hang_up() {
                return;
            }
        }
    }

    fn all_sent(&self) -> bool {
        self.output.backlog() == 0 && !self.transport.has_unsent()
    }

    /// Returns true if no request, payload or reply of the client is in flight.
    fn is_idle(&self) -> bool {
        self.requests.in_flight() == 0 && self.payload.is_none() && self.all_sent()
    }

    fn receive(&mut self) -> Received {
        // The client is sending a payload; more may follow.
        let wants_large = self.payload.is_some() && !self.input.is_large();
        if wants_large && self.requests.lease_buffer(&self.cache, LEASE_BYTES) {
            self.input.enlarge();
        }
        self.input.receive(&mut self.transport, self.payload.is_some())
    }

    /// Returns true if the connection may receive requests.
    fn may_receive(&mut self) -> bool {
        !self.is_disconnecting
            && self.uninterrupted_read.is_none()
            && self.accepts_replies()
            && self.has_room()
    }

    /// Returns true if the client receives its replies fast enough for more requests.
    fn accepts_replies(&self) -> bool {
        self.output.heap_bytes() < REPLY_HEAP_BYTES_MAX
    }

    /// Returns true if more requests may be in flight.
    fn has_room(&mut self) -> bool {
        !self.requests.is_stalled()
            && self.requests.in_flight() < REQUESTS_MAX
            && self.requests.operations() < REQUESTS_MAX
            && self.requests.may_park(&self.cache, SMALL_WRITE_PIECE_BYTES)
    }

    /// Sends as much as the client accepts, and releases its pins. Returns false if the client is
    /// gone.
    fn send(&mut self, now: Nanos) -> bool {
        let is_connected = self.output.send(self.cache.frames(), &mut self.transport);
        self.requests.release_pins(&self.cache, now, self.output.take_released());
        is_connected
    }

    /// Polls for the end of a connection that the server does not receive from. Returns true if it
    /// has to be closed.
    fn poll_hang_up(&mut self) -> bool {
        let is_receiving = self.may_receive() && self.input.has_room(self.payload.is_some());
        self.hang_up.poll_socket(self.clock.now(), is_receiving, &self.connection.socket)
    }

    fn record_batch(&mut self, since: Nanos) {
        if self.finished_reads + self.finished_writes == 0 {
            return;
        }
        let duration = self.clock.now() - since;
        for _ in 0..std::mem::take(&mut self.finished_reads) {
            self.requests.record_latency(RequestOp::Read, duration);
        }
        for _ in 0..std::mem::take(&mut self.finished_writes) {
            self.requests.record_latency(RequestOp::Write, duration);
        }
    }

    /// Publishes the recorded requests after their replies were sent.
    fn publish_events(&mut self) {
        if self.recorder.as_mut().is_some_and(|recorder| !recorder.publish(&*self.clock)) {
            self.recorder = None;
        }
    }

    /// Polls for the next request without sleeping. Returns true if one came.
    fn spin(&mut self) -> bool {
        let (spinners, clock) = (&self.shared.spinners, Arc::clone(&self.clock));
        spinners.spin(&*clock, || {
            let has_received = self.may_receive() && self.receive() != Received::Nothing;
            has_received || self.requests.has_completions()
        })
    }

    fn sleep(&mut self, now: Nanos) -> io::Result<()> {
        let mut wanted = PollFlags::empty();
        wanted
            .set(PollFlags::IN, self.may_receive() && self.input.has_room(self.payload.is_some()));
        wanted.set(PollFlags::OUT, !self.all_sent());
        if !wanted.contains(PollFlags::IN) {
            wanted |= self.hang_up.poll_flags();
        }
        let next =
            [self.requests.next_deadline(), self.send_timer.next_check(), self.hang_up.deadline()];
        let next = next.into_iter().flatten().min();
        let mut timeout = next.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let channel = self.transport.channel.as_ref();
        let can_shrink = self.input.can_shrink() || channel.is_some_and(|tls| tls.is_whole());
        if can_shrink {
            timeout = Some(timeout.map_or(IDLE_AFTER, |t| t.min(IDLE_AFTER)));
        }
        if self.requests.has_completions() {
            return Ok(());
        }
        // The socket of a client that has hung up is always ready, and would end every sleep at
        // once.
        let socket = (!wanted.is_empty()).then(|| (self.transport.as_fd(), wanted));
        self.connection.waker.sleep(socket, timeout)?;
        if can_shrink && Duration::from_nanos(self.clock.now().saturating_sub(now)) >= IDLE_AFTER {
            self.input.shrink();
            if let Some(channel) = &mut self.transport.channel {
                channel.shrink();
            }
            if !self.input.is_large() {
                self.requests.lease_buffer(&self.cache, 0);
            }
        }
        Ok(())
    }

    fn close(mut self) {
        self.publish_events();
        close_transport(&mut self.transport);
        self.output.discard_unsent();
        self.requests.close_and_release(&self.cache, self.output.take_released());
        // Other sessions may wait for frames that this connection had pinned.
        self.connection.waker.wake();
    }
}
