//! Requests of a client: parsing, checks and submission.

use super::replies::{Failure, UninterruptedRead};
use super::writes::Payload;
use super::{ClientRequest, Transmission};
use crate::fault;
use crate::nbd_wire::{self as wire, Errno, REQUEST_BYTES};
use larder_core::clock::Nanos;
use larder_core::counters::Interface;
use larder_core::mode::WriteMode;
use larder_core::request::{Prefetch, Request, RequestOp, Submitted, Then};

/// Minimum length of an unfragmented read that is always served: clients may rely on it (proto.md,
/// `NBD_CMD_FLAG_DF`).
const UNFRAGMENTED_BYTES_MIN: u64 = 64 << 10;

/// Number of requests ahead at which lines of the page table are prefetched. The descriptors and
/// latches that they refer to are prefetched one request ahead.
const PREFETCH_AHEAD: usize = 4;

/// Requests after the current one whose lines of the page table have been prefetched.
#[derive(Clone, Copy, Debug, Default)]
struct Lookahead {
    requests: usize,
    /// Offset of the end of these requests in the receive buffer.
    end: usize,
}

impl Transmission<'_> {
    /// Submits all received requests for which there is room; returns true if there were any.
    /// `None` if the client violates the protocol.
    pub(super) fn parse(&mut self, now: Nanos) -> Option<bool> {
        let (mut any, mut ahead) = (false, Lookahead::default());
        loop {
            if self.payload.is_some() {
                if !self.may_receive() || !self.take_payload(now) {
                    return Some(any);
                }
                any = true;
                continue;
            }
            if !self.may_receive() || self.input.bytes().len() < REQUEST_BYTES {
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
            let piece = self.lease_read_piece(&request);
            if self.must_wait_for_others(&request, piece) {
                return Some(any);
            }
            ahead = self.prefetch_after(&request, ahead);
            self.input.consume(REQUEST_BYTES);
            self.batch += 1;
            any = true;
            self.take_request(now, &request, piece);
        }
    }

    /// Prefetches for the reads and writes that follow `request`, the first one in the receive
    /// buffer. Returns the state for the call with the next request.
    fn prefetch_after(&self, request: &wire::Request, mut ahead: Lookahead) -> Lookahead {
        let request_bytes = message_bytes(request);
        let prefetch = |offset: usize, step| {
            let next = self.peek_request(offset)?;
            self.requests.prefetch(&self.cache, next.offset, u64::from(next.len), step);
            Some(message_bytes(&next))
        };
        if ahead.requests > 0 {
            prefetch(request_bytes, Prefetch::Frames);
        } else {
            ahead.end = request_bytes;
        }
        while ahead.requests < PREFETCH_AHEAD {
            let Some(len) = prefetch(ahead.end, Prefetch::Table) else { break };
            ahead.requests += 1;
            ahead.end = ahead.end.saturating_add(len);
        }
        Lookahead { requests: ahead.requests.saturating_sub(1), end: ahead.end - request_bytes }
    }

    /// Returns the request at an offset of the receive buffer, if its header is complete and it is
    /// a read or a write.
    fn peek_request(&self, offset: usize) -> Option<wire::Request> {
        let header = self.input.bytes().get(offset..)?.first_chunk()?;
        let request = wire::Request::parse(header).ok()?;
        matches!(request.command, wire::CMD_READ | wire::CMD_WRITE).then_some(request)
    }

    /// Returns true if a read has to wait: for memory, until the client has received enough of its
    /// replies, or for the requests in flight. A read in simple replies is one uninterrupted run of
    /// bytes; one that does not fit into a piece must be the only request in flight.
    fn must_wait_for_others(&self, request: &wire::Request, piece: u64) -> bool {
        if request.command != wire::CMD_READ || request.len == 0 {
            return false;
        }
        let is_uninterrupted = !self.negotiated.structured && u64::from(request.len) > piece;
        piece == 0 || (is_uninterrupted && self.requests.in_flight() > 0)
    }

    /// Leases memory for the next piece of a read, and returns the length of the piece. Returns 0
    /// if the read has to wait, and for other requests.
    fn lease_read_piece(&mut self, request: &wire::Request) -> u64 {
        let len = u64::from(request.len);
        let is_read = request.command == wire::CMD_READ && len > 0;
        if is_read { self.requests.grant_piece(&self.cache, len) } else { 0 }
    }

    fn take_request(&mut self, now: Nanos, request: &wire::Request, piece: u64) {
        // Requests of one batch get arrival times that differ by a nanosecond, which keeps their
        // order.
        self.arrived_at = now.max(self.arrived_at + 1);
        fault::point("connection", &self.export.info.name);
        let refusal = self.check_request(request);
        if request.command == wire::CMD_WRITE {
            let client_request = self.client_request(request, RequestOp::Write);
            self.payload = Some(Payload::new(client_request, refusal));
            return;
        }
        if let Some(failure) = refusal {
            self.reply_error(request.cookie, &failure);
            return;
        }
        match request.command {
            wire::CMD_READ => {
                self.read_in_batch = true;
                self.begin_read(now, request, piece);
            }
            wire::CMD_CACHE => self.begin(now, request, RequestOp::Populate),
            wire::CMD_FLUSH => self.begin(now, request, RequestOp::Flush),
            wire::CMD_TRIM => self.begin(now, request, RequestOp::Discard),
            wire::CMD_WRITE_ZEROES => {
                let keep_allocated = request.flags & wire::CMD_FLAG_NO_HOLE != 0;
                self.begin(now, request, RequestOp::Zero { keep_allocated });
            }
            wire::CMD_BLOCK_STATUS => self.answer_status(request),
            wire::CMD_DISC => self.is_disconnecting = true,
            _ => unreachable!("unknown commands were refused"),
        }
    }

    fn client_request(&self, request: &wire::Request, op: RequestOp) -> ClientRequest {
        ClientRequest { request: *request, op, arrived_at: self.arrived_at }
    }

    fn begin_read(&mut self, now: Nanos, wire_request: &wire::Request, piece: u64) {
        let (client_request, len) =
            (self.client_request(wire_request, RequestOp::Read), u64::from(wire_request.len));
        let unfragmented = wire_request.flags & wire::CMD_FLAG_DF != 0;
        if unfragmented && len > piece.max(UNFRAGMENTED_BYTES_MIN) {
            let message = format!("{len} bytes are too many for one unfragmented chunk");
            self.reply_error(wire_request.cookie, &Failure { errno: Errno::Overflow, message });
            return;
        }
        let request = Request {
            interface: Interface::Gather,
            // Decided here once, even if the cache is resized at this moment.
            unfragmented: unfragmented || len <= piece,
            ..Request::new(RequestOp::Read, wire_request.offset..wire_request.offset + len)
        };
        match self.requests.submit(&self.cache, now, request, &[][..], || client_request) {
            Submitted::Done(done) => {
                let read = done.data.expect("the blocks of a read");
                self.send_data(wire_request.cookie, read, true);
                self.observe(&client_request, done.classes);
                self.finished_reads += 1;
            }
            Submitted::Queued(_) => {
                if !self.negotiated.structured && !unfragmented && len > piece {
                    self.uninterrupted_read = Some(UninterruptedRead::default());
                }
                self.take_events(now);
            }
        }
    }

    /// Begins a request that carries no data.
    fn begin(&mut self, now: Nanos, wire_request: &wire::Request, op: RequestOp) {
        let client_request = self.client_request(wire_request, op);
        // The range of a flush is ignored and was not checked.
        let range = match op {
            RequestOp::Flush => 0..0,
            _ => wire_request.offset..wire_request.offset + u64::from(wire_request.len),
        };
        let is_modifying = matches!(op, RequestOp::Zero { .. } | RequestOp::Discard);
        let is_fua = is_modifying && wire_request.flags & wire::CMD_FLAG_FUA != 0;
        let then = if is_fua { Then::Flush } else { Then::Nothing };
        let request = Request { then, interface: Interface::Gather, ..Request::new(op, range) };
        let submitted = self.requests.submit(&self.cache, now, request, &[][..], || client_request);
        debug_assert!(matches!(submitted, Submitted::Queued(_)), "neither a read nor a write");
        self.take_events(now);
    }

    /// Returns the error of a request that cannot be served.
    fn check_request(&self, request: &wire::Request) -> Option<Failure> {
        let invalid = |message: String| Some(Failure { errno: Errno::Inval, message });
        let wire::Request { command, flags, offset, len, .. } = *request;
        // All commands accept FUA; the protocol says to ignore it where it has no meaning.
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
        let is_modifying =
            matches!(command, wire::CMD_WRITE | wire::CMD_TRIM | wire::CMD_WRITE_ZEROES);
        if is_modifying && self.requests.volume().write_mode() == WriteMode::ReadOnly {
            let message = format!("write to {}: it is read-only", self.export.info.name);
            return Some(Failure { errno: Errno::Perm, message });
        }
        if len == 0 {
            return invalid("a request for nothing".into());
        }
        let length = self.export.info.length;
        if offset.checked_add(u64::from(len)).is_none_or(|end| end > length) {
            let errno = if is_modifying { Errno::NoSpace } else { Errno::Inval };
            let message = format!("{len} bytes at {offset}: the export ends at {length}");
            return Some(Failure { errno, message });
        }
        let has_payload = matches!(command, wire::CMD_READ | wire::CMD_WRITE | wire::CMD_CACHE);
        let limit = self.shared.limits.request_bytes_max;
        if has_payload && len > limit {
            return invalid(format!("{len} bytes in one request: the limit is {limit}"));
        }
        if command == wire::CMD_BLOCK_STATUS && !self.negotiated.base_allocation {
            return invalid("block status without base:allocation negotiated".into());
        }
        None
    }

    fn answer_status(&mut self, request: &wire::Request) {
        let single = request.flags & wire::CMD_FLAG_REQ_ONE != 0;
        let extents = crate::front::extents::extents(
            &self.cache,
            self.requests.volume(),
            &*self.export.map,
            request.offset,
            request.len,
            single,
        );
        let count = u16::try_from(extents.len()).expect("at most 1,024");
        let id = wire::BASE_ALLOCATION_ID;
        self.output.push(&wire::chunk_block_status(request.cookie, true, id, count));
        for (len, hole) in extents {
            let state = if hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 };
            self.output.push(&wire::extent(len, state));
        }
    }
}

/// Returns the length of a request in the stream, with the payload of a write.
fn message_bytes(request: &wire::Request) -> usize {
    let payload = if request.command == wire::CMD_WRITE { request.len as usize } else { 0 };
    REQUEST_BYTES.saturating_add(payload)
}
