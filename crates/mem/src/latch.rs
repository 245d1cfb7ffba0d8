//! One latch per frame: who may touch its bytes, in one word, without ever waiting.
//!
//! The top bit of the word says that the frame is owned; the bits below count pins. Invariants:
//!
//! * An own is granted only by changing 0 to [`OWNED`], so that no pin exists beside it.
//! * A pin is granted by adding one to a word without the bit: one atomic instruction, which cannot
//!   fail because of other pins as a compare-and-swap can. Whoever finds the bit set takes the one
//!   away again. In between the word counts a *stray*, a pin that nobody has. Hence every change of
//!   the word adds or subtracts, and none stores: a store would lose the strays.
//! * A stray can only make [`Latches::try_write_pin`] fail where it might have succeeded an instant
//!   later. It has the same cause and the same meaning as a pin that lives for that instant.
//! * The count cannot run into the bit and do harm: the pin number 2^31 of one frame sets it, and
//!   then no more are granted until one is given back. No own can come of that, since there is none
//!   to take back and the word is far from 0.
//!
//! Order: whoever gives back releases, whoever takes acquires, and as all changes are
//! read-modify-write, one acquire sees all releases before it (C++20 release sequences).

use crate::pin::{Hold, Pin, WritePin};
use crate::prefetch::fetch_to_change;
use crate::sync::{AtomicU32, Ordering, next_identity, zeros};
use std::num::NonZeroU32;

/// Set while a frame is owned.
const OWNED: u32 = 1 << 31;

/// The latches of an arena, without the memory that they guard.
#[derive(Debug)]
pub struct Latches {
    /// Not padded: 16 share a cache line. The frames of a page lie side by side and are pinned
    /// together, and padding would cost 60 bytes of each frame's share of the memory bound.
    words: Box<[AtomicU32]>,
    /// Written into each hold, so that a hold from elsewhere is caught.
    identity: NonZeroU32,
}

impl Latches {
    /// `count` latches, all free.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Latches { words: zeros(count as usize), identity: next_identity() }
    }

    /// How many latches there are; frames run from 0.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.words.len()).expect("made from a u32")
    }

    /// Bytes that one latch takes.
    #[must_use]
    pub const fn bytes_per_frame() -> usize {
        size_of::<AtomicU32>()
    }

    /// Takes a shared hold, unless the frame is owned right now. Never waits.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_pin(&self, frame: u32) -> Option<Pin> {
        let word = &self.words[frame as usize];
        if word.fetch_add(1, Ordering::Acquire) & OWNED != 0 {
            // Nothing was read under the stray, so there is nothing to release.
            word.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Pin(Hold::new(frame, self.identity)))
    }

    /// Says that the frame will be pinned soon. Only a hint; a frame that does not exist is
    /// ignored.
    #[inline]
    pub fn prefetch(&self, frame: u32) {
        if let Some(word) = self.words.get(frame as usize) {
            fetch_to_change(word);
        }
    }

    /// Takes the exclusive hold, unless the frame is pinned or owned right now. Never waits.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_write_pin(&self, frame: u32) -> Option<WritePin> {
        self.words[frame as usize]
            .compare_exchange(0, OWNED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| WritePin(Hold::new(frame, self.identity)))
    }

    /// Gives a shared hold back.
    ///
    /// # Panics
    /// If the pin is of other latches.
    #[inline]
    pub fn unpin(&self, pin: Pin) {
        let before = self.word(&pin.0).fetch_sub(1, Ordering::Release);
        debug_assert!(before != 0, "frame {} was unpinned without being pinned", pin.frame());
        std::mem::forget(pin);
    }

    /// Gives the exclusive hold back.
    ///
    /// # Panics
    /// If the own is of other latches.
    #[inline]
    pub fn release_write_pin(&self, own: WritePin) {
        let before = self.word(&own.0).fetch_sub(OWNED, Ordering::Release);
        debug_assert!(before & OWNED != 0, "frame {} was disowned without an owner", own.frame());
        std::mem::forget(own);
    }

    /// Turns the exclusive hold into a shared one, with nobody in between.
    ///
    /// # Panics
    /// If the own is of other latches.
    #[inline]
    pub fn downgrade(&self, own: WritePin) -> Pin {
        let before = self.word(&own.0).fetch_sub(OWNED - 1, Ordering::Release);
        debug_assert!(before & OWNED != 0, "frame {} was downgraded unowned", own.frame());
        let pin = Pin(Hold::new(own.frame(), self.identity));
        std::mem::forget(own);
        pin
    }

    /// The frame that is pinned, known to be one of these.
    ///
    /// # Panics
    /// If the pin is of other latches.
    #[inline]
    #[must_use]
    pub fn pinned(&self, pin: &Pin) -> u32 {
        self.check_granter(&pin.0);
        pin.frame()
    }

    /// The frame that is owned, known to be one of these.
    ///
    /// # Panics
    /// If the own is of other latches.
    #[inline]
    #[must_use]
    pub fn write_pinned(&self, own: &WritePin) -> u32 {
        self.check_granter(&own.0);
        own.frame()
    }

    /// How many frames are held in one way or the other: a scan, for shutdown and for tests. While
    /// others take and give back it is only a guess.
    #[must_use]
    pub fn frames_held(&self) -> usize {
        self.words.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count()
    }

    #[inline]
    fn word(&self, hold: &Hold) -> &AtomicU32 {
        self.check_granter(hold);
        &self.words[hold.frame() as usize]
    }

    /// Kept in release builds: the bounds of every access to memory rest on it.
    #[inline]
    fn check_granter(&self, hold: &Hold) {
        assert!(
            hold.granter() == self.identity,
            "a hold on frame {} was brought to an arena that did not grant it",
            hold.frame()
        );
    }
}

// Without loom, whose atomics live only inside a model.
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
        let own = latches.try_write_pin(1).unwrap();
        assert!(latches.try_pin(1).is_none());
        assert!(latches.try_write_pin(1).is_none());
        assert_eq!(latches.frames_held(), 1);
        let pin = latches.downgrade(own);
        let other = latches.try_pin(1).unwrap();
        assert!(latches.try_write_pin(1).is_none());
        latches.unpin(pin);
        latches.unpin(other);
        assert_eq!(latches.frames_held(), 0);
    }

    #[test]
    fn a_failed_pin_leaves_no_trace() {
        let latches = Latches::new(1);
        let own = latches.try_write_pin(0).unwrap();
        for _ in 0..3 {
            assert!(latches.try_pin(0).is_none());
        }
        latches.release_write_pin(own);
        let own = latches.try_write_pin(0).expect("no stray is left behind");
        latches.release_write_pin(own);
    }

    #[test]
    fn a_stray_survives_disown_and_downgrade_and_is_not_taken_for_a_pin() {
        let latches = Latches::new(1);
        let own = latches.try_write_pin(0).unwrap();
        latches.words[0].fetch_add(1, Ordering::Relaxed);
        let pin = latches.downgrade(own);
        latches.unpin(pin);
        assert!(latches.try_write_pin(0).is_none(), "the stray is still there");
        latches.words[0].fetch_sub(1, Ordering::Relaxed);
        let own = latches.try_write_pin(0).expect("it is gone");
        latches.words[0].fetch_add(1, Ordering::Relaxed);
        latches.release_write_pin(own);
        latches.words[0].fetch_sub(1, Ordering::Relaxed);
        assert_eq!(latches.frames_held(), 0);
    }

    #[test]
    fn a_full_count_of_pins_refuses_more_and_makes_no_owner() {
        let latches = Latches::new(1);
        // As if all but one of the possible pins had been granted.
        latches.words[0].store(OWNED - 1, Ordering::Relaxed);
        let last = latches.try_pin(0).expect("the last that fits");
        assert!(latches.try_pin(0).is_none());
        assert!(latches.try_write_pin(0).is_none());
        latches.unpin(last);
        let again = latches.try_pin(0).expect("one was given back");
        latches.unpin(again);
        assert_eq!(latches.words[0].load(Ordering::Relaxed), OWNED - 1);
    }

    #[test]
    #[should_panic(expected = "an arena that did not grant it")]
    fn a_hold_of_other_latches_is_caught() {
        let (one, other) = (Latches::new(4), Latches::new(4));
        other.unpin(one.try_pin(2).unwrap());
    }
}
