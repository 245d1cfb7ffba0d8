//! Answers on their way: headers, and frames of the cache that the socket reads for itself.
//!
//! A frame stays pinned until its bytes are sent, so that they cannot change on the way; a client
//! that writes to it meanwhile gets a copy, and nobody waits for a slow reader.

use super::transport::Transport;
use crate::frames::ArenaFrames;
use larder_core::frames::Frames;
use larder_mem::Pin;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

#[derive(Debug)]
enum Piece {
    /// A range of `Output::bytes`.
    Bytes(Range<usize>),
    Frame(Pin, Range<usize>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Bytes(range) | Piece::Frame(_, range) => range.len(),
        }
    }
}

/// Answers that have not been sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been sent.
    sent: usize,
    backlog: usize,
}

impl Output {
    /// Bytes that have not been sent.
    pub(super) fn backlog(&self) -> usize {
        self.backlog
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        self.backlog += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Bytes(range)) if range.end == start => range.end = end,
            _ => self.pieces.push_back(Piece::Bytes(start..end)),
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
                Ok(count) => self.advance(frames, count),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        transport.flush().is_ok()
    }

    fn slices<'a>(&'a self, frames: &'a ArenaFrames, slices_max: usize) -> Vec<IoSlice<'a>> {
        let mut skip = self.sent;
        let slice = |piece: &'a Piece| {
            let bytes = match piece {
                Piece::Bytes(range) => &self.bytes[range.clone()],
                Piece::Frame(pin, range) => &frames.arena().bytes(pin)[range.clone()],
            };
            IoSlice::new(&bytes[std::mem::take(&mut skip)..])
        };
        self.pieces.iter().take(slices_max).map(slice).collect()
    }

    fn advance(&mut self, frames: &ArenaFrames, mut count: usize) {
        self.backlog -= count;
        while let Some(first) = self.pieces.front() {
            let left = first.len() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            if let Some(Piece::Frame(pin, _)) = self.pieces.pop_front() {
                frames.unpin(pin);
            }
        }
        self.bytes.clear();
    }

    /// Gives up what was not sent.
    pub(super) fn abandon(&mut self, frames: &ArenaFrames) {
        for piece in self.pieces.drain(..) {
            if let Piece::Frame(pin, _) = piece {
                frames.unpin(pin);
            }
        }
        (self.sent, self.backlog) = (0, 0);
        self.bytes.clear();
    }
}
