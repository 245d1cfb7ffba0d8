//! Many requests in flight on one connection.
//!
//! NBD's proto.md, "Request message" and "Ordering of messages and writes": the server replies in
//! any order, and the cookie identifies the request. A cookie consists of a slot and its number of
//! uses, so the client detects a duplicate reply. Slots are kept and buffers are reused: in a
//! steady state nothing is allocated.

use super::Client;
use super::deadline::Deadline;
use super::error::{ClientError, RequestError};
use crate::nbd_wire as wire;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// Number of received parts of a read for which a slot keeps memory between two requests.
pub(super) const COVERED_KEPT: usize = 4;

/// A request to submit. The client sends ranges and flags unchecked.
#[derive(Debug)]
pub struct Request {
    /// The header; its cookie is set when the request is submitted.
    header: wire::Request,
    data: Vec<u8>,
}

/// A part of an export with one state, `STATE_*` bits of `base:allocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u32,
    /// State bits.
    pub state: u32,
}

/// A completed request.
#[derive(Debug)]
pub struct Completion {
    /// Cookie that `submit` returned.
    pub cookie: u64,
    /// Result of the request.
    pub result: Result<(), RequestError>,
    /// The submitted buffer: the data of a read, or the unchanged data of a write. After a failed
    /// read its content is undefined.
    pub data: Vec<u8>,
    /// Extents of a block status request; empty for other requests.
    pub extents: Vec<Extent>,
}

/// A request in flight, or a free slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Number of uses of the slot; the upper half of the cookie.
    uses: u32,
    pub active: bool,
    pub request: wire::Request,
    pub data: Vec<u8>,
    /// Deadline of the reply, once it has begun.
    pub deadline: Option<Deadline>,
    /// Received parts of a structured read, as offsets in `data`: sorted, with gaps between them.
    pub covered: Vec<(u32, u32)>,
    pub extents: Vec<Extent>,
    pub error: Option<RequestError>,
}

impl Request {
    fn new(command: u16, offset: u64, len: u32, data: Vec<u8>) -> Self {
        Self { header: wire::Request { command, offset, len, ..wire::Request::default() }, data }
    }

    fn with_data(command: u16, offset: u64, data: Vec<u8>) -> Self {
        let len = u32::try_from(data.len()).expect("an NBD request is shorter than 4 GiB");
        Self::new(command, offset, len, data)
    }

    /// Creates a read that fills the whole buffer, whatever its content.
    #[must_use]
    pub fn read(offset: u64, buffer: Vec<u8>) -> Self {
        Self::with_data(wire::CMD_READ, offset, buffer)
    }

    /// Creates a write of all of `data`.
    #[must_use]
    pub fn write(offset: u64, data: Vec<u8>) -> Self {
        Self::with_data(wire::CMD_WRITE, offset, data)
    }

    /// Creates a flush, which makes all completed writes stable.
    #[must_use]
    pub fn flush() -> Self {
        Self::new(wire::CMD_FLUSH, 0, 0, Vec::new())
    }

    /// Creates a trim, which discards a range.
    #[must_use]
    pub fn trim(offset: u64, len: u32) -> Self {
        Self::new(wire::CMD_TRIM, offset, len, Vec::new())
    }

    /// Creates a cache request, which announces reads of a range.
    #[must_use]
    pub fn cache(offset: u64, len: u32) -> Self {
        Self::new(wire::CMD_CACHE, offset, len, Vec::new())
    }

    /// Creates a request that makes a range read as zeros.
    #[must_use]
    pub fn write_zeroes(offset: u64, len: u32) -> Self {
        Self::new(wire::CMD_WRITE_ZEROES, offset, len, Vec::new())
    }

    /// Creates a block status request for a range.
    #[must_use]
    pub fn block_status(offset: u64, len: u32) -> Self {
        Self::new(wire::CMD_BLOCK_STATUS, offset, len, Vec::new())
    }

    /// Creates a disconnect request, which has no reply.
    pub(super) fn disconnect() -> Self {
        Self::new(wire::CMD_DISC, 0, 0, Vec::new())
    }

    /// Returns the request with these `CMD_FLAG_*` bits.
    #[must_use]
    pub fn with_flags(self, flags: u16) -> Self {
        Self { header: wire::Request { flags, ..self.header }, ..self }
    }
}

impl Client {
    /// Sends a request; returns its cookie. While the server accepts no data, the client receives
    /// replies that have arrived.
    ///
    /// # Errors
    /// If the connection has failed; the request's buffer is then lost.
    pub fn submit(&mut self, request: Request) -> Result<u64, ClientError> {
        if self.failed {
            return Err(ClientError::Failed);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        debug_assert!(!slot.active, "a free slot is free");
        slot.uses = slot.uses.wrapping_add(1);
        slot.active = true;
        slot.deadline = None;
        slot.error = None;
        let low = u64::try_from(index).expect("a slot's index fits");
        let cookie = u64::from(slot.uses) << 32 | low;
        let Request { header, data } = request;
        slot.request = wire::Request { cookie, ..header };
        let header = slot.request.to_bytes();
        if slot.request.command == wire::CMD_WRITE {
            let sent = self.send(&header, &data);
            self.note_error(sent)?;
            self.return_buffer(cookie, data);
        } else {
            // The reply may arrive at any time from the first byte on.
            slot.data = data;
            let sent = self.send(&header, &[]);
            self.note_error(sent)?;
        }
        Ok(cookie)
    }

    /// Returns the next completed request, in the order of the replies. Requests that were
    /// completed before a failure are still returned after it.
    ///
    /// # Errors
    /// If the connection has failed, or no request is in flight.
    pub fn wait(&mut self) -> Result<Completion, ClientError> {
        self.wait_where(|_| true)
    }

    /// Waits as [`Client::wait`], but returns `None` if no request completes in this time. A zero
    /// time does not wait.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub fn wait_for(&mut self, time: Duration) -> Result<Option<Completion>, ClientError> {
        let started = Instant::now();
        loop {
            if let Some(completion) = self.ready.pop_front() {
                return Ok(Some(completion));
            }
            if self.in_flight() > 0 && !self.failed && !self.has_input() {
                let left = time.saturating_sub(started.elapsed());
                let ready = self.stream.get_ref().wait_ready(false, Some(left));
                let ready = ready.map_err(ClientError::from);
                if self.note_error(ready)?.is_none() {
                    return Ok(None);
                }
            }
            self.receive_reply()?;
        }
    }

    /// Returns the number of submitted requests without a reply. Completed requests that the caller
    /// has not received yet do not count.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Waits for the first completion that fits; others stay queued.
    pub(super) fn wait_where(
        &mut self,
        fits: impl Fn(&Completion) -> bool,
    ) -> Result<Completion, ClientError> {
        loop {
            let found = self.ready.iter().position(&fits);
            if let Some(completion) = found.and_then(|at| self.ready.remove(at)) {
                return Ok(completion);
            }
            self.receive_reply()?;
        }
    }

    /// Returns the slot that a cookie names, if its request is in flight.
    pub(super) fn slot_of(&self, cookie: u64) -> Result<usize, ClientError> {
        let index = usize::try_from(cookie & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        match self.slots.get(index) {
            Some(slot) if slot.active && slot.request.cookie == cookie => Ok(index),
            _ => Err(ClientError::Protocol(format!(
                "it answered request {cookie:#x}, which is not in flight"
            ))),
        }
    }

    pub(super) fn finish(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.active = false;
        slot.covered.clear();
        slot.covered.shrink_to(COVERED_KEPT);
        self.ready.push_back(Completion {
            cookie: slot.request.cookie,
            result: slot.error.take().map_or(Ok(()), Err),
            data: std::mem::take(&mut slot.data),
            extents: std::mem::take(&mut slot.extents),
        });
        self.free.push(index);
    }

    /// Puts the buffer of a write into its slot, or into its completion: a server may reply with an
    /// error before it has received all data.
    fn return_buffer(&mut self, cookie: u64, data: Vec<u8>) {
        if let Ok(index) = self.slot_of(cookie) {
            self.slots[index].data = data;
        } else if let Some(completion) =
            self.ready.iter_mut().find(|completion| completion.cookie == cookie)
        {
            completion.data = data;
        }
    }

    /// Sends header and payload; receives replies while the server accepts no data.
    fn send(&mut self, header: &[u8], payload: &[u8]) -> Result<(), ClientError> {
        let mut sent = 0;
        let mut deadline = Deadline::after(self.timeout, payload.len());
        while sent < header.len() + payload.len() {
            let parts = [
                IoSlice::new(&header[sent.min(header.len())..]),
                IoSlice::new(&payload[sent.saturating_sub(header.len())..]),
            ];
            if let Some(bytes) = self.stream.get_mut().send_now(&parts)? {
                sent += bytes;
            } else {
                self.make_room(&mut deadline)?;
            }
        }
        while !self.stream.get_mut().flush_now()? {
            self.make_room(&mut deadline)?;
        }
        Ok(())
    }

    /// Returns true if received input has not been processed.
    pub(super) fn has_input(&mut self) -> bool {
        !self.stream.buffer().is_empty() || self.stream.get_mut().has_input()
    }

    /// Waits until the socket accepts more data. Receives a reply if one arrives, which extends the
    /// deadline.
    fn make_room(&mut self, deadline: &mut Deadline) -> Result<(), ClientError> {
        if !self.has_input() {
            self.stream.get_mut().deadline = *deadline;
            let ready = self.stream.get_ref().wait_blocking(true)?;
            if !ready.input {
                debug_assert!(ready.output, "poll returns with something");
                return Ok(());
            }
        }
        self.receive()?;
        *deadline = deadline.extended(self.timeout);
        Ok(())
    }

    fn receive_reply(&mut self) -> Result<(), ClientError> {
        if self.failed {
            return Err(ClientError::Failed);
        }
        if self.in_flight() == 0 {
            return Err(ClientError::NothingInFlight);
        }
        let received = self.receive();
        self.note_error(received)
    }

    /// Records that the connection is unusable after an error that ends it.
    fn note_error<T>(&mut self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        self.failed |= result.as_ref().is_err_and(ClientError::ends_connection);
        result
    }
}
