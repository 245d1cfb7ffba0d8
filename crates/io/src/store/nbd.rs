//! A store on an NBD server: many requests in flight on one connection, and the recovery that keeps
//! the guarantee of a flush when that connection breaks.
//!
//! There is one connection, whatever the server offers: without multi-conn the protocol guarantees
//! nothing about two, and with it one thread would still drive both.
//!
//! The server may have been killed when a connection breaks. Changes that it has answered and not
//! flushed may be lost then, and the cache counts them as written. So the store keeps copies of
//! them (the [`journal`]) and, after a reconnection, sends them again before anything else; then it
//! sends the requests without a reply. Clients notice only the delay. The copies are bounded: when
//! they fill half of their room the store sends a flush by itself, and when they fill all of it the
//! store sends no more writes until that flush completes.
//!
//! Without a connection for [`NbdOptions::away_after`] operations fail with
//! [`StoreErrorKind::Away`], flushes too. That is not final: no data is lost as long as this
//! process lives. If the server fails a flush or a repeated write, that is final, as with a file:
//! every later flush of the volume fails. The store keeps copies of later writes and flushes the
//! server by itself as before. Without copies a restart of the server would undo these writes, and
//! without flushes the copies would fill their room, and no write would be sent any more.

mod journal;
mod link;
mod map;
mod open;
mod pieces;
mod recover;

pub use open::{NbdOptions, Upstream, open_nbd};

use super::{EngineStore, PeerControl};
use crate::claim::Claim;
use crate::frames::ArenaFrames;
use crate::log_limit::LogLimit;
use crate::nbd_client::{ClientError, Completion, ConnectOptions, NbdUri};
use crate::nbd_wire as wire;
use crate::waker::Waker;
use journal::Journal;
use larder_core::clock::{Clock, Nanos};
use larder_core::store::{
    Geometry, Store, StoreCompletion, StoreError, StoreErrorKind, StoreOp, StoreOpKind,
};
use link::Link;
use map::HoleQueries;
use open::DISCARD_BYTES_MAX;
use pieces::{Piece, PieceOperation};
use rustix::event::PollFlags;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// An operation in flight.
struct Job {
    op: StoreOp<ArenaFrames>,
    /// Number of pieces without a reply.
    pieces_left: usize,
    error: Option<StoreError>,
    started_at: Nanos,
    /// Time at which it began to wait for a connection: it was submitted without one, or lost with
    /// one.
    lost_at: Option<Nanos>,
    /// True for a flush, and for FUA without support by the server: a flush of the server makes the
    /// data stable. The operation fails if any flush of the server fails while it is in flight.
    needs_flush: bool,
    /// True for FUA that the server does not support: a flush must follow.
    flush_follows: bool,
}

pub(super) struct NbdStore {
    uri: NbdUri,
    /// The address, for messages.
    address: String,
    connect: ConnectOptions,
    geometry: Geometry,
    /// Transmission flags of the server: `FLAG_*` bits.
    features: u16,
    /// Maximum length of a piece of a read or write.
    piece_bytes: u32,
    /// Maximum bytes of the copies in the journal, and of the buffers in flight, each.
    buffer_bytes: usize,
    away_after: Nanos,
    clock: Arc<dyn Clock>,
    link: Link,
    control: Arc<PeerControl>,
    losses: LogLimit,
    reconnections: LogLimit,
    /// Number of completed discards. The journal has no copies of them.
    discards: u64,
    jobs: Slab<Job>,
    /// Pieces to send that need no room in the journal.
    ready: VecDeque<Piece>,
    /// Pieces to send that need room in the journal.
    changes: VecDeque<Piece>,
    sent: HashMap<u64, Piece>,
    /// Bytes of buffers in flight, and of those of changes among them.
    sent_bytes: usize,
    sent_change_bytes: usize,
    journal: Journal,
    /// The next entry, while the journal is repeated.
    repeat: Option<u64>,
    /// True while a flush of the store itself is in flight.
    flushing: bool,
    /// The first failure of a flush or of a repeated write, which every later flush reports.
    flush_error: Option<StoreError>,
    map: Arc<HoleQueries>,
    spare_buffers: Vec<Vec<u8>>,
    done: Vec<StoreCompletion<ArenaFrames>>,
    /// Held while the export is cached.
    _claim: Claim,
}

impl NbdStore {
    fn add_job(&mut self, op: StoreOp<ArenaFrames>, now: Nanos) -> usize {
        self.jobs.insert(Job {
            op,
            pieces_left: 0,
            error: None,
            started_at: now,
            lost_at: matches!(self.link, Link::Down(_)).then_some(now),
            needs_flush: false,
            flush_follows: false,
        })
    }

    /// Returns true if the server offers the feature of a `FLAG_*` bit.
    fn offers(&self, flag: u16) -> bool {
        self.features & flag != 0
    }

    /// Splits an operation into pieces. An operation without pieces is complete.
    fn split(&mut self, index: usize) {
        let op = &self.jobs[index].op;
        let (kind, range) = (op.kind, op.offset..op.offset + op.len);
        let (operation, piece_bytes) = match kind {
            StoreOpKind::Read => (PieceOperation::Read, self.piece_bytes),
            StoreOpKind::Write { fua } => {
                let native = fua && self.offers(wire::FLAG_SEND_FUA);
                let flush_follows = fua && !native && self.offers(wire::FLAG_SEND_FLUSH);
                let job = &mut self.jobs[index];
                (job.needs_flush, job.flush_follows) = (flush_follows, flush_follows);
                (PieceOperation::Write { fua: native }, self.piece_bytes)
            }
            StoreOpKind::Flush => {
                // A server that is away, or does not reply, must not delay a flush without
                // unflushed changes. A server without flushes is used with --flush ignore only,
                // where nothing is guaranteed.
                if self.control.has_unflushed() && self.offers(wire::FLAG_SEND_FLUSH) {
                    self.jobs[index].needs_flush = true;
                    self.add_piece(Piece::flush(Some(index)));
                }
                return;
            }
            StoreOpKind::Discard if self.offers(wire::FLAG_SEND_TRIM) => {
                (PieceOperation::Trim, DISCARD_BYTES_MAX)
            }
            StoreOpKind::Discard => {
                let (len, address) = (range.end - range.start, &self.address);
                let message = format!("discard {len} bytes of {address}: it has no trim");
                let error = StoreError::new(StoreErrorKind::Unsupported, message);
                self.jobs[index].error = Some(error);
                return;
            }
            StoreOpKind::Zero { keep_allocated } if self.offers(wire::FLAG_SEND_WRITE_ZEROES) => {
                (PieceOperation::Zero { keep_allocated }, DISCARD_BYTES_MAX)
            }
            StoreOpKind::Zero { .. } => (PieceOperation::Zeros, self.piece_bytes),
        };
        self.split_range(index, operation, &range, piece_bytes);
    }

    fn split_range(
        &mut self,
        index: usize,
        operation: PieceOperation,
        range: &Range<u64>,
        piece_bytes: u32,
    ) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + u64::from(piece_bytes));
            self.add_piece(Piece { job: Some(index), operation, range: at..end });
            at = end;
        }
    }

    fn add_piece(&mut self, piece: Piece) {
        if let Some(index) = piece.job {
            self.jobs[index].pieces_left += 1;
        }
        if piece.operation.is_change() && self.offers(wire::FLAG_SEND_FLUSH) {
            self.changes.push_back(piece);
        } else {
            self.ready.push_back(piece);
        }
    }

    fn finish_if_complete(&mut self, index: usize, now: Nanos) {
        let job = &mut self.jobs[index];
        if job.pieces_left > 0 {
            return;
        }
        if std::mem::take(&mut job.flush_follows) && job.error.is_none() {
            self.add_piece(Piece::flush(Some(index)));
            return;
        }
        let Job { op, error, started_at, .. } = self.jobs.remove(index);
        let result = error.map_or(Ok(()), Err);
        self.done.push(StoreCompletion { op, result, started_at, finished_at: now });
    }

    fn send(&mut self, frames: &ArenaFrames, now: Nanos) {
        while matches!(self.link, Link::Up(_)) {
            let Some(piece) = self.next_piece() else { return };
            if let Err(error) = self.send_piece(frames, piece) {
                self.handle_loss(now, &error);
            }
        }
    }

    /// Returns the next piece for which there is room.
    fn next_piece(&mut self) -> Option<Piece> {
        if self.repeat.is_some() {
            return self.next_repeat();
        }
        if let Some((start, len)) = self.map.take_query() {
            let operation = PieceOperation::Status { changes: self.map.changes() };
            return Some(Piece { job: None, operation, range: start..start + u64::from(len) });
        }
        if self.ready.front().is_some_and(|piece| self.has_room(piece)) {
            return self.ready.pop_front();
        }
        // Also after a failed flush: only a flush makes room in the journal.
        if !self.flushing && self.journal.bytes() > self.buffer_bytes / 2 {
            self.flushing = true;
            return Some(Piece::flush(None));
        }
        let change = self.changes.front()?;
        let bytes = self.journal.bytes() + self.sent_change_bytes;
        let first = bytes == 0;
        let fits = first || bytes + change.change_bytes() <= self.buffer_bytes;
        if fits && self.has_room(change) { self.changes.pop_front() } else { None }
    }

    fn has_room(&self, piece: &Piece) -> bool {
        self.sent_bytes == 0 || self.sent_bytes + piece.buffer_bytes() <= self.buffer_bytes
    }

    fn send_piece(&mut self, frames: &ArenaFrames, mut piece: Piece) -> Result<(), ClientError> {
        if piece.operation == PieceOperation::Flush {
            // The flush covers the changes that have been answered by now.
            let (end, discards) = (self.journal.end(), self.discards);
            piece.operation = PieceOperation::Flushing { end, discards };
        }
        let request = self.request(frames, &piece);
        if piece.operation.is_change() {
            self.map.changed();
            self.sent_change_bytes += piece.change_bytes();
        }
        if piece.operation.is_change() || piece.operation == PieceOperation::Trim {
            self.control.set_unflushed(true);
        }
        self.sent_bytes += piece.buffer_bytes();
        let Link::Up(up) = &mut self.link else { unreachable!("looked at before") };
        match up.client.submit(request) {
            Ok(cookie) => {
                up.first_sent.get_or_insert(cookie);
                self.sent.insert(cookie, piece);
                Ok(())
            }
            Err(error) => {
                // No request has this cookie: the piece is only found when all sent pieces are
                // requeued.
                self.sent.insert(u64::MAX, piece);
                Err(error)
            }
        }
    }

    fn receive(&mut self, frames: &ArenaFrames, now: Nanos) {
        loop {
            let Link::Up(up) = &mut self.link else { return };
            let client = &mut up.client;
            if !client.has_answer() && client.in_flight() == 0 {
                return;
            }
            match client.wait_for(Duration::ZERO) {
                Ok(Some(completion)) => {
                    if shuts_down(&completion) {
                        self.handle_loss(now, &ClientError::Closed);
                        return;
                    }
                    up.outage = None;
                    self.complete_piece(frames, now, completion);
                }
                Ok(None) => return,
                Err(error) => {
                    self.handle_loss(now, &error);
                    return;
                }
            }
        }
    }
}

/// Returns true if a reply says that the server shuts down, which counts as a broken connection.
fn shuts_down(completion: &Completion) -> bool {
    completion.result.as_ref().is_err_and(|error| error.errno == wire::Errno::Shutdown)
}

impl Store<ArenaFrames> for NbdStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, op: StoreOp<ArenaFrames>) {
        let index = self.add_job(op, now);
        if let (StoreOpKind::Flush, Some(error)) =
            (self.jobs[index].op.kind, self.flush_error.clone())
        {
            self.jobs[index].error = Some(error);
        } else {
            self.split(index);
        }
        self.finish_if_complete(index, now);
        self.send(frames, now);
    }

    fn reap(
        &mut self,
        now: Nanos,
        frames: &ArenaFrames,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) {
        self.recover(now);
        self.receive(frames, now);
        self.send(frames, now);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.jobs.len() + self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.done.is_empty()).then_some(0)
    }
}

impl EngineStore for NbdStore {
    fn peer_control(&self) -> Option<Arc<PeerControl>> {
        Some(Arc::clone(&self.control))
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        // While the journal is repeated, a query waits for its end.
        let has_query = self.map.set_waker(waker) && self.repeat.is_none();
        if has_query || !self.done.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        match &mut self.link {
            Link::Up(up) => {
                let client = &mut up.client;
                if client.has_answer() {
                    return Ok(());
                }
                // The store notices that the server has closed an idle connection when it sends the
                // next request.
                let socket = (client.in_flight() > 0).then(|| (client.socket(), PollFlags::IN));
                waker.sleep(socket, timeout)
            }
            Link::Down(down) => {
                if self.control.is_ended() && !self.jobs.is_empty() {
                    return Ok(());
                }
                let next = down.start_attempt(now, (&self.uri, self.connect), waker);
                let since = down.outage.since;
                // An outage that is long enough fails new operations immediately.
                let lost = self.jobs.iter().filter_map(|(_, job)| job.lost_at);
                let away = lost.min().map(|at| at.min(since).saturating_add(self.away_after));
                let at = next.into_iter().chain(away).min();
                let until = at.map(|at| Duration::from_nanos(at.saturating_sub(now)));
                waker.sleep(None, until.into_iter().chain(timeout).min())
            }
        }
    }
}

impl Drop for NbdStore {
    /// Disconnects from a server without requests in flight; other servers see the connection
    /// close.
    fn drop(&mut self) {
        self.map.set_up(false);
        let now = self.clock.now();
        let Link::Up(up) = &self.link else { return };
        let down = Link::Down(up.lost(now, "it was closed".to_owned()));
        if let Link::Up(up) = std::mem::replace(&mut self.link, down)
            && up.client.in_flight() == 0
        {
            let ended = up.client.disconnect();
            tracing::debug!(place = self.address, ?ended, "left the server");
        }
    }
}

/// Time limit of a handshake, of the rest of a reply that has begun, and of sending a request;
/// after it the connection counts as broken. Data has more time, a second for each 64 KiB.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
