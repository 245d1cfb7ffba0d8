//! Implementation of core's frames by the arena of `mem`, and the cache with these frames.

use larder_core::cache::Cache;
use larder_core::frames::{FrameId, Frames};
use larder_core::request::Session;
use larder_core::volume::Volume;
use larder_mem::{Arena, Pin, WritePin};

/// The cache of a process.
pub type ArenaCache = Cache<ArenaFrames>;
/// A volume of that cache.
pub type ArenaVolume = Volume<ArenaFrames>;
/// A session of the request engine on that cache; `C` is the front end's data of a request.
pub type ArenaSession<C> = Session<ArenaFrames, Vec<u8>, C>;

/// An arena as the frames of a cache.
#[derive(Debug)]
pub struct ArenaFrames(Arena);

impl ArenaFrames {
    /// Creates the frames of `arena`.
    #[must_use]
    pub fn new(arena: Arena) -> Self {
        ArenaFrames(arena)
    }

    /// Returns the arena.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.0
    }
}

impl Frames for ArenaFrames {
    type Pin = Pin;
    type WritePin = WritePin;

    fn count(&self) -> u32 {
        self.0.frames()
    }

    #[inline]
    fn try_pin(&self, frame: FrameId) -> Option<Pin> {
        self.0.try_pin(frame)
    }

    #[inline]
    fn prefetch(&self, frame: FrameId, offset: usize) {
        self.0.prefetch(frame, offset);
    }

    #[inline]
    fn prefetch_latch(&self, frame: FrameId) {
        self.0.prefetch_latch(frame);
    }

    #[inline]
    fn fetch<T>(value: &T) {
        larder_mem::fetch(value);
    }

    #[inline]
    fn fetch_to_change<T>(value: &T) {
        larder_mem::fetch_to_change(value);
    }

    #[inline]
    fn try_write_pin(&self, frame: FrameId) -> Option<WritePin> {
        self.0.try_write_pin(frame)
    }

    #[inline]
    fn unpin(&self, pin: Pin) {
        self.0.unpin(pin);
    }

    #[inline]
    fn release_write_pin(&self, pin: WritePin) {
        self.0.release_write_pin(pin);
    }

    fn downgrade(&self, pin: WritePin) -> Pin {
        self.0.downgrade(pin)
    }

    #[inline]
    fn pinned(&self, pin: &Pin) -> FrameId {
        pin.frame()
    }

    #[inline]
    fn write_pinned(&self, pin: &WritePin) -> FrameId {
        pin.frame()
    }

    fn commit(&self, frames: &mut [WritePin]) -> Result<(), String> {
        self.0.commit(frames).map_err(|error| error.to_string())
    }

    fn release(&self, frames: &mut [WritePin]) {
        let released = self.0.release_all(frames);
        if released < frames.len() {
            let kept = frames.len() - released;
            tracing::debug!(
                kept,
                "frames are not used any more, and the kernel keeps their memory"
            );
        }
    }

    fn all_committed(&self, frames: u32) {
        self.0.advise_all_used(frames);
    }

    #[inline]
    fn read(&self, pin: &Pin, offset: usize, to: &mut [u8]) {
        self.0.read(pin, offset, to);
    }

    #[inline]
    fn write_with(
        &self,
        pin: &mut WritePin,
        offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        fill(&mut self.0.bytes_mut(pin)[offset..][..len]);
    }

    fn zero(&self, pin: &mut WritePin, offset: usize, len: usize) {
        self.0.zero(pin, offset, len);
    }

    fn copy(&self, from: &Pin, to: &mut WritePin, offset: usize, len: usize) {
        self.0.copy(from, to, offset, len);
    }
}
