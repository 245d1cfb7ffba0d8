//! Writes: payloads are copied piece by piece from the receive buffer into the cache.

use super::replies::Failure;
use super::{ClientRequest, Transmission};
use crate::nbd_wire as wire;
use larder_core::clock::Nanos;
use larder_core::request::{
    Request, RequestId, RequestOp, SMALL_WRITE_PIECE_BYTES, Submitted, WRITE_PIECE_BYTES,
    next_write_piece,
};

/// A write payload that is being received.
#[derive(Debug)]
pub(super) struct Payload {
    client_request: ClientRequest,
    /// Offset of the next byte in the export.
    offset: u64,
    left: u32,
    /// The open request, if its payload comes in more than one piece.
    id: Option<RequestId>,
    /// Error of a refused request, whose payload is skipped.
    refusal: Option<Failure>,
}

impl Payload {
    pub(super) fn new(client_request: ClientRequest, refusal: Option<Failure>) -> Self {
        let wire::Request { offset, len, .. } = client_request.request;
        Payload { client_request, offset, left: len, id: None, refusal }
    }

    /// Returns the length of the next piece of an accepted request, at most `bytes_max`.
    fn piece(&self, bytes_max: u32) -> usize {
        let rest = self.offset..self.offset + u64::from(self.left);
        let piece = next_write_piece(&rest, bytes_max);
        usize::try_from(piece.end - piece.start).expect("a piece")
    }
}

impl Transmission<'_> {
    /// Processes the next piece of a payload. Returns false if it has not arrived completely.
    pub(super) fn take_payload(&mut self, now: Nanos) -> bool {
        let mut payload = self.payload.take().expect("a payload is coming");
        if let Some(failure) = &payload.refusal {
            let skip = self.input.bytes().len().min(payload.left as usize);
            self.input.consume(skip);
            payload.left -= u32::try_from(skip).expect("at most the payload");
            if payload.left > 0 {
                self.payload = Some(payload);
                return skip > 0;
            }
            self.reply_error(payload.client_request.request.cookie, failure);
            return true;
        }
        let is_long = payload.left > SMALL_WRITE_PIECE_BYTES;
        let may_be_large = is_long && self.input.is_large();
        let piece = payload.piece(
            if may_be_large && self.requests.may_park(&self.cache, WRITE_PIECE_BYTES) {
                WRITE_PIECE_BYTES
            } else {
                SMALL_WRITE_PIECE_BYTES
            },
        );
        if self.input.bytes().len() < piece {
            self.payload = Some(payload);
            return false;
        }
        self.write_piece(now, &mut payload, piece);
        self.input.consume(piece);
        payload.offset += piece as u64;
        payload.left -= u32::try_from(piece).expect("at most the payload");
        if payload.left > 0 {
            self.payload = Some(payload);
            return true;
        }
        if let Some(id) = payload.id {
            self.requests.finish(&self.cache, now, id);
            self.take_events(now);
        }
        true
    }

    fn write_piece(&mut self, now: Nanos, payload: &mut Payload, piece: usize) {
        let client_request = payload.client_request;
        let wire::Request { offset, len, flags, cookie, .. } = client_request.request;
        let request = Request {
            fua: flags & wire::CMD_FLAG_FUA != 0,
            ..Request::new(RequestOp::Write, offset..offset + u64::from(len))
        };
        let bytes = &self.input.bytes()[..piece];
        if piece < len as usize {
            let begin = || self.requests.begin(now, request, client_request);
            let id = *payload.id.get_or_insert_with(begin);
            self.requests.push(&self.cache, now, id, payload.offset, bytes);
            return;
        }
        match self.requests.submit(&self.cache, now, request, bytes, || client_request) {
            Submitted::Done(done) => {
                self.reply_ok(cookie);
                self.observe(&client_request, done.classes);
                self.finished_writes += 1;
            }
            Submitted::Queued(_) => {
                self.take_events(now);
            }
        }
    }
}
