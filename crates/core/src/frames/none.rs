//! Frames without bytes: latches only. The cache behaves as with memory, and stores no data.

use super::{FrameId, Frames};
use crate::sync::atomic::{AtomicI32, Ordering};

/// Frames that hold no data. Reads return zeros.
#[derive(Debug)]
pub struct NoFrames {
    /// Number of pins, or -1 if write-pinned.
    latches: Box<[AtomicI32]>,
}

/// A pin or write pin of a frame without bytes.
#[derive(Debug)]
pub struct EmptyPin(FrameId);

impl NoFrames {
    /// Returns `count` frames without memory.
    #[must_use]
    pub fn new(count: u32) -> Self {
        NoFrames { latches: (0..count).map(|_| AtomicI32::new(0)).collect() }
    }

    fn latch(&self, frame: FrameId) -> &AtomicI32 {
        &self.latches[frame as usize]
    }
}

impl Frames for NoFrames {
    type Pin = EmptyPin;
    type WritePin = EmptyPin;

    fn count(&self) -> u32 {
        u32::try_from(self.latches.len()).expect("made from a u32")
    }

    fn try_pin(&self, frame: FrameId) -> Option<EmptyPin> {
        let taken = self.latch(frame).fetch_update(Ordering::Acquire, Ordering::Relaxed, |count| {
            (count >= 0).then_some(count + 1)
        });
        taken.is_ok().then_some(EmptyPin(frame))
    }

    fn try_write_pin(&self, frame: FrameId) -> Option<EmptyPin> {
        self.latch(frame)
            .compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(EmptyPin(frame))
    }

    fn unpin(&self, pin: EmptyPin) {
        let before = self.latch(pin.0).fetch_sub(1, Ordering::Release);
        assert!(before > 0, "frame {} was unpinned more often than pinned", pin.0);
    }

    fn release_write_pin(&self, write_pin: EmptyPin) {
        let before = self.latch(write_pin.0).swap(0, Ordering::Release);
        assert_eq!(before, -1, "frame {} was disowned without being owned", write_pin.0);
    }

    fn downgrade(&self, write_pin: EmptyPin) -> EmptyPin {
        let before = self.latch(write_pin.0).swap(1, Ordering::Release);
        assert_eq!(before, -1, "frame {} was downgraded without being owned", write_pin.0);
        write_pin
    }

    fn pinned(&self, pin: &EmptyPin) -> FrameId {
        pin.0
    }

    fn write_pinned(&self, write_pin: &EmptyPin) -> FrameId {
        write_pin.0
    }

    fn read(&self, _pin: &EmptyPin, _offset: usize, to: &mut [u8]) {
        to.fill(0);
    }

    fn write_with(&self, _: &mut EmptyPin, _: usize, _: usize, _: impl FnOnce(&mut [u8])) {}

    fn zero(&self, _own: &mut EmptyPin, _offset: usize, _len: usize) {}

    fn copy(&self, _from: &EmptyPin, _to: &mut EmptyPin, _offset: usize, _len: usize) {}
}
