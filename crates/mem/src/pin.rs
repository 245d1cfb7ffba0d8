//! Holds: the tokens that say who may touch a frame.
//!
//! A hold is 8 bytes (as is an `Option` of one) and has no lifetime. It cannot be copied or made
//! outside this crate, so one that exists was granted by the latch of its frame and has not been
//! given back. That, and the identity that ties it to one arena, is what the `unsafe` code of the
//! arena rests on.

use std::cell::Cell;
use std::num::NonZeroU32;

thread_local! {
    /// True if a panic of this thread has dropped an exclusive hold.
    static LOST_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a panic of this thread has dropped an exclusive hold. Its frame stays locked: if
/// it belongs to a cache, no thread can read it any more.
#[must_use]
pub fn lost_write_pin_in_panic() -> bool {
    LOST_OWN.get()
}

/// What both kinds of hold carry.
#[derive(Debug)]
pub(crate) struct Hold {
    frame: u32,
    /// The set of latches that granted it.
    granter: NonZeroU32,
}

const _: () = assert!(size_of::<Pin>() == 8 && size_of::<Option<WritePin>>() == 8);

impl Hold {
    #[inline]
    pub(crate) fn new(frame: u32, granter: NonZeroU32) -> Self {
        Hold { frame, granter }
    }

    #[inline]
    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    #[inline]
    pub(crate) fn granter(&self) -> NonZeroU32 {
        self.granter
    }
}

impl Drop for Hold {
    /// Giving back forgets the hold, so this runs only for one that was lost. The frame then stays
    /// held for ever, which is safe; in a debug build it is the bug it looks like.
    #[inline]
    fn drop(&mut self) {
        assert!(
            !cfg!(debug_assertions) || std::thread::panicking(),
            "a hold on frame {} was dropped",
            self.frame
        );
    }
}

/// A shared hold of one frame: while it lives, nobody changes the bytes.
///
/// Give it back with [`Arena::unpin`](crate::Arena::unpin).
#[derive(Debug)]
#[must_use = "a pin that is dropped holds its frame for ever"]
pub struct Pin(pub(crate) Hold);

impl Pin {
    /// The frame that is pinned.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> u32 {
        self.0.frame()
    }
}

/// The exclusive hold of one frame: while it lives, nobody else reads or changes the bytes.
///
/// Give it back with [`Arena::release_write_pin`](crate::Arena::disown), or turn it into a pin with
/// [`Arena::downgrade`](crate::Arena::downgrade).
#[derive(Debug)]
#[must_use = "an own that is dropped holds its frame for ever"]
pub struct WritePin(pub(crate) Hold);

impl WritePin {
    /// The frame that is owned.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> u32 {
        self.0.frame()
    }
}

impl Drop for WritePin {
    /// A regular release forgets the hold, so this runs only for a lost one.
    fn drop(&mut self) {
        if std::thread::panicking() {
            LOST_OWN.set(true);
        }
    }
}
