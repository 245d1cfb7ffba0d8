//! Answers on their way: headers, and frames of the cache that the socket reads for itself.
//!
//! A frame stays pinned until its bytes are sent, so that they cannot change on the way; a client
//! that writes to it meanwhile gets a copy, so no client waits for a slow reader. Invariant: the
//! pins of sent bytes can be taken, even while other answers wait behind them.

use super::transport::Transport;
use crate::frames::ArenaFrames;
use larder_mem::Pin;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// Memory that an empty queue keeps.
const SPARE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
enum Piece {
    /// This many of the next bytes of `Output::bytes`.
    Bytes(usize),
    Frame(Pin, Range<usize>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Bytes(count) => *count,
            Piece::Frame(_, range) => range.len(),
        }
    }
}

/// Answers that have not been sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// The bytes of all pieces that are not frames, in order.
    bytes: VecDeque<u8>,
    pieces: VecDeque<Piece>,
    /// Pins of frames that have been sent, the oldest first.
    sent: Vec<Pin>,
    backlog: usize,
}

impl Output {
    /// Bytes that have not been sent.
    pub(super) fn backlog(&self) -> usize {
        self.backlog
    }

    /// Returns the memory that the replies take outside the cache.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.pieces.len() * size_of::<Piece>()
    }

    /// Returns the pins of frames that have been sent, the oldest first.
    pub(super) fn take_sent(&mut self) -> impl ExactSizeIterator<Item = Pin> + '_ {
        self.sent.drain(..)
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.backlog += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Bytes(count)) => *count += bytes.len(),
            _ => self.pieces.push_back(Piece::Bytes(bytes.len())),
        }
    }

    /// Adds a part of a frame.
    pub(super) fn push_frame(&mut self, pin: Pin, range: Range<usize>) {
        self.backlog += range.len();
        self.pieces.push_back(Piece::Frame(pin, range));
    }

    /// Sends as much as the way to the client takes; false if the client is gone.
    pub(super) fn send(&mut self, frames: &ArenaFrames, transport: &mut Transport<'_>) -> bool {
        while self.backlog > 0 {
            let slices = self.slices(frames, transport.slices_max());
            match transport.send(&slices) {
                Ok(count) => self.advance(count),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        transport.flush().is_ok()
    }

    fn slices<'a>(&'a self, frames: &'a ArenaFrames, slices_max: usize) -> Vec<IoSlice<'a>> {
        let (mut front, mut back) = self.bytes.as_slices();
        let mut slices = Vec::with_capacity(slices_max.min(self.pieces.len() + 1));
        for piece in &self.pieces {
            // The bytes of one piece may wrap around the end of the queue's memory.
            if slices.len() + 2 > slices_max {
                break;
            }
            match piece {
                Piece::Frame(pin, range) => {
                    slices.push(IoSlice::new(&frames.arena().bytes(pin)[range.clone()]));
                }
                Piece::Bytes(count) => {
                    let first = front.split_off(..front.len().min(*count)).expect("a part of it");
                    let second = back.split_off(..*count - first.len()).expect("all are queued");
                    let parts = [first, second].into_iter().filter(|part| !part.is_empty());
                    slices.extend(parts.map(IoSlice::new));
                }
            }
        }
        slices
    }

    fn advance(&mut self, mut count: usize) {
        self.backlog -= count;
        while let Some(first) = self.pieces.front_mut() {
            let sent = count.min(first.len());
            count -= sent;
            let is_whole = sent == first.len();
            match first {
                Piece::Bytes(left) => {
                    *left -= sent;
                    self.bytes.drain(..sent);
                }
                Piece::Frame(_, range) => range.start += sent,
            }
            if !is_whole {
                return;
            }
            if let Some(Piece::Frame(pin, _)) = self.pieces.pop_front() {
                self.sent.push(pin);
            }
        }
        if self.bytes.capacity() > SPARE_BYTES_MAX {
            self.bytes = VecDeque::new();
        }
        if self.pieces.capacity() * size_of::<Piece>() > SPARE_BYTES_MAX {
            self.pieces = VecDeque::new();
        }
    }

    /// Drops what was not sent. Its pins can be taken, after those of what was sent.
    pub(super) fn abandon(&mut self) {
        for piece in self.pieces.drain(..) {
            if let Piece::Frame(pin, _) = piece {
                self.sent.push(pin);
            }
        }
        self.backlog = 0;
        self.bytes.clear();
    }
}
