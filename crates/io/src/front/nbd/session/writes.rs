//! Writes: payloads taken in piece by piece, straight from the receive buffer into the cache.

use super::Session;
use super::parts::{Failure, Request, Work};
use crate::front::nbd::input::PIECE_BYTES;
use crate::front::nbd::wire;
use larder_core::clock::Nanos;
use larder_core::counters::Counter;
use larder_core::request::{Status, WriteTask};
use larder_core::units::BLOCK_BYTES_U64;

/// A payload that is coming.
#[derive(Debug)]
pub(super) struct Payload {
    /// The write as it was asked.
    asked: wire::Request,
    started_at: Nanos,
    /// Where the next byte goes, and how many are to come.
    offset: u64,
    left: u32,
    /// The request, once it is known that it cannot be finished at once.
    request: Option<usize>,
    /// A request that was refused: its payload is skipped.
    refused: Option<Failure>,
}

impl Payload {
    pub(super) fn new(asked: &wire::Request, refused: Option<Failure>, at: Nanos) -> Self {
        Payload {
            asked: *asked,
            started_at: at,
            offset: asked.offset,
            left: asked.len,
            request: None,
            refused,
        }
    }

    /// Bytes of the next piece: up to a border of blocks, so that only a write's own ends are
    /// ragged.
    fn piece(&self) -> usize {
        let ragged = usize::try_from(self.offset % BLOCK_BYTES_U64).expect("below a block");
        (PIECE_BYTES - ragged).min(self.left as usize)
    }
}

impl Session<'_> {
    /// Takes in the next piece of a payload; false if it has not come whole.
    pub(super) fn take_payload(&mut self, now: Nanos) -> bool {
        let mut payload = self.payload.take().expect("a payload is coming");
        if let Some(Failure { errno, message }) = payload.refused.clone() {
            let skip = self.input.bytes().len().min(payload.left as usize);
            self.input.consume(skip);
            payload.left -= u32::try_from(skip).expect("at most the payload");
            if payload.left > 0 {
                self.payload = Some(payload);
                return skip > 0;
            }
            self.reply_error(payload.asked.cookie, errno, &message);
            return true;
        }
        let piece = payload.piece();
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
        if let Some(index) = payload.request {
            self.parts.request(index).more = false;
            self.end_request(now, index);
        }
        true
    }

    fn write_piece(&mut self, now: Nanos, payload: &mut Payload, piece: usize) {
        let token = self.parts.next_token();
        let len = u32::try_from(piece).expect("at most 128 KiB");
        let fua = payload.asked.flags & wire::CMD_FLAG_FUA != 0;
        let mut task = WriteTask::new(token, payload.offset, len, fua);
        let bytes = &self.input.bytes()[..piece];
        let status = self.cache.write(&mut self.lane, now, &mut task, bytes);
        self.lane.recorder().add(Counter::WriteBytes, u64::from(len));
        let whole = payload.request.is_none() && payload.left == len;
        if whole && status == Status::Done {
            self.reply_ok(payload.asked.cookie);
            self.observe(&payload.asked, payload.started_at, task.classes());
            self.finished_writes += 1;
            return;
        }
        let index = *payload.request.get_or_insert_with(|| {
            let mut request = Request::new(&payload.asked, payload.started_at);
            request.more = true;
            self.parts.open_request(request)
        });
        if !matches!(status, Status::Pending | Status::Stalled) {
            self.parts.request(index).classes.add(task.classes());
        }
        match status {
            Status::Done => {}
            Status::DoneAt(at) => self.delay_request(index, at, now),
            Status::Failed(error) => self.parts.request(index).fail(error),
            Status::Pending | Status::Stalled => {
                let bytes = (!task.is_placed()).then(|| self.input.bytes()[..piece].to_vec());
                let part = self.parts.keep(index, Work::Write { task, bytes });
                if status == Status::Stalled {
                    self.parts.stall(part);
                }
            }
        }
    }

    /// Writes bytes that did not come as a payload, as a part of `request`.
    pub(super) fn write_part(
        &mut self,
        now: Nanos,
        request: usize,
        offset: u64,
        bytes: &[u8],
        fua: bool,
    ) {
        let token = self.parts.next_token();
        let len = u32::try_from(bytes.len()).expect("at most a block");
        let mut task = WriteTask::new(token, offset, len, fua);
        let status = self.cache.write(&mut self.lane, now, &mut task, bytes);
        let bytes = (!task.is_placed()).then(|| bytes.to_vec());
        let part = self.parts.keep(request, Work::Write { task, bytes });
        self.write_moved(now, part, status);
    }

    /// Goes on with a write whose bytes are parked.
    pub(super) fn write_again(&mut self, now: Nanos, part: usize) {
        let Work::Write { task, bytes } = &mut self.parts.part(part).work else {
            unreachable!("a part of a write")
        };
        let bytes = bytes.as_deref().expect("the bytes of a write that is not placed");
        let status = self.cache.write(&mut self.lane, now, task, bytes);
        if task.is_placed() {
            self.parts.unpark(part);
        }
        self.write_moved(now, part, status);
    }

    /// A part of a write has come to `status`.
    pub(super) fn write_moved(&mut self, now: Nanos, part: usize, status: Status) {
        match status {
            Status::Pending => return,
            Status::Stalled => {
                self.parts.stall(part);
                return;
            }
            Status::Done | Status::DoneAt(_) | Status::Failed(_) => {}
        }
        let finished = self.parts.finish(part);
        let Work::Write { task, .. } = finished.work else { unreachable!("a part of a write") };
        let index = finished.request;
        self.parts.request(index).classes.add(task.classes());
        match status {
            Status::DoneAt(at) => self.delay_request(index, at, now),
            Status::Failed(error) => self.parts.request(index).fail(error),
            _ => {}
        }
        self.end_request(now, index);
    }

    fn delay_request(&mut self, index: usize, at: Nanos, now: Nanos) {
        let request = self.parts.request(index);
        request.not_before = request.not_before.max(at);
        let recorder = self.lane.recorder();
        recorder.add(Counter::ThrottledWrites, 1);
        recorder.add(Counter::ThrottledTime, at.saturating_sub(now));
    }
}
