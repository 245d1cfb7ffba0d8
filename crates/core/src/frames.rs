//! Frames: the memory of the cache as this crate uses it.
//!
//! A frame holds one block. A pin of it is a token that its holder must release:
//!
//! * A [`Frames::Pin`] is shared, and *the bytes do not change while it exists*. A copy to a
//!   caller, a reply that a socket sends and a write-back to the store all hold pins. A writer that
//!   finds a pinned frame does not wait: it replaces the frame with a copy.
//! * A [`Frames::WritePin`] is exclusive. Frames into which a store reads are write-pinned and not
//!   in the table, so no reader sees partial data.
//!
//! This module has two implementations: [`NoFrames`] (without bytes: the simulator runs the whole
//! cache over terabytes) and [`PlainFrames`] (bytes behind mutexes, for tests). The production
//! implementation is the arena of the `mem` crate.

mod none;
mod plain;

pub use none::NoFrames;
pub use plain::PlainFrames;

/// Index of a frame.
pub type FrameId = u32;
/// No frame.
pub const NO_FRAME: FrameId = u32::MAX;

/// Memory that holds blocks; the module describes pins and write pins.
pub trait Frames: Send + Sync + std::fmt::Debug {
    /// Shared pin of one frame; release it with [`Frames::unpin`].
    type Pin: Send + std::fmt::Debug;
    /// Exclusive pin of one frame; release it with [`Frames::release_write_pin`] or
    /// [`Frames::downgrade`].
    type WritePin: Send + std::fmt::Debug;

    /// Returns the number of frames; ids start at 0.
    fn count(&self) -> u32;
    /// Pins a frame, unless it is write-pinned. Never waits.
    fn try_pin(&self, frame: FrameId) -> Option<Self::Pin>;
    /// Prefetches the latch of a frame that will be pinned soon, and its bytes from `offset` on.
    /// Ignores an invalid frame.
    #[inline]
    fn prefetch(&self, _frame: FrameId, _offset: usize) {}
    /// Prefetches the latch of a frame that will be pinned soon. Ignores an invalid frame.
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
    /// Write-pins a frame, unless it is pinned or write-pinned. Never waits.
    fn try_write_pin(&self, frame: FrameId) -> Option<Self::WritePin>;
    /// Releases a pin.
    fn unpin(&self, pin: Self::Pin);
    /// Releases a write pin.
    fn release_write_pin(&self, write_pin: Self::WritePin);
    /// Converts a write pin into a pin. No other thread can write-pin the frame in between.
    fn downgrade(&self, write_pin: Self::WritePin) -> Self::Pin;
    /// Returns the frame of a pin.
    fn pinned(&self, pin: &Self::Pin) -> FrameId;
    /// Returns the frame of a write pin.
    fn write_pinned(&self, write_pin: &Self::WritePin) -> FrameId;

    /// Commits the memory of frames that will be used for the first time or after
    /// [`Frames::release`].
    ///
    /// # Errors
    /// If the system has no memory; the text can follow "cannot".
    fn commit(&self, _frames: &mut [Self::WritePin]) -> Result<(), String> {
        Ok(())
    }
    /// Releases the memory of unused frames. Their contents are lost.
    fn release(&self, _frames: &mut [Self::WritePin]) {}
    /// Notes that all frames below `frames` are committed.
    fn all_committed(&self, _frames: u32) {}

    /// Copies bytes of the frame from `offset` on into `to`.
    fn read(&self, pin: &Self::Pin, offset: usize, to: &mut [u8]);
    /// Calls `fill` to write `len` bytes of the frame from `offset` on. Frames without bytes do not
    /// call it.
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
    /// Zeroes `len` bytes of the frame from `offset` on.
    fn zero(&self, write_pin: &mut Self::WritePin, offset: usize, len: usize);
    /// Copies `len` bytes at `offset` from one frame to the same offset in another.
    fn copy(&self, from: &Self::Pin, to: &mut Self::WritePin, offset: usize, len: usize);
}
