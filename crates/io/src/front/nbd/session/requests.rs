//! Taking requests in: what they ask for, whether they may, and what becomes of their parts.

use super::Session;
use super::parts::{Failure, Request, Work};
use super::writes::Payload;
use crate::fault;
use crate::frames::ArenaFrames;
use crate::front::nbd::wire::{self, Errno, REQUEST_BYTES};
use larder_core::cache::cut;
use larder_core::clock::Nanos;
use larder_core::counters::Counter;
use larder_core::lane::Completion;
use larder_core::mode::WriteMode;
use larder_core::request::Status;
use larder_core::store::StoreOpKind;
use larder_core::units::BLOCK_BYTES;
use std::ops::Range;

/// What the ragged ends of a zeroing are written with.
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

impl Session<'_> {
    /// Takes in all requests that have come and that there is room for; whether there were any.
    /// `None` if the client does not speak the protocol.
    pub(super) fn parse(&mut self, now: Nanos) -> Option<bool> {
        let mut any = false;
        loop {
            if self.payload.is_some() {
                if !self.is_open() || !self.take_payload(now) {
                    return Some(any);
                }
                any = true;
                continue;
            }
            if !self.is_open() || self.input.bytes().len() < REQUEST_BYTES {
                return Some(any);
            }
            let header = self.input.bytes().first_chunk().expect("enough bytes have come");
            let request = match wire::Request::parse(header) {
                Ok(request) => request,
                Err(error) => {
                    tracing::info!(%error, "a client was cut off");
                    return None;
                }
            };
            if self.must_wait_for_others(&request) {
                return Some(any);
            }
            self.input.consume(REQUEST_BYTES);
            self.batch += 1;
            any = true;
            self.take_request(now, &request);
        }
    }

    /// A read waits until the client has received enough of its replies. A read in simple replies
    /// is one uninterrupted run of bytes; one that does not fit into a piece is served alone.
    fn must_wait_for_others(&mut self, request: &wire::Request) -> bool {
        if request.command != wire::CMD_READ || request.len == 0 {
            return false;
        }
        let piece = self.grant_piece(request.len);
        let alone = !self.negotiated.structured && request.len > piece;
        piece == 0 || (alone && !self.parts.is_empty())
    }

    fn take_request(&mut self, now: Nanos, request: &wire::Request) {
        // Requests that came together are told apart by a nanosecond, which keeps their order.
        self.arrived_at = now.max(self.arrived_at + 1);
        fault::point("connection", &self.export.info.name);
        let refused = self.refusal(request);
        if request.command == wire::CMD_WRITE {
            self.lane.recorder().add(Counter::WriteRequests, 1);
            self.payload = Some(Payload::new(request, refused, self.arrived_at));
            return;
        }
        if let Some(failure) = refused {
            self.reply_error(request.cookie, failure.errno, &failure.message);
            return;
        }
        match request.command {
            wire::CMD_READ => {
                self.read_in_batch = true;
                self.begin_read(now, request);
            }
            wire::CMD_CACHE => self.begin_cache(now, request),
            wire::CMD_FLUSH => self.begin_flush(now, request),
            wire::CMD_TRIM | wire::CMD_WRITE_ZEROES => self.begin_exclude(now, request),
            wire::CMD_BLOCK_STATUS => self.answer_status(request),
            wire::CMD_DISC => self.leaving = true,
            _ => unreachable!("unknown commands were refused"),
        }
    }

    /// Why a request cannot be served, if so.
    fn refusal(&self, request: &wire::Request) -> Option<Failure> {
        let invalid = |message: String| Some(Failure { errno: Errno::Inval, message });
        let wire::Request { command, flags, offset, len, .. } = *request;
        // FUA is known to all; where it has no meaning the protocol asks to let it pass.
        let known_flags = wire::CMD_FLAG_FUA
            | match command {
                wire::CMD_READ => wire::CMD_FLAG_DF,
                wire::CMD_WRITE_ZEROES => wire::CMD_FLAG_NO_HOLE,
                wire::CMD_BLOCK_STATUS => wire::CMD_FLAG_REQ_ONE,
                wire::CMD_WRITE
                | wire::CMD_TRIM
                | wire::CMD_FLUSH
                | wire::CMD_CACHE
                | wire::CMD_DISC => 0,
                _ => return invalid(format!("there is no command {command}")),
            };
        if flags & !known_flags != 0 {
            return invalid(format!("command {command} does not take the flags {flags:#x}"));
        }
        if self.export.is_removed() && command != wire::CMD_DISC {
            let message = format!("{} has been removed", self.export.info.name);
            return Some(Failure { errno: Errno::Shutdown, message });
        }
        if matches!(command, wire::CMD_FLUSH | wire::CMD_DISC) {
            return None;
        }
        let changes = matches!(command, wire::CMD_WRITE | wire::CMD_TRIM | wire::CMD_WRITE_ZEROES);
        if changes && self.lane.volume().write_mode() == WriteMode::ReadOnly {
            let message = format!("write to {}: it is read-only", self.export.info.name);
            return Some(Failure { errno: Errno::Perm, message });
        }
        if len == 0 {
            return invalid("a request for nothing".into());
        }
        let length = self.export.info.length;
        if offset.checked_add(u64::from(len)).is_none_or(|end| end > length) {
            let errno = if changes { Errno::NoSpace } else { Errno::Inval };
            let message = format!("{len} bytes at {offset}: the export ends at {length}");
            return Some(Failure { errno, message });
        }
        let carries = matches!(command, wire::CMD_READ | wire::CMD_WRITE | wire::CMD_CACHE);
        let limit = self.shared.limits.request_bytes_max;
        if carries && len > limit {
            return invalid(format!("{len} bytes in one request: the limit is {limit}"));
        }
        if command == wire::CMD_BLOCK_STATUS && !self.negotiated.base_allocation {
            return invalid("block status without base:allocation negotiated".into());
        }
        None
    }

    fn begin_flush(&mut self, now: Nanos, request: &wire::Request) {
        self.lane.recorder().add(Counter::FlushRequests, 1);
        let index = self.parts.open_request(Request::new(request, self.arrived_at));
        self.flush_part(now, index);
        self.end_request(now, index);
    }

    fn flush_part(&mut self, now: Nanos, request: usize) {
        let token = self.parts.next_token();
        match self.cache.flush(&mut self.lane, now, token) {
            Status::Pending => {
                self.parts.keep(request, Work::Flush);
            }
            status => debug_assert_eq!(status, Status::Done, "a flush waits or is ignored"),
        }
    }

    fn begin_exclude(&mut self, now: Nanos, request: &wire::Request) {
        let wire::Request { command, flags, offset, len, .. } = *request;
        let zeroes = command == wire::CMD_WRITE_ZEROES;
        let counter = if zeroes { Counter::ZeroRequests } else { Counter::DiscardRequests };
        self.lane.recorder().add(counter, 1);
        let kind = if zeroes {
            StoreOpKind::Zero { keep_allocated: flags & wire::CMD_FLAG_NO_HOLE != 0 }
        } else {
            StoreOpKind::Discard
        };
        let mut opened = Request::new(request, self.arrived_at);
        opened.then_flush = flags & wire::CMD_FLAG_FUA != 0;
        // Until all parts have been started, the request cannot end.
        opened.more = true;
        let index = self.parts.open_request(opened);
        let pieces = cut(offset..offset + u64::from(len), self.export.info.length);
        if zeroes {
            for range in [pieces.head, pieces.tail].into_iter().filter(|range| !range.is_empty()) {
                self.write_zeros(now, index, &range);
            }
        }
        if !pieces.blocks.is_empty() {
            self.exclude_part(now, index, kind, pieces.blocks);
        }
        self.parts.request(index).more = false;
        self.end_request(now, index);
    }

    fn write_zeros(&mut self, now: Nanos, request: usize, range: &Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from((range.end - at).min(ZEROS.len() as u64)).expect("a block");
            self.write_part(now, request, at, &ZEROS[..len], false);
            at += len as u64;
        }
    }

    fn exclude_part(&mut self, now: Nanos, request: usize, kind: StoreOpKind, blocks: Range<u64>) {
        let token = self.parts.next_token();
        let status = self.cache.exclude(&mut self.lane, now, kind, blocks.clone(), token);
        let part = self.parts.keep(request, Work::Exclude { kind, blocks });
        if status == Status::Stalled {
            self.parts.stall(part);
        }
    }

    fn answer_status(&mut self, request: &wire::Request) {
        let one = request.flags & wire::CMD_FLAG_REQ_ONE != 0;
        let extents = crate::front::extents::extents(
            &self.cache,
            self.lane.volume(),
            &*self.export.map,
            request.offset,
            request.len,
            one,
        );
        let count = u16::try_from(extents.len()).expect("at most 1,024");
        let id = wire::BASE_ALLOCATION_ID;
        self.output.push(&wire::chunk_block_status(request.cookie, true, id, count));
        for (len, hole) in extents {
            let state = if hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 };
            self.output.push(&wire::extent(len, state));
        }
    }

    /// A part has moved on.
    pub(super) fn part_completed(
        &mut self,
        now: Nanos,
        part: usize,
        completion: Completion<ArenaFrames>,
    ) {
        let frames = self.frames();
        match &mut self.parts.part(part).work {
            Work::Read { assembly } => {
                let status = assembly.absorb(frames.frames(), completion);
                self.read_moved(now, part, status);
            }
            Work::Write { task, .. } => {
                if matches!(completion, Completion::Continue { .. }) {
                    self.write_again(now, part);
                    return;
                }
                let status = self.cache.write_completed(&mut self.lane, now, task, completion);
                self.write_moved(now, part, status);
            }
            Work::Flush | Work::Exclude { .. } => {
                let Completion::Finished { result, .. } = completion else {
                    unreachable!("flushes and discards finish")
                };
                let request = self.parts.finish(part).request;
                if let Err(error) = result {
                    self.parts.request(request).fail(error);
                }
                self.end_request(now, request);
            }
        }
    }

    /// Tries what was stalled again, in its order.
    pub(super) fn retry_stalled(&mut self, now: Nanos) {
        for part in self.parts.take_stalled() {
            match &mut self.parts.part(part).work {
                Work::Read { assembly } => {
                    let status = self.cache.read(&mut self.lane, now, assembly);
                    self.read_moved(now, part, status);
                }
                Work::Write { .. } => self.write_again(now, part),
                Work::Exclude { kind, blocks } => {
                    let (kind, blocks) = (*kind, blocks.clone());
                    let token = part as u64;
                    let status = self.cache.exclude(&mut self.lane, now, kind, blocks, token);
                    if status == Status::Stalled {
                        self.parts.stall(part);
                    }
                }
                Work::Flush => unreachable!("flushes do not stall"),
            }
        }
    }

    /// Answers a request if nothing of it is left to do.
    pub(super) fn end_request(&mut self, now: Nanos, index: usize) {
        let request = self.parts.request(index);
        let over = request.parts == 0 && !request.more;
        if over && request.then_flush && request.failure.is_none() {
            request.then_flush = false;
            self.flush_part(now, index);
        }
        let Some(request) = self.parts.close_request(index) else { return };
        if self.alone == Some(index) {
            self.alone = None;
        }
        if request.not_before > now {
            self.parts.delay(request.not_before, request);
        } else {
            self.reply(&request, now);
        }
    }
}
