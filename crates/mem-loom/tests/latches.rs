//! The latch under loom: every order in which threads can meet at it, with all that the memory
//! model allows.
//!
//! The memory of a frame is a cell of loom, which itself fails the test when two accesses that
//! exclude each other are not ordered.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(unsafe_code, reason = "the interface of frames is unsafe")]

use larder_mem::{Latches, Own, Pin};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// One frame of one number.
struct Frame {
    latches: Latches,
    bytes: UnsafeCell<u32>,
}

// SAFETY: the cell is reached through holds of the latches only, which is what is tested.
unsafe impl Sync for Frame {}
// SAFETY: as above.
unsafe impl Send for Frame {}

impl Frame {
    fn new() -> Arc<Self> {
        Arc::new(Frame { latches: Latches::new(1), bytes: UnsafeCell::new(0) })
    }

    fn read(&self, _pin: &Pin) -> u32 {
        self.bytes.with(|bytes| {
            // SAFETY: pinned; loom reports it if that does not exclude writers.
            unsafe { *bytes }
        })
    }

    fn add(&self, _own: &mut Own, more: u32) {
        self.bytes.with_mut(|bytes| {
            // SAFETY: owned; loom reports it if that does not exclude all others.
            unsafe { *bytes += more }
        });
    }

    /// Adds under the exclusive hold if it can be had; whether it could.
    fn try_add(&self, more: u32) -> bool {
        let Some(mut own) = self.latches.try_own(0) else {
            return false;
        };
        self.add(&mut own, more);
        self.latches.disown(own);
        true
    }

    /// Reads under a pin if one can be had.
    fn try_read(&self) -> Option<u32> {
        let pin = self.latches.try_pin(0)?;
        let seen = self.read(&pin);
        assert_eq!(self.read(&pin), seen, "a pinned frame does not change");
        self.latches.unpin(pin);
        Some(seen)
    }

    /// All holds and strays are gone, and both kinds of hold can be had.
    fn check_free(&self) {
        assert_eq!(self.latches.frames_held(), 0);
        assert!(self.try_add(0));
        assert!(self.try_read().is_some());
    }
}

#[test]
fn pin_and_own_exclude_each_other() {
    loom::model(|| {
        let frame = Frame::new();
        let reader = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_read())
        };
        let written = frame.try_add(5);
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(0 | 5)));
        assert!(written || seen == Some(0) || seen.is_none());
        frame.check_free();
    });
}

#[test]
fn two_owners_exclude_each_other_and_see_what_the_other_did() {
    loom::model(|| {
        let frame = Frame::new();
        let other = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || u32::from(frame.try_add(1)))
        };
        let mine = u32::from(frame.try_add(1));
        let theirs = other.join().unwrap();
        assert!(mine + theirs >= 1, "without pins one of two owners gets it");
        assert_eq!(frame.try_read(), Some(mine + theirs));
        frame.check_free();
    });
}

#[test]
fn what_an_owner_wrote_is_seen_under_a_later_pin() {
    loom::model(|| {
        let frame = Frame::new();
        let mut own = frame.latches.try_own(0).unwrap();
        let reader = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_read())
        };
        frame.add(&mut own, 7);
        frame.latches.disown(own);
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(7)), "owned or done, nothing between: {seen:?}");
        frame.check_free();
    });
}

#[test]
fn downgrade_lets_nobody_in_between() {
    loom::model(|| {
        let frame = Frame::new();
        let mut own = frame.latches.try_own(0).unwrap();
        let writer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_add(100))
        };
        let reader = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_read())
        };
        frame.add(&mut own, 7);
        let pin = frame.latches.downgrade(own);
        assert_eq!(frame.read(&pin), 7, "the owner's bytes, and no other writer's");
        frame.latches.unpin(pin);
        let written = writer.join().unwrap();
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(7)) || (written && seen == Some(107)));
        frame.check_free();
    });
}

#[test]
fn the_last_of_two_pins_hands_over_to_an_owner() {
    loom::model(|| {
        let frame = Frame::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let pin = frame.latches.try_pin(0).unwrap();
                let frame = Arc::clone(&frame);
                thread::spawn(move || {
                    assert_eq!(frame.read(&pin), 0, "no owner beside a pin");
                    frame.latches.unpin(pin);
                })
            })
            .collect();
        // Succeeds only in the orders in which both have read; loom checks that it is after.
        frame.try_add(1);
        for reader in readers {
            reader.join().unwrap();
        }
        frame.check_free();
    });
}

#[test]
fn strays_neither_admit_a_pin_nor_outlive_their_refusal() {
    loom::model(|| {
        let frame = Frame::new();
        let mut own = frame.latches.try_own(0).unwrap();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let frame = Arc::clone(&frame);
                thread::spawn(move || frame.try_read())
            })
            .collect();
        frame.add(&mut own, 1);
        frame.latches.disown(own);
        let again = frame.try_add(1);
        for reader in readers {
            let seen = reader.join().unwrap();
            assert!(matches!(seen, None | Some(1)) || (again && seen == Some(2)));
        }
        frame.check_free();
    });
}

#[test]
fn a_pin_travels_to_another_thread_and_is_given_back_there() {
    loom::model(|| {
        let frame = Frame::new();
        let mut own = frame.latches.try_own(0).unwrap();
        frame.add(&mut own, 3);
        let done = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || {
                frame.add(&mut own, 4);
                frame.latches.downgrade(own)
            })
        };
        let early = frame.try_read();
        assert!(matches!(early, None | Some(7)));
        let pin = done.join().unwrap();
        assert!(!frame.try_add(1), "still pinned");
        assert_eq!(frame.read(&pin), 7);
        frame.latches.unpin(pin);
        frame.check_free();
    });
}
