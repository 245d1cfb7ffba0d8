//! The receive buffer of a connection: of fixed size, so that no client makes it grow.

use super::transport::Transport;
use larder_core::request::WRITE_PIECE_BYTES;
use rustix::io::Errno;

/// The largest piece of a payload that [`Input`] holds whole.
pub(super) const PIECE_BYTES: usize = WRITE_PIECE_BYTES as usize;
/// Bytes of the buffer: while one piece is taken in, the next one can come.
const INPUT_BYTES: usize = 2 * PIECE_BYTES;

/// What a receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Some bytes.
    Some,
    /// Nothing now.
    Nothing,
    /// The client is gone.
    Closed,
}

/// Bytes that have come and are not used yet.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Input { buffer: vec![0; INPUT_BYTES].into(), start: 0, end: 0 }
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

    /// Whether [`Input::receive`] could bring something.
    pub(super) fn has_room(&self) -> bool {
        self.end - self.start < self.buffer.len()
    }

    /// Receives what has come, without waiting.
    pub(super) fn receive(&mut self, transport: &mut Transport<'_>) -> Received {
        if self.start > 0 && self.buffer.len() - self.end < PIECE_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            return Received::Nothing;
        }
        match transport.receive(&mut self.buffer[self.end..]) {
            Ok(0) => Received::Closed,
            Ok(count) => {
                self.end += count;
                Received::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }
}
