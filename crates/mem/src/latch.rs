//! A latch per frame: access to its bytes is controlled by one word, without blocking.
//!
//! The top bit of the word is set while the frame is write-pinned; the bits below count pins.
//! Invariants:
//!
//! * A write pin is granted only by changing 0 to [`WRITE_PINNED`], so that no pin exists at the
//!   same time.
//! * A pin is granted by adding one to a word without the bit: one atomic instruction, which cannot
//!   fail because of other pins, unlike a compare-and-swap. A thread that finds the bit set
//!   subtracts the one again. In between the word counts a *stray*, an increment without a pin.
//!   Hence every change of the word adds or subtracts, and none stores: a store would lose the
//!   strays.
//! * A stray can only make [`Latches::try_write_pin`] fail where it might have succeeded an instant
//!   later. It has the same cause and the same meaning as a pin that lives for that instant.
//! * The count cannot overflow into the bit with a bad effect: pin number 2^31 of one frame sets
//!   it, and then no more are granted until one is released. No write pin can result, since there
//!   is none to release and the word is far from 0.
//!
//! Memory order: releasing a pin is a release operation, taking one is an acquire operation, and as
//! all changes are read-modify-write, one acquire synchronizes with all releases before it (C++20
//! release sequences).

use crate::pin::{Pin, RawPin, WritePin};
use crate::prefetch::fetch_to_change;
use crate::sync::{AtomicU32, Ordering, next_identity, zeros};
use std::num::NonZeroU32;

/// Set while a frame is write-pinned.
const WRITE_PINNED: u32 = 1 << 31;

/// The latches of an arena, without the memory that they guard.
#[derive(Debug)]
pub struct Latches {
    /// Not padded: 16 share a cache line. The frames of a page are adjacent and are pinned
    /// together, and padding would take 60 bytes per frame from the memory bound.
    words: Box<[AtomicU32]>,
    /// Stored in each pin, to detect a pin of other latches.
    identity: NonZeroU32,
}

impl Latches {
    /// Creates `count` latches without pins.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Latches { words: zeros(count as usize), identity: next_identity() }
    }

    /// Returns the number of latches; frames start at 0.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.words.len()).expect("made from a u32")
    }

    /// Returns the size of one latch in bytes.
    #[must_use]
    pub const fn bytes_per_frame() -> usize {
        size_of::<AtomicU32>()
    }

    /// Pins the frame, unless it is write-pinned. Never blocks.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_pin(&self, frame: u32) -> Option<Pin> {
        let word = &self.words[frame as usize];
        if word.fetch_add(1, Ordering::Acquire) & WRITE_PINNED != 0 {
            // No read happened under the stray, so there is nothing to release.
            word.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Pin(RawPin::new(frame, self.identity)))
    }

    /// Prefetches the latch of a frame that will be pinned soon. Only a hint; invalid frames are
    /// ignored.
    #[inline]
    pub fn prefetch(&self, frame: u32) {
        if let Some(word) = self.words.get(frame as usize) {
            fetch_to_change(word);
        }
    }

    /// Write-pins the frame, unless it is pinned or write-pinned. Never blocks.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_write_pin(&self, frame: u32) -> Option<WritePin> {
        self.words[frame as usize]
            .compare_exchange(0, WRITE_PINNED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| WritePin(RawPin::new(frame, self.identity)))
    }

    /// Releases a pin.
    ///
    /// # Panics
    /// The pin is of other latches.
    #[inline]
    pub fn unpin(&self, pin: Pin) {
        let before = self.word(&pin.0).fetch_sub(1, Ordering::Release);
        debug_assert!(before != 0, "frame {} was unpinned without being pinned", pin.frame());
        std::mem::forget(pin);
    }

    /// Releases a write pin.
    ///
    /// # Panics
    /// The write pin is of other latches.
    #[inline]
    pub fn release_write_pin(&self, write_pin: WritePin) {
        let before = self.word(&write_pin.0).fetch_sub(WRITE_PINNED, Ordering::Release);
        debug_assert!(
            before & WRITE_PINNED != 0,
            "frame {} was disowned without an owner",
            write_pin.frame()
        );
        std::mem::forget(write_pin);
    }

    /// Converts a write pin into a pin; no other thread can write-pin the frame in between.
    ///
    /// # Panics
    /// The write pin is of other latches.
    #[inline]
    pub fn downgrade(&self, write_pin: WritePin) -> Pin {
        let before = self.word(&write_pin.0).fetch_sub(WRITE_PINNED - 1, Ordering::Release);
        debug_assert!(
            before & WRITE_PINNED != 0,
            "frame {} was downgraded unowned",
            write_pin.frame()
        );
        let pin = Pin(RawPin::new(write_pin.frame(), self.identity));
        std::mem::forget(write_pin);
        pin
    }

    /// Returns the frame of a pin, after checking that these latches granted it.
    ///
    /// # Panics
    /// The pin is of other latches.
    #[inline]
    #[must_use]
    pub fn pinned(&self, pin: &Pin) -> u32 {
        self.check_latches(&pin.0);
        pin.frame()
    }

    /// Returns the frame of a write pin, after checking that these latches granted it.
    ///
    /// # Panics
    /// The write pin is of other latches.
    #[inline]
    #[must_use]
    pub fn write_pinned(&self, write_pin: &WritePin) -> u32 {
        self.check_latches(&write_pin.0);
        write_pin.frame()
    }

    /// Returns the number of frames with a pin of either kind: a scan, for shutdown and tests.
    /// While other threads take and release pins the result is approximate.
    #[must_use]
    pub fn frames_held(&self) -> usize {
        self.words.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count()
    }

    #[inline]
    fn word(&self, pin: &RawPin) -> &AtomicU32 {
        self.check_latches(pin);
        &self.words[pin.frame() as usize]
    }

    /// Checks that these latches granted the pin. Also in release builds: the bounds of every
    /// memory access depend on it.
    #[inline]
    fn check_latches(&self, pin: &RawPin) {
        assert!(
            pin.latches_identity() == self.identity,
            "a hold on frame {} was brought to an arena that did not grant it",
            pin.frame()
        );
    }
}

// Without loom, whose atomics exist only inside a model.
#[cfg(not(larder_loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_shared_and_owns_are_not() {
        let latches = Latches::new(2);
        let first = latches.try_pin(1).unwrap();
        let second = latches.try_pin(1).unwrap();
        assert!(latches.try_write_pin(1).is_none());
        latches.unpin(first);
        assert!(latches.try_write_pin(1).is_none(), "one pin is left");
        latches.unpin(second);
        let write_pin = latches.try_write_pin(1).unwrap();
        assert!(latches.try_pin(1).is_none());
        assert!(latches.try_write_pin(1).is_none());
        assert_eq!(latches.frames_held(), 1);
        let pin = latches.downgrade(write_pin);
        let other = latches.try_pin(1).unwrap();
        assert!(latches.try_write_pin(1).is_none());
        latches.unpin(pin);
        latches.unpin(other);
        assert_eq!(latches.frames_held(), 0);
    }

    #[test]
    fn a_failed_pin_leaves_no_trace() {
        let latches = Latches::new(1);
        let write_pin = latches.try_write_pin(0).unwrap();
        for _ in 0..3 {
            assert!(latches.try_pin(0).is_none());
        }
        latches.release_write_pin(write_pin);
        let write_pin = latches.try_write_pin(0).expect("no stray is left behind");
        latches.release_write_pin(write_pin);
    }

    #[test]
    fn a_stray_survives_disown_and_downgrade_and_is_not_taken_for_a_pin() {
        let latches = Latches::new(1);
        let write_pin = latches.try_write_pin(0).unwrap();
        latches.words[0].fetch_add(1, Ordering::Relaxed);
        let pin = latches.downgrade(write_pin);
        latches.unpin(pin);
        assert!(latches.try_write_pin(0).is_none(), "the stray is still there");
        latches.words[0].fetch_sub(1, Ordering::Relaxed);
        let write_pin = latches.try_write_pin(0).expect("it is gone");
        latches.words[0].fetch_add(1, Ordering::Relaxed);
        latches.release_write_pin(write_pin);
        latches.words[0].fetch_sub(1, Ordering::Relaxed);
        assert_eq!(latches.frames_held(), 0);
    }

    #[test]
    fn a_full_count_of_pins_refuses_more_and_makes_no_owner() {
        let latches = Latches::new(1);
        // As if all but one of the possible pins had been granted.
        latches.words[0].store(WRITE_PINNED - 1, Ordering::Relaxed);
        let last = latches.try_pin(0).expect("the last that fits");
        assert!(latches.try_pin(0).is_none());
        assert!(latches.try_write_pin(0).is_none());
        latches.unpin(last);
        let again = latches.try_pin(0).expect("one was given back");
        latches.unpin(again);
        assert_eq!(latches.words[0].load(Ordering::Relaxed), WRITE_PINNED - 1);
    }

    #[test]
    #[should_panic(expected = "an arena that did not grant it")]
    fn a_hold_of_other_latches_is_caught() {
        let (one, other) = (Latches::new(4), Latches::new(4));
        other.unpin(one.try_pin(2).unwrap());
    }
}
