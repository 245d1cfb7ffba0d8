//! The arena: frames of 4 KiB in one mapping, reached only through the holds of their latches.
//!
//! Why the references it gives out are sound: a hold proves that this arena's latch of that frame
//! was granted and not given back (see `hold`), frames do not overlap, and a reference borrows the
//! hold, so that it ends before the hold can be given back.

use crate::error::ArenaError;
use crate::latch::Latches;
use crate::map::{Mapping, lock_limit_bytes};
use crate::pin::{Pin, WritePin};
use crate::prefetch::prefetch;
use crate::{FRAME_BYTES, FRAMES_MAX};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line of the processor's caches.
const LINE_BYTES: usize = 64;
/// Lines that [`Arena::prefetch`] asks for; then the processor sees by itself where a copy goes.
const PREFETCH_LINES: usize = 8;

/// What an arena shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaOptions {
    /// How many frames of 4 KiB.
    pub frames: u32,
    /// Ask the kernel for huge pages. If not, they are declined, even where they are the default
    /// of the system: otherwise the first byte written would take 2 MiB.
    pub huge_pages: bool,
    /// Bring all memory in now and never let it be swapped out; making the arena fails if that is
    /// not allowed.
    pub lock: bool,
}

/// Frames of 4 KiB in one piece of memory, with a latch each.
///
/// Dropping an arena while frames are held leaves its memory mapped for the rest of the process
/// instead of pulling it away from under an operation of the kernel.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    latches: Latches,
    huge_pages: bool,
    /// Whether the advice to use huge pages has been taken back, since memory was.
    huge_declined: AtomicBool,
    locked: bool,
    left_out_of_dumps: bool,
}

impl Arena {
    /// Maps an arena. No frame is touched, unless it is to be locked.
    ///
    /// # Errors
    /// If there are no frames or too many, or the kernel does not give or lock the memory.
    pub fn new(options: ArenaOptions) -> Result<Arena, ArenaError> {
        Arena::growable(options, options.frames)
    }

    /// Maps an arena that has addresses for `frames_max` frames, if the kernel gives so many, and
    /// of these uses only as many as `options` say, until more are [committed](Arena::commit).
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn growable(options: ArenaOptions, frames_max: u32) -> Result<Arena, ArenaError> {
        let frames = options.frames;
        if frames == 0 {
            return Err(ArenaError::NoFrames);
        }
        let too_many = ArenaError::TooManyFrames { frames, frames_max: FRAMES_MAX };
        if frames > FRAMES_MAX {
            return Err(too_many);
        }
        let bytes = (frames as usize).checked_mul(FRAME_BYTES).ok_or(too_many)?;
        let mapping = match Self::addresses(frames, frames_max.min(FRAMES_MAX)) {
            Some(mapping) => mapping,
            None => Mapping::new(bytes).map_err(|source| ArenaError::Map { bytes, source })?,
        };
        // Before locking, which brings the memory in as pages of the size that was asked for.
        let mut huge_taken = mapping.advise_huge(false);
        if options.huge_pages {
            huge_taken = mapping.advise_huge_in(0, bytes, true);
        }
        let left_out_of_dumps = mapping.advise_no_dump();
        let there = u32::try_from(mapping.len() / FRAME_BYTES).expect("at most FRAMES_MAX");
        let arena = Arena {
            mapping,
            latches: Latches::new(there),
            huge_pages: options.huge_pages && huge_taken,
            huge_declined: AtomicBool::new(false),
            locked: options.lock,
            left_out_of_dumps,
        };
        arena.lock(0, bytes)?;
        Ok(arena)
    }

    /// Addresses for more frames than are used, if so many are wanted and given.
    fn addresses(frames: u32, frames_max: u32) -> Option<Mapping> {
        let bytes = (frames_max as usize).checked_mul(FRAME_BYTES)?;
        (frames_max > frames).then(|| Mapping::addresses(bytes).ok()).flatten()
    }

    /// Locks a part of the arena, if it is to be locked.
    fn lock(&self, offset: usize, bytes: usize) -> Result<(), ArenaError> {
        if !self.locked {
            return Ok(());
        }
        self.mapping.lock(offset, bytes).map_err(|source| ArenaError::Lock {
            bytes,
            limit_bytes: lock_limit_bytes(),
            source,
        })
    }

    /// Where runs of frames that follow each other lie: offset and length in bytes.
    fn runs(&self, owns: &[WritePin]) -> Vec<(usize, usize)> {
        let runs = owns.chunk_by(|own, next| own.frame() + 1 == next.frame());
        let place = |run: &[WritePin]| {
            let frames = run.iter().map(|own| self.latches.write_pinned(own));
            let first = frames.min().expect("a run has at least one frame");
            (first as usize * FRAME_BYTES, run.len() * FRAME_BYTES)
        };
        runs.map(place).collect()
    }

    /// Makes frames ready for use that were beyond those used at first, or were released: with the
    /// advice for huge pages, and locked if the arena is. Frames that follow each other in `owns`
    /// go in one call.
    ///
    /// # Errors
    /// If the kernel does not lock the memory. Some of it may be locked then.
    pub fn commit(&self, owns: &mut [WritePin]) -> Result<(), ArenaError> {
        for (offset, len) in self.runs(owns) {
            if self.huge_pages && !self.huge_declined.load(Ordering::Acquire) {
                // Advice that is not taken costs speed and nothing else.
                self.mapping.advise_huge_in(offset, len, true);
            }
            self.lock(offset, len)?;
        }
        Ok(())
    }

    /// Says that the first `frames` are used, all of them: from now on they may be in huge pages
    /// again, if they were at first and memory was released since.
    pub fn advise_all_used(&self, frames: u32) {
        if self.huge_pages && self.huge_declined.swap(false, Ordering::AcqRel) {
            self.mapping.advise_huge_in(0, frames as usize * FRAME_BYTES, true);
        }
    }

    /// How many frames there are; ids run from 0.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.latches.count()
    }

    /// Whether the kernel took the advice to use huge pages. It takes it, and uses none, where the
    /// administrator set `/sys/kernel/mm/transparent_hugepage/enabled` to `never`.
    #[must_use]
    pub fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Whether the memory is locked.
    #[must_use]
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// Whether core dumps leave the cached data out.
    #[must_use]
    pub fn left_out_of_dumps(&self) -> bool {
        self.left_out_of_dumps
    }

    /// Bytes that a frame costs beside its own 4,096.
    #[must_use]
    pub const fn metadata_bytes_per_frame() -> usize {
        Latches::bytes_per_frame()
    }

    /// How many frames are held: a scan, for shutdown and tests; see [`Latches::frames_held`].
    #[must_use]
    pub fn frames_held(&self) -> usize {
        self.latches.frames_held()
    }

    /// Takes a shared hold, unless the frame is owned right now. Never waits.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_pin(&self, frame: u32) -> Option<Pin> {
        self.latches.try_pin(frame)
    }

    /// Takes the exclusive hold, unless the frame is pinned or owned right now. Never waits. It may
    /// also fail in the instant in which another thread's [`Arena::try_pin`] is being refused.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_write_pin(&self, frame: u32) -> Option<WritePin> {
        self.latches.try_write_pin(frame)
    }

    /// Prefetches the latch of a frame that will be pinned soon. An invalid frame is ignored.
    #[inline]
    pub fn prefetch_latch(&self, frame: u32) {
        self.latches.prefetch(frame);
    }

    /// Says that the frame will be pinned and read from `offset` on soon, so that its latch and
    /// first lines are on their way from memory while the caller still finds out whether it is the
    /// right one. Only a hint: what does not exist is ignored.
    #[inline]
    pub fn prefetch(&self, frame: u32, offset: usize) {
        self.latches.prefetch(frame);
        // An address is computed, which may lie anywhere, and never a reference.
        let start =
            self.mapping.base().as_ptr().wrapping_add(frame as usize * FRAME_BYTES + offset);
        for line in 0..PREFETCH_LINES {
            prefetch(start.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Gives a shared hold back.
    ///
    /// # Panics
    /// If the pin is of another arena; so do all methods that take a hold.
    #[inline]
    pub fn unpin(&self, pin: Pin) {
        self.latches.unpin(pin);
    }

    /// Gives the exclusive hold back.
    #[inline]
    pub fn release_write_pin(&self, own: WritePin) {
        self.latches.release_write_pin(own);
    }

    /// Turns the exclusive hold into a shared one, with nobody in between.
    #[inline]
    pub fn downgrade(&self, own: WritePin) -> Pin {
        self.latches.downgrade(own)
    }

    /// The bytes of a pinned frame; a frame that was never written is zero.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        let start = self.address(pin);
        // SAFETY: a whole frame of the mapping, which the arena keeps for `'a`, and zero at first.
        // The pin keeps every owner out, and cannot be given back while `'a` lasts.
        unsafe { std::slice::from_raw_parts(start, FRAME_BYTES) }
    }

    /// The bytes of an owned frame, to change.
    #[inline]
    #[must_use]
    pub fn bytes_mut<'a>(&'a self, own: &'a mut WritePin) -> &'a mut [u8] {
        let start = self.address_mut(own);
        // SAFETY: as in `bytes`; the own is the only hold of the frame, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(start, FRAME_BYTES) }
    }

    /// Copies bytes of the frame from `offset` on into `to`.
    ///
    /// # Panics
    /// If that is more than the frame has; so do the other copies.
    #[inline]
    pub fn read(&self, pin: &Pin, offset: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes(pin)[offset..][..to.len()]);
    }

    /// Copies `from` into the frame from `offset` on.
    #[inline]
    pub fn write(&self, own: &mut WritePin, offset: usize, from: &[u8]) {
        self.bytes_mut(own)[offset..][..from.len()].copy_from_slice(from);
    }

    /// Makes `len` bytes of the frame zero from `offset` on.
    #[inline]
    pub fn zero(&self, own: &mut WritePin, offset: usize, len: usize) {
        self.bytes_mut(own)[offset..][..len].fill(0);
    }

    /// Copies `len` bytes at `offset` from one frame to the same place in another.
    #[inline]
    pub fn copy(&self, from: &Pin, to: &mut WritePin, offset: usize, len: usize) {
        self.write(to, offset, &self.bytes(from)[offset..][..len]);
    }

    /// Where the bytes of a pinned frame are, for an operation that reads them (a write to a store,
    /// a send on a socket). 4,096 bytes, aligned to as many.
    ///
    /// The caller owes: the pin is given back, and the arena dropped, only when the operation is
    /// over; nobody writes through the address.
    #[inline]
    #[must_use]
    pub fn address(&self, pin: &Pin) -> *const u8 {
        self.frame_start(self.latches.pinned(pin))
    }

    /// Where the bytes of an owned frame are, for an operation that writes them (a read of a
    /// store). 4,096 bytes, aligned to as many.
    ///
    /// The caller owes: the own is given back or downgraded, and the arena dropped, only when the
    /// operation is over; until then no other method gets this own.
    #[inline]
    #[must_use]
    pub fn address_mut(&self, own: &mut WritePin) -> *mut u8 {
        self.frame_start(self.latches.write_pinned(own))
    }

    /// The address of frame 0, aligned to 2 MiB; frame `n` is `n * FRAME_BYTES` further. With
    /// [`Arena::len_bytes`] this is what `io_uring` registers as a fixed buffer.
    ///
    /// The caller owes: as for each frame above; nothing is read or written without its hold. And
    /// after registering: registering brings all memory in and ties the operations to the memory
    /// of that moment, so that nothing must be released until the buffer is
    /// unregistered. (The kernel would go on using the memory that was given back.)
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.mapping.base().as_ptr()
    }

    /// The length of all frames together, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.mapping.len()
    }

    /// Gives the memory of the frame back to the system; whether that was possible. If so the frame
    /// is zero now and takes memory again when written; if not it is as it was.
    ///
    /// It is not possible where the pages of the kernel exceed a frame. With huge pages it is
    /// possible and by itself gains nothing at once: the kernel splits the huge page and keeps its
    /// memory until the other 511 frames are released too or it is short of memory. From then on
    /// the kernel is asked to make no more huge pages of the arena, which would take the memory
    /// back, until [`Arena::advise_all_used`].
    ///
    /// In a locked arena the frame is locked no more; [`Arena::commit`] locks it again. The kernel
    /// keeps a limited number of pieces of memory apart (`vm.max_map_count`): where very many
    /// frames lie scattered among locked ones, some cannot be released.
    pub fn release(&self, own: &mut WritePin) -> bool {
        self.release_all(std::slice::from_mut(own)) == 1
    }

    /// Gives the memory of frames back as [`Arena::release`] does; for how many it was possible.
    ///
    /// Frames that follow each other in the arena and in `owns` go in one call. With huge pages,
    /// memory returns for certain and at once where such a run holds all 512 frames from a multiple
    /// of 512 on.
    pub fn release_all(&self, owns: &mut [WritePin]) -> usize {
        if self.huge_pages && !self.huge_declined.swap(true, Ordering::AcqRel) {
            self.mapping.advise_huge(false);
        }
        let mut released = 0;
        for (offset, len) in self.runs(owns) {
            if self.locked && self.mapping.unlock(offset, len).is_err() {
                continue;
            }
            // SAFETY: all of the run is owned, as `owned` has checked for each, and borrowed
            // uniquely, so no reference exists. The caller owes to `address_mut` that no operation
            // of the kernel is going on.
            if unsafe { self.mapping.give_back(offset, len) } {
                released += len / FRAME_BYTES;
            }
        }
        released
    }

    /// Where a frame begins that the latches know.
    #[inline]
    fn frame_start(&self, frame: u32) -> *mut u8 {
        debug_assert!(frame < self.frames(), "a hold names a frame that exists");
        // SAFETY: the mapping has FRAME_BYTES for every latch, and the callers got `frame` from a
        // hold that the latches granted.
        let start = unsafe { self.mapping.base().add(frame as usize * FRAME_BYTES) };
        start.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.latches.frames_held() > 0 {
            self.mapping.keep();
        }
    }
}
