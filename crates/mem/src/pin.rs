//! Pins: tokens that permit access to a frame.
//!
//! A pin is 8 bytes (as is an `Option` of one) and has no lifetime. It cannot be copied or created
//! outside this crate, so an existing one was granted by the latch of its frame and has not been
//! released. The `unsafe` code of the arena depends on this, and on the identity that ties a pin to
//! one arena.

use std::cell::Cell;
use std::num::NonZeroU32;

thread_local! {
    /// True if a panic of this thread has dropped a write pin.
    static LOST_WRITE_PIN: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if a panic of this thread has dropped a write pin. Its frame stays locked: if it
/// belongs to a cache, no thread can read it any more.
#[must_use]
pub fn lost_write_pin_in_panic() -> bool {
    LOST_WRITE_PIN.get()
}

/// The common content of both kinds of pin.
#[derive(Debug)]
pub(crate) struct RawPin {
    frame: u32,
    /// The identity of the latches that granted it.
    latches_identity: NonZeroU32,
}

const _: () = assert!(size_of::<Pin>() == 8 && size_of::<Option<WritePin>>() == 8);

impl RawPin {
    #[inline]
    pub(crate) fn new(frame: u32, latches_identity: NonZeroU32) -> Self {
        RawPin { frame, latches_identity }
    }

    #[inline]
    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    #[inline]
    pub(crate) fn latches_identity(&self) -> NonZeroU32 {
        self.latches_identity
    }
}

impl Drop for RawPin {
    /// A regular release forgets the pin, so this runs only for a lost one. The frame then stays
    /// pinned forever, which is safe; a debug build reports the bug.
    #[inline]
    fn drop(&mut self) {
        assert!(
            !cfg!(debug_assertions) || std::thread::panicking(),
            "a hold on frame {} was dropped",
            self.frame
        );
    }
}

/// A shared pin of one frame: while it exists, no thread changes the bytes.
///
/// Release it with [`Arena::unpin`](crate::Arena::unpin).
#[derive(Debug)]
#[must_use = "a pin that is dropped holds its frame for ever"]
pub struct Pin(pub(crate) RawPin);

impl Pin {
    /// Returns the pinned frame.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> u32 {
        self.0.frame()
    }
}

/// The exclusive pin of one frame: while it exists, no other thread reads or changes the bytes.
///
/// Release it with [`Arena::release_write_pin`](crate::Arena::release_write_pin), or convert it
/// into a pin with [`Arena::downgrade`](crate::Arena::downgrade).
#[derive(Debug)]
#[must_use = "an own that is dropped holds its frame for ever"]
pub struct WritePin(pub(crate) RawPin);

impl WritePin {
    /// Returns the write-pinned frame.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> u32 {
        self.0.frame()
    }
}

impl Drop for WritePin {
    /// A regular release forgets the pin, so this runs only for a lost one.
    fn drop(&mut self) {
        if std::thread::panicking() {
            LOST_WRITE_PIN.set(true);
        }
    }
}
