//! Operations that wait for frames or other resources.
//!
//! The queue of each volume has the handles whose operations are stalled. Whatever frees resources
//! wakes all of them, and they try again.

use super::Cache;
use crate::completion::Completion;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::read_write::ReadRequest;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::lock;
use crate::volume::VolumeHandle;

/// The state that decides if a release of resources wakes handles.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Number of stalls since handles were last woken; 0 if no handle waits.
    stalled: AtomicUsize,
    /// True if a search for frames has found pinned ones since a release last woke handles.
    has_found_pins: AtomicBool,
}

impl Stalls {
    fn add(&self) {
        self.stalled.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a frame cannot be evicted because it is pinned.
    pub(super) fn note_pinned(&self) {
        if !self.has_found_pins.load(Ordering::Relaxed) {
            self.has_found_pins.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.stalled.load(Ordering::Acquire) > 0
    }

    /// Returns true if a release of pins must wake the handles.
    #[inline]
    fn take_pins_found(&self) -> bool {
        self.is_any() && self.has_found_pins.swap(false, Ordering::AcqRel)
    }

    /// Returns true if handles wait, which the caller wakes.
    fn take(&self) -> bool {
        self.stalled.swap(0, Ordering::AcqRel) > 0
    }
}

impl<F: Frames> Cache<F> {
    /// Records that an operation of a handle is stalled, and wakes the driver of the store, which
    /// can free frames.
    pub(super) fn stall(&self, handle: &VolumeHandle<F>) {
        lock(&handle.volume.queue).stall(&handle.completions);
        self.stalls.add();
        handle.recorder.add(Counter::Stalls, 1);
        handle.volume.waker.wake();
    }

    /// Releases the pins of a read, and wakes handles that may wait for these frames. Every read
    /// that was returned to a caller ends with this call.
    pub fn release(&self, read: &mut ReadRequest<F>) {
        read.release(&self.frames);
        self.pins_released();
    }

    /// Wakes the stalled handles after a release of pins, if pinned frames made a search for frames
    /// fail.
    pub(crate) fn pins_released(&self) {
        if self.stalls.take_pins_found() {
            self.unstall();
        }
    }

    pub(super) fn unstall(&self) {
        if !self.stalls.take() {
            return;
        }
        for volume in self.volumes() {
            let stalled = std::mem::take(&mut lock(&volume.queue).stalled);
            for completions in stalled {
                completions.deliver(&self.frames, Completion::Unstalled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_of_pins_wakes_only_if_a_search_has_met_pins_and_an_operation_waits() {
        let stalls = Stalls::default();
        stalls.note_pinned();
        assert!(!stalls.take_pins_found(), "no operation waits");
        stalls.add();
        assert!(stalls.take_pins_found());
        assert!(!stalls.take_pins_found(), "no search has met pins since");
        assert!(stalls.take() && !stalls.take() && !stalls.is_any());
    }
}
