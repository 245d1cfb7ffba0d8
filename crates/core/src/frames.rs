//! Frames: the memory of the cache as core sees it.
//!
//! A frame holds one block. It is held in one of two ways, both by a token that must be given back:
//!
//! * A [`Frames::Pin`] is shared, and *while it lives nobody changes the bytes*. A copy to a
//!   caller, a reply being gathered by a socket and a write-back on its way to the store all hold
//!   pins. A writer that meets a pinned frame does not wait: it puts a copy in its place.
//! * A [`Frames::WritePin`] is exclusive. Frames that a store reads into are owned and in no table, so
//!   that nobody can see half of what arrives.
//!
//! Two implementations live here: [`NoFrames`] (no bytes at all: the simulator runs the whole cache
//! over terabytes) and [`PlainFrames`] (bytes behind ordinary locks: for tests). The real one is
//! the arena of the `mem` crate.

mod none;
mod plain;

pub use none::NoFrames;
pub use plain::PlainFrames;

/// Index of a frame.
pub type FrameId = u32;
/// No frame.
pub const NO_FRAME: FrameId = u32::MAX;

/// Memory that holds blocks; see the module for what pins and owns mean.
pub trait Frames: Send + Sync + std::fmt::Debug {
    /// Shared hold of one frame; give it back with [`Frames::unpin`].
    type Pin: Send + std::fmt::Debug;
    /// Exclusive hold of one frame; give it back with [`Frames::release_write_pin`] or [`Frames::downgrade`].
    type WritePin: Send + std::fmt::Debug;

    /// How many frames there are; ids run from 0.
    fn count(&self) -> u32;
    /// Takes a shared hold, unless the frame is owned right now. Never waits.
    fn try_pin(&self, frame: FrameId) -> Option<Self::Pin>;
    /// Prefetches the latch of a frame that will be pinned soon, and its bytes from `offset` on. An
    /// invalid frame is ignored.
    #[inline]
    fn prefetch(&self, _frame: FrameId, _offset: usize) {}
    /// Prefetches the latch of a frame that will be pinned soon. An invalid frame is ignored.
    #[inline]
    fn prefetch_latch(&self, _frame: FrameId) {}
    /// Prefetches a value that will be read soon.
    #[inline]
    fn fetch<T>(_place: &T)
    where
        Self: Sized,
    {
    }
    /// Prefetches a value that will be changed soon.
    #[inline]
    fn fetch_to_change<T>(_place: &T)
    where
        Self: Sized,
    {
    }
    /// Takes the exclusive hold, unless the frame is pinned or owned right now. Never waits.
    fn try_write_pin(&self, frame: FrameId) -> Option<Self::WritePin>;
    /// Gives a shared hold back.
    fn unpin(&self, pin: Self::Pin);
    /// Gives the exclusive hold back.
    fn release_write_pin(&self, write_pin: Self::WritePin);
    /// Turns the exclusive hold into a shared one, with nobody in between.
    fn downgrade(&self, write_pin: Self::WritePin) -> Self::Pin;
    /// The frame that is pinned.
    fn pinned(&self, pin: &Self::Pin) -> FrameId;
    /// The frame that is owned.
    fn write_pinned(&self, write_pin: &Self::WritePin) -> FrameId;

    /// Makes the memory of frames ready that are about to be used, for the first time or after
    /// [`Frames::release`].
    ///
    /// # Errors
    /// If there is none, in a sentence that can follow "failed to".
    fn commit(&self, _frames: &mut [Self::WritePin]) -> Result<(), String> {
        Ok(())
    }
    /// Gives the memory of frames back that are not used any more. What they hold is lost.
    fn release(&self, _frames: &mut [Self::WritePin]) {}
    /// Says that all frames below `frames` are in use again, none of them released.
    fn all_committed(&self, _frames: u32) {}

    /// Copies bytes of the frame from `offset` on into `to`.
    fn read(&self, pin: &Self::Pin, offset: usize, to: &mut [u8]);
    /// Has `fill` write `len` bytes of the frame from `offset` on. Frames without bytes do not call
    /// it.
    fn write_with(
        &self,
        write_pin: &mut Self::WritePin,
        offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    );
    /// Copies `from` into the frame from `offset` on.
    #[inline]
    fn write(&self, write_pin: &mut Self::WritePin, offset: usize, from: &[u8]) {
        self.write_with(write_pin, offset, from.len(), |to| to.copy_from_slice(from));
    }
    /// Makes `len` bytes of the frame zero from `offset` on.
    fn zero(&self, write_pin: &mut Self::WritePin, offset: usize, len: usize);
    /// Copies `len` bytes at `offset` from one frame to the same place in another.
    fn copy(&self, from: &Self::Pin, to: &mut Self::WritePin, offset: usize, len: usize);
}
