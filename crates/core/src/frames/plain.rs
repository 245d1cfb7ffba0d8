//! Frames behind mutexes, without `unsafe`; for tests.

use super::none::EmptyPin;
use super::{FrameId, Frames, NO_FRAME, NoFrames};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::units::BLOCK_BYTES;
use std::sync::Mutex;

/// Initial byte of frames. Tests do not write it.
const UNWRITTEN: u8 = 0xEE;

/// Frames with bytes, for tests of the cache.
#[derive(Debug)]
pub struct PlainFrames {
    latches: NoFrames,
    bytes: Box<[Mutex<Box<[u8]>>]>,
    /// The frame whose latch was prefetched last.
    prefetched: AtomicU32,
}

impl PlainFrames {
    /// Returns `count` frames with a byte that no test writes, so that a test detects a read of
    /// memory that was never filled.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let frame = || Mutex::new(vec![UNWRITTEN; BLOCK_BYTES].into_boxed_slice());
        PlainFrames {
            latches: NoFrames::new(count),
            bytes: (0..count).map(|_| frame()).collect(),
            prefetched: AtomicU32::new(NO_FRAME),
        }
    }

    /// Returns the frame whose latch was prefetched last.
    #[must_use]
    pub fn prefetched(&self) -> Option<FrameId> {
        Some(self.prefetched.load(Ordering::Relaxed)).filter(|&frame| frame != NO_FRAME)
    }

    fn bytes(&self, frame: FrameId) -> std::sync::MutexGuard<'_, Box<[u8]>> {
        self.bytes[frame as usize].lock().expect("no holder of a frame panics")
    }
}

impl Frames for PlainFrames {
    type Pin = EmptyPin;
    type WritePin = EmptyPin;

    fn count(&self) -> u32 {
        self.latches.count()
    }

    fn try_pin(&self, frame: FrameId) -> Option<EmptyPin> {
        self.latches.try_pin(frame)
    }

    fn prefetch_latch(&self, frame: FrameId) {
        self.prefetched.store(frame, Ordering::Relaxed);
    }

    fn try_write_pin(&self, frame: FrameId) -> Option<EmptyPin> {
        self.latches.try_write_pin(frame)
    }

    fn unpin(&self, pin: EmptyPin) {
        self.latches.unpin(pin);
    }

    fn release_write_pin(&self, write_pin: EmptyPin) {
        self.latches.release_write_pin(write_pin);
    }

    fn downgrade(&self, write_pin: EmptyPin) -> EmptyPin {
        self.latches.downgrade(write_pin)
    }

    fn pinned(&self, pin: &EmptyPin) -> FrameId {
        self.latches.pinned(pin)
    }

    fn write_pinned(&self, write_pin: &EmptyPin) -> FrameId {
        self.latches.write_pinned(write_pin)
    }

    fn release(&self, frames: &mut [EmptyPin]) {
        for write_pin in frames {
            self.bytes(self.write_pinned(write_pin)).fill(UNWRITTEN);
        }
    }

    fn read(&self, pin: &EmptyPin, offset: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes(self.pinned(pin))[offset..offset + to.len()]);
    }

    fn write_with(
        &self,
        write_pin: &mut EmptyPin,
        offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        fill(&mut self.bytes(self.write_pinned(write_pin))[offset..offset + len]);
    }

    fn zero(&self, write_pin: &mut EmptyPin, offset: usize, len: usize) {
        self.bytes(self.write_pinned(write_pin))[offset..offset + len].fill(0);
    }

    fn copy(&self, from: &EmptyPin, to: &mut EmptyPin, offset: usize, len: usize) {
        let source = self.bytes(self.pinned(from))[offset..offset + len].to_vec();
        self.write(to, offset, &source);
    }
}
