//! Reads: hits answered at once, larger ones piece by piece.

use super::Session;
use super::parts::{Failure, Request, Work};
use crate::frames::ArenaFrames;
use crate::front::nbd::wire::{self, Errno};
use larder_core::clock::Nanos;
use larder_core::counters::Counter;
use larder_core::request::{Assembly, READ_PIECE_BYTES, Status};

/// Minimum length of an unfragmented read that is always served: clients may rely on it (proto.md,
/// `NBD_CMD_FLAG_DF`).
const UNFRAGMENTED_BYTES_MIN: u32 = 64 << 10;

impl Session<'_> {
    pub(super) fn begin_read(&mut self, now: Nanos, request: &wire::Request) {
        let wire::Request { offset, len, cookie, flags, .. } = *request;
        self.lane.recorder().add(Counter::ReadRequests, 1);
        self.lane.recorder().add(Counter::ReadBytes, u64::from(len));
        let unfragmented = flags & wire::CMD_FLAG_DF != 0;
        let whole_max = if unfragmented { UNFRAGMENTED_BYTES_MIN } else { 0 };
        if len > self.grant_piece(len).max(whole_max) {
            if unfragmented {
                let message = format!("{len} bytes are too many for one unfragmented chunk");
                self.reply_error(cookie, Errno::Overflow, &message);
                return;
            }
            self.begin_large_read(now, request);
            return;
        }
        let token = self.parts.next_token();
        let mut assembly = self.parts.spare.assembly(token, offset, len);
        match self.cache.read(&mut self.lane, now, &mut assembly) {
            Status::Done => {
                self.send_data(cookie, &mut assembly, true);
                self.observe(request, self.arrived_at, assembly.classes());
                self.parts.spare.recycle(assembly);
                self.finished_reads += 1;
            }
            status => {
                let index = self.parts.open_request(Request::new(request, self.arrived_at));
                let part = self.parts.keep(index, Work::Read { assembly });
                self.read_moved(now, part, status);
            }
        }
    }

    fn begin_large_read(&mut self, now: Nanos, request: &wire::Request) {
        let mut opened = Request::new(request, self.arrived_at);
        opened.rest = request.offset..request.offset + u64::from(request.len);
        let index = self.parts.open_request(opened);
        if !self.negotiated.structured {
            self.alone = Some(index);
        }
        self.next_piece(now, index);
    }

    /// Brings pages into the cache without sending them.
    pub(super) fn begin_cache(&mut self, now: Nanos, request: &wire::Request) {
        let mut opened = Request::new(request, self.arrived_at);
        opened.rest = request.offset..request.offset + u64::from(request.len);
        let index = self.parts.open_request(opened);
        self.next_piece(now, index);
    }

    /// Asks for the next piece of a read, or ends it.
    fn next_piece(&mut self, now: Nanos, index: usize) {
        let request = self.parts.request(index);
        if request.rest.is_empty() || request.failure.is_some() {
            self.end_request(now, index);
            return;
        }
        let offset = request.rest.start;
        let left = request.rest.end - offset;
        let left = u32::try_from(left.min(u64::from(READ_PIECE_BYTES))).expect("at most 1 MiB");
        let len = self.grant_piece(left);
        if len == 0 {
            self.parts.hold(index);
            return;
        }
        self.parts.request(index).rest.start += u64::from(len);
        let token = self.parts.next_token();
        let mut assembly = self.parts.spare.assembly(token, offset, len);
        let status = self.cache.read(&mut self.lane, now, &mut assembly);
        let part = self.parts.keep(index, Work::Read { assembly });
        self.read_moved(now, part, status);
    }

    /// Goes on with large reads whose client has taken enough of what came; whether there were any.
    pub(super) fn resume_reads(&mut self, now: Nanos) -> bool {
        let mut any = false;
        for _ in 0..self.parts.held_len() {
            if !self.takes_answers() || self.grant_piece(1) == 0 {
                break;
            }
            let Some(index) = self.parts.take_held() else { break };
            let held_len = self.parts.held_len();
            self.next_piece(now, index);
            any |= self.parts.held_len() == held_len;
        }
        any
    }

    /// A piece of a read has come to `status`.
    pub(super) fn read_moved(&mut self, now: Nanos, part: usize, status: Status) {
        match status {
            Status::Pending => return,
            Status::Stalled => {
                // Parts that had to come first have come: the rest can be asked for now.
                let Work::Read { assembly } = &mut self.parts.part(part).work else {
                    unreachable!("a part of a read")
                };
                match self.cache.read(&mut self.lane, now, assembly) {
                    Status::Stalled => {
                        self.parts.stall(part);
                        return;
                    }
                    Status::Pending => return,
                    status => return self.read_moved(now, part, status),
                }
            }
            Status::Done | Status::DoneAt(_) | Status::Failed(_) => {}
        }
        let finished = self.parts.finish(part);
        let Work::Read { mut assembly } = finished.work else { unreachable!("a part of a read") };
        let index = finished.request;
        self.parts.request(index).classes.add(assembly.classes());
        if let Status::Failed(error) = status {
            self.fail_read(index, error.into());
        } else {
            let request = self.parts.request(index);
            let wire::Request { cookie, command, .. } = request.asked;
            let last = request.rest.is_empty();
            if command == wire::CMD_READ {
                self.send_data(cookie, &mut assembly, last);
            } else {
                let frames = self.frames();
                assembly.release(frames.frames());
            }
        }
        self.parts.spare.recycle(assembly);
        self.next_piece(now, index);
    }

    /// A simple reply that has begun cannot turn into an error any more: only the end of the
    /// connection says it.
    fn fail_read(&mut self, index: usize, failure: Failure) {
        let begun = self.alone == Some(index) && self.parts.request(index).begun;
        if begun {
            tracing::warn!(
                message = failure.message,
                "a read failed midway; the client is cut off"
            );
            self.transport.shut_down();
        }
        self.parts.request(index).fail(failure);
    }

    /// Queues the data of a piece; the reply is complete with the last one.
    fn send_data(&mut self, cookie: u64, assembly: &mut Assembly<ArenaFrames>, last: bool) {
        if self.negotiated.structured {
            let header = wire::chunk_data(cookie, last, assembly.offset, assembly.len);
            self.output.push(&header);
        } else {
            let begun = match self.alone {
                Some(index) => std::mem::replace(&mut self.parts.request(index).begun, true),
                None => false,
            };
            if !begun {
                self.output.push(&wire::simple_reply(cookie, Ok(())));
            }
        }
        for (pin, range) in assembly.take_pieces() {
            self.output.push_frame(pin, range);
        }
    }
}
