//! The receive buffer of a connection. It is small; only with memory that the session has leased
//! is it large, for long payloads. It is released while the client sends nothing.

use super::socket::Socket;
use crate::tls::{Failure, Transport};
use larder_core::request::{SMALL_WRITE_PIECE_BYTES, WRITE_PIECE_BYTES};

/// Bytes of the small buffer: one small piece of a payload, and the headers behind it.
const SMALL_BYTES: usize = SMALL_WRITE_PIECE_BYTES as usize + HEADERS_BYTES;
const LARGE_BYTES: usize = WRITE_PIECE_BYTES as usize + (32 << 10);
/// Bytes that the session has to lease for a large buffer.
pub(super) const LEASE_BYTES: u64 = (LARGE_BYTES - SMALL_BYTES) as u64;

/// Bytes of the buffer that are used while no payload is expected: headers are short, and a client
/// that sends many of them cannot make the server use more memory.
const HEADERS_BYTES: usize = 8 << 10;
/// Bytes that a client may send ahead in the handshake; most options are shorter.
const HANDSHAKE_INPUT_BYTES: usize = 16 << 10;

/// Bytes of the first receive after the buffer was released.
const FIRST_BYTES: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Some,
    Nothing,
    /// The client has closed the connection, or it has failed.
    Closed,
}

/// Received bytes that are not consumed yet.
#[derive(Debug)]
pub(super) struct Input {
    /// The whole buffer, or the rest that [`Input::shrink`] has left.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The length of the whole buffer; [`LARGE_BYTES`] if it is large.
    size: usize,
    /// True if a payload has filled more than headers may use; that memory stays until the client
    /// is idle.
    has_exceeded_headers: bool,
}

impl Input {
    /// Returns a small buffer, for the handshake.
    pub(super) fn new() -> Self {
        let size = HANDSHAKE_INPUT_BYTES;
        Input { buffer: vec![0; size].into(), start: 0, end: 0, size, has_exceeded_headers: false }
    }

    /// Returns a buffer for requests and payloads that holds the bytes received so far. The buffer
    /// for the handshake is released.
    pub(super) fn into_requests(self) -> Self {
        let (buffer, size) = (Box::default(), SMALL_BYTES);
        let mut input = Input { buffer, start: 0, end: 0, size, has_exceeded_headers: false };
        input.grow(self.bytes());
        input
    }

    /// Releases the memory, except for received bytes that are not consumed yet. The buffer is
    /// small from now on, unless these bytes are more than that.
    pub(super) fn shrink(&mut self) {
        self.buffer = self.bytes().into();
        (self.start, self.end) = (0, self.buffer.len());
        self.has_exceeded_headers = false;
        if self.end <= SMALL_BYTES {
            self.size = SMALL_BYTES;
        }
    }

    pub(super) fn is_large(&self) -> bool {
        self.size == LARGE_BYTES
    }

    /// Makes the buffer large. The session has leased [`LEASE_BYTES`].
    pub(super) fn enlarge(&mut self) {
        self.size = LARGE_BYTES;
        if !self.buffer.is_empty() {
            self.grow(&[]);
        }
    }

    /// Returns true if there is memory to release.
    pub(super) fn can_shrink(&self) -> bool {
        self.buffer.len() == self.size
    }

    /// Restores the buffer to its full size and appends `more`.
    fn grow(&mut self, more: &[u8]) {
        let mut buffer = vec![0; self.size].into_boxed_slice();
        let len = self.bytes().len();
        buffer[..len].copy_from_slice(self.bytes());
        buffer[len..len + more.len()].copy_from_slice(more);
        (self.buffer, self.start, self.end) = (buffer, 0, len + more.len());
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "consumed more than came");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Returns the number of bytes of the buffer that may be used.
    fn limit(&self, payload: bool) -> usize {
        if payload || self.has_exceeded_headers { self.size } else { self.size.min(HEADERS_BYTES) }
    }

    /// Returns true if the buffer has room for [`Input::receive`].
    pub(super) fn has_room(&self, payload: bool) -> bool {
        self.end - self.start < self.limit(payload)
    }

    /// Receives available bytes without waiting; more of them if a `payload` is expected.
    pub(super) fn receive(
        &mut self,
        transport: &mut Transport<&Socket>,
        payload: bool,
    ) -> Received {
        let limit = self.limit(payload);
        if !self.can_shrink() {
            return self.receive_first(transport, limit);
        }
        if self.start > 0 && limit.saturating_sub(self.end) < limit / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end >= limit {
            return Received::Nothing;
        }
        match receive_some(transport, &mut self.buffer[self.end..limit]) {
            Ok(count) => {
                self.end += count;
                self.has_exceeded_headers |= self.end > HEADERS_BYTES;
                Received::Some
            }
            Err(nothing) => nothing,
        }
    }

    /// Receives into a released buffer, which is restored when bytes arrive.
    fn receive_first(&mut self, transport: &mut Transport<&Socket>, limit: usize) -> Received {
        let mut first = [0; FIRST_BYTES];
        let room = limit.saturating_sub(self.bytes().len()).min(FIRST_BYTES);
        if room == 0 {
            return Received::Nothing;
        }
        match receive_some(transport, &mut first[..room]) {
            Ok(count) => {
                self.grow(&first[..count]);
                Received::Some
            }
            Err(nothing) => nothing,
        }
    }
}

/// Receives available bytes, and returns their number if there are any.
fn receive_some(transport: &mut Transport<&Socket>, to: &mut [u8]) -> Result<usize, Received> {
    match transport.receive(to) {
        Ok(0) => Err(Received::Closed),
        Ok(count) => Ok(count),
        Err(failure) if failure.is_wait() => Err(Received::Nothing),
        Err(failure) => {
            log_failure(&failure);
            Err(Received::Closed)
        }
    }
}

/// Logs a failure of TLS, which ends the connection.
pub(super) fn log_failure(failure: &Failure) {
    if let Failure::Tls(error) = failure {
        tracing::info!(%error, "TLS with a client failed");
    }
}
