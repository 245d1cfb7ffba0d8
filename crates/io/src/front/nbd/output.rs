//! Queue of unsent replies: headers, and frames of the cache that the kernel reads directly.
//!
//! A frame stays pinned until its bytes are sent, so that they cannot change before. A write to the
//! frame in the meantime copies its block to another frame, so no client waits for a slow reader.
//! Invariant: the pins of sent bytes can be taken, even while other replies are queued behind them.

use super::input::log_failure;
use super::socket::Socket;
use crate::frames::ArenaFrames;
use crate::tls::Transport;
use larder_mem::Pin;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// Maximum number of slices in one call on a plain socket; the kernel's limit is 1,024.
const PLAIN_SLICES_MAX: usize = 512;
/// Maximum number of slices in one call of TLS: not many more than it encrypts at a time.
const TLS_SLICES_MAX: usize = 32;
/// Memory that an empty queue keeps.
const SPARE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
enum Piece {
    /// This many of the next bytes of `Output::bytes`.
    Bytes(usize),
    Frame(Pin, Range<usize>),
}

#[derive(Debug, Default)]
pub(super) struct Output {
    /// The bytes of all pieces that are not frames, in order, after `sent_bytes` sent ones.
    bytes: Vec<u8>,
    /// At most half of `bytes`, except in the middle of a send.
    sent_bytes: usize,
    pieces: VecDeque<Piece>,
    /// Pins that the output no longer needs, the oldest first.
    released: Vec<Pin>,
    backlog: usize,
}

impl Output {
    pub(super) fn backlog(&self) -> usize {
        self.backlog
    }

    /// Returns the bytes of memory that the replies take outside the cache.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.pieces.len() * size_of::<Piece>()
    }

    /// Removes and returns the pins that the output no longer needs, the oldest first.
    pub(super) fn take_released(&mut self) -> impl ExactSizeIterator<Item = Pin> + '_ {
        self.released.drain(..)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.backlog += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Bytes(count)) => *count += bytes.len(),
            _ => self.pieces.push_back(Piece::Bytes(bytes.len())),
        }
    }

    pub(super) fn push_frame(&mut self, pin: Pin, range: Range<usize>) {
        self.backlog += range.len();
        self.pieces.push_back(Piece::Frame(pin, range));
    }

    /// Sends as much as the transport accepts. Returns false if the client is gone.
    pub(super) fn send(
        &mut self,
        frames: &ArenaFrames,
        transport: &mut Transport<&Socket>,
    ) -> bool {
        let slices_max =
            if transport.channel.is_none() { PLAIN_SLICES_MAX } else { TLS_SLICES_MAX };
        while self.backlog > 0 {
            match transport.send(&self.slices(frames, slices_max)) {
                Ok(count) => self.advance(count),
                Err(failure) if failure.is_wait() => return true,
                Err(failure) => {
                    log_failure(&failure);
                    return false;
                }
            }
        }
        transport.flush().inspect_err(log_failure).is_ok()
    }

    fn slices<'a>(&'a self, frames: &'a ArenaFrames, slices_max: usize) -> Vec<IoSlice<'a>> {
        let mut bytes = &self.bytes[self.sent_bytes..];
        let slice = |piece: &'a Piece| {
            IoSlice::new(match piece {
                Piece::Frame(pin, range) => &frames.arena().bytes(pin)[range.clone()],
                Piece::Bytes(count) => bytes.split_off(..*count).expect("all are queued"),
            })
        };
        self.pieces.iter().take(slices_max).map(slice).collect()
    }

    fn advance(&mut self, mut count: usize) {
        self.backlog -= count;
        if self.backlog == 0 {
            // The usual case: the client takes all replies at once.
            self.clear();
            self.bytes.shrink_to(SPARE_BYTES_MAX);
            self.pieces.shrink_to(SPARE_BYTES_MAX / size_of::<Piece>());
            return;
        }
        while let Some(first) = self.pieces.front_mut() {
            let is_whole = match first {
                Piece::Bytes(left) => {
                    let sent = count.min(*left);
                    *left -= sent;
                    count -= sent;
                    self.sent_bytes += sent;
                    *left == 0
                }
                Piece::Frame(_, range) => {
                    let sent = count.min(range.len());
                    range.start += sent;
                    count -= sent;
                    range.start == range.end
                }
            };
            if !is_whole {
                break;
            }
            if let Some(Piece::Frame(pin, _)) = self.pieces.pop_front() {
                self.released.push(pin);
            }
        }
        if self.sent_bytes > self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.sent_bytes));
        }
    }

    /// Discards all unsent replies. Their pins follow those of sent frames in
    /// [`Output::take_released`].
    pub(super) fn discard_unsent(&mut self) {
        self.clear();
        self.backlog = 0;
    }

    fn clear(&mut self) {
        for piece in self.pieces.drain(..) {
            if let Piece::Frame(pin, _) = piece {
                self.released.push(pin);
            }
        }
        self.sent_bytes = 0;
        self.bytes.clear();
    }
}
