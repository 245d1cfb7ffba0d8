//! Loss of the connection, and recovery: sent pieces are requeued, unflushed changes are sent
//! again, and operations that wait for too long fail.

use super::link::{Connected, Link};
use super::open::check_again;
use super::pieces::{Piece, PieceOperation};
use super::{Job, NbdStore};
use crate::nbd_client::ClientError;
use crate::nbd_wire as wire;
use larder_core::clock::Nanos;
use larder_core::store::{StoreCompletion, StoreError, StoreErrorKind};
use slab::Slab;

/// Adds a flush after writes with FUA, which the server no longer supports. It may be another
/// server than the one that executed the first pieces of a write.
fn flush_after_writes<'a>(jobs: &mut Slab<Job>, pieces: impl Iterator<Item = &'a mut Piece>) {
    for piece in pieces {
        let PieceOperation::Write { fua: true } = piece.operation else { continue };
        piece.operation = PieceOperation::Write { fua: false };
        if let Some(job) = piece.job.and_then(|index| jobs.get_mut(index)) {
            (job.needs_flush, job.flush_follows) = (true, true);
        }
    }
}

impl NbdStore {
    /// Returns the next entry of the journal to repeat, unless it overlaps a piece in flight.
    pub(super) fn next_repeat(&mut self) -> Option<Piece> {
        let number = self.repeat?;
        let Some(entry) = self.journal.get(number) else {
            if self.sent.is_empty() {
                tracing::info!(place = self.address, "what was not flushed has been given again");
                self.repeat = None;
                // The changes were lost once, so they are flushed now rather than later.
                self.flushing = !self.journal.is_empty();
                return if self.flushing { Some(Piece::flush(None)) } else { self.next_piece() };
            }
            return None;
        };
        let piece = Piece {
            job: None,
            operation: PieceOperation::Repeat { number },
            range: entry.range.clone(),
        };
        let overlaps = |other: &Piece| {
            other.range.start < piece.range.end && piece.range.start < other.range.end
        };
        if self.sent.values().any(overlaps) || !self.has_room(&piece) {
            return None;
        }
        self.repeat = Some(number + 1);
        Some(piece)
    }

    /// Handles the loss of the connection: sent pieces are requeued. The first request of a
    /// connection that has brought no reply is sent last: a server that closes each connection at
    /// one request then replies to the others first.
    pub(super) fn handle_loss(&mut self, now: Nanos, error: &ClientError) {
        let Link::Up(up) = &self.link else { return };
        if !self.control.is_ended() {
            self.losses.log(|count| {
                let place = &self.address;
                tracing::warn!(place, %error, count, "the connection is lost; trying again");
            });
        }
        let suspect = up.first_sent.filter(|_| up.outage.is_some());
        self.link = Link::Down(up.lost(now, error.to_string()));
        self.map.set_up(false);
        for (_, job) in &mut self.jobs {
            job.lost_at.get_or_insert(now);
        }
        (self.sent_bytes, self.sent_change_bytes, self.repeat) = (0, 0, None);
        self.flushing = false;
        let is_kept = self.offers(wire::FLAG_SEND_FLUSH);
        for (cookie, mut piece) in self.sent.drain() {
            if let PieceOperation::Flushing { .. } = piece.operation {
                piece.operation = PieceOperation::Flush;
            }
            if piece.job.is_none_or(|index| !self.jobs.contains(index)) {
                continue;
            }
            let is_change = piece.operation.is_change() && is_kept;
            let queue = if is_change { &mut self.changes } else { &mut self.ready };
            if suspect == Some(cookie) {
                queue.push_back(piece);
            } else {
                queue.push_front(piece);
            }
        }
    }

    /// Continues on a connection that an attempt has established, or fails operations that waited
    /// too long.
    pub(super) fn recover(&mut self, now: Nanos) {
        let is_ended = self.control.is_ended();
        if is_ended && !self.jobs.is_empty() {
            self.handle_loss(now, &ClientError::Failed);
        }
        let had_fua = self.offers(wire::FLAG_SEND_FUA);
        let Link::Down(down) = &mut self.link else { return };
        if let Some(mut client) = down.take(now) {
            match check_again(self.features, client.info(), self.geometry, self.piece_bytes) {
                Ok(features) => {
                    self.features = features;
                    if had_fua && features & wire::FLAG_SEND_FUA == 0 {
                        flush_after_writes(
                            &mut self.jobs,
                            self.ready.iter_mut().chain(&mut self.changes),
                        );
                    }
                    let again = self.journal.end() - self.journal.start();
                    self.reconnections.log(|count| {
                        tracing::warn!(place = self.address, again, count, "connected again");
                    });
                    self.map.set_up(client.info().base_allocation.is_some());
                    client.end_with(self.control.flag());
                    self.link = Link::Up(Connected::new(Box::new(client), now, Some(down.outage)));
                    self.repeat = Some(self.journal.start());
                    return;
                }
                Err(reason) => down.schedule_retry(now, reason),
            }
        }
        let latest = now.checked_sub(self.away_after);
        let has_expired = |since: Nanos| is_ended || latest.is_some_and(|latest| since <= latest);
        let all_expired = has_expired(down.outage.since);
        let message = format!("reach {}: {}", self.address, down.reason);
        let is_expired = |job: &Job| all_expired || job.lost_at.is_some_and(has_expired);
        let expired = self.jobs.iter().filter(|(_, job)| is_expired(job));
        let expired: Vec<_> = expired.map(|(index, _)| index).collect();
        for index in expired {
            let Job { op, started_at, .. } = self.jobs.remove(index);
            let result = Err(StoreError::new(StoreErrorKind::Away, message.clone()));
            self.done.push(StoreCompletion { op, result, started_at, finished_at: now });
        }
        let is_wanted = |piece: &Piece| piece.job.is_some_and(|index| self.jobs.contains(index));
        self.ready.retain(is_wanted);
        self.changes.retain(is_wanted);
    }
}
