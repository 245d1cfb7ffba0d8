//! Model checks of the latch with loom: all interleavings of threads that the memory model allows.
//!
//! The memory of a frame is a loom cell, which fails the test if two conflicting accesses are not
//! ordered.

#![expect(clippy::tests_outside_test_module, reason = "the whole crate is a test")]
#![expect(unsafe_code, reason = "the interface of frames is unsafe")]

use larder_mem::{Latches, Pin, WritePin};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A frame that holds one number.
struct Frame {
    latches: Latches,
    bytes: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed only under pins of the latches, which the tests verify.
unsafe impl Sync for Frame {}
// SAFETY: as above.
unsafe impl Send for Frame {}

impl Frame {
    fn new() -> Arc<Self> {
        Arc::new(Frame { latches: Latches::new(1), bytes: UnsafeCell::new(0) })
    }

    fn read(&self, _pin: &Pin) -> u32 {
        self.bytes.with(|bytes| {
            // SAFETY: the frame is pinned; loom reports it if that does not exclude writers.
            unsafe { *bytes }
        })
    }

    fn add(&self, _own: &mut WritePin, more: u32) {
        self.bytes.with_mut(|bytes| {
            // SAFETY: the frame is write-pinned; loom reports it if that does not exclude all
            // others.
            unsafe { *bytes += more }
        });
    }

    /// Adds under a write pin; returns true if the latch granted it.
    fn try_add(&self, more: u32) -> bool {
        let Some(mut write_pin) = self.latches.try_write_pin(0) else {
            return false;
        };
        self.add(&mut write_pin, more);
        self.latches.release_write_pin(write_pin);
        true
    }

    /// Reads under a pin, if the latch grants one.
    fn try_read(&self) -> Option<u32> {
        let pin = self.latches.try_pin(0)?;
        let seen = self.read(&pin);
        assert_eq!(self.read(&pin), seen, "a pinned frame does not change");
        self.latches.unpin(pin);
        Some(seen)
    }

    /// Checks that no pin and no stray is left, and that the latch grants both kinds of pin.
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
fn two_owners_exclude_each_other_and_see_the_writes_of_the_other() {
    loom::model(|| {
        let frame = Frame::new();
        let other = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || u32::from(frame.try_add(1)))
        };
        let mine = u32::from(frame.try_add(1));
        let theirs = other.join().unwrap();
        assert!(mine + theirs >= 1, "without pins at least one owner is granted");
        assert_eq!(frame.try_read(), Some(mine + theirs));
        frame.check_free();
    });
}

#[test]
fn a_later_pin_sees_the_writes_of_an_owner() {
    loom::model(|| {
        let frame = Frame::new();
        let mut write_pin = frame.latches.try_write_pin(0).unwrap();
        let reader = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_read())
        };
        frame.add(&mut write_pin, 7);
        frame.latches.release_write_pin(write_pin);
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(7)), "the read is refused or complete: {seen:?}");
        frame.check_free();
    });
}

#[test]
fn downgrade_admits_no_writer_in_between() {
    loom::model(|| {
        let frame = Frame::new();
        let mut write_pin = frame.latches.try_write_pin(0).unwrap();
        let writer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_add(100))
        };
        let reader = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.try_read())
        };
        frame.add(&mut write_pin, 7);
        let pin = frame.latches.downgrade(write_pin);
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
        // Succeeds only if both readers have released their pins; loom checks the order.
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
        let mut write_pin = frame.latches.try_write_pin(0).unwrap();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let frame = Arc::clone(&frame);
                thread::spawn(move || frame.try_read())
            })
            .collect();
        frame.add(&mut write_pin, 1);
        frame.latches.release_write_pin(write_pin);
        let again = frame.try_add(1);
        for reader in readers {
            let seen = reader.join().unwrap();
            assert!(matches!(seen, None | Some(1)) || (again && seen == Some(2)));
        }
        frame.check_free();
    });
}

#[test]
fn a_pin_moves_to_another_thread_and_is_released_there() {
    loom::model(|| {
        let frame = Frame::new();
        let mut write_pin = frame.latches.try_write_pin(0).unwrap();
        frame.add(&mut write_pin, 3);
        let done = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || {
                frame.add(&mut write_pin, 4);
                frame.latches.downgrade(write_pin)
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
