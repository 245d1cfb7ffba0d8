//! The arena: frames of 4 KiB in one mapping, accessible only through the pins of their latches.
//!
//! The references that the arena returns are sound: a pin proves that this arena's latch of that
//! frame granted it and that it was not released (see `pin`), frames do not overlap, and a
//! reference borrows the pin, so that it ends before the pin can be released.

use crate::error::ArenaError;
use crate::latch::Latches;
use crate::map::{Mapping, lock_limit_bytes};
use crate::pin::{Pin, WritePin};
use crate::prefetch::prefetch;
use crate::{FRAME_BYTES, FRAMES_MAX};
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of a cache line of the processor.
const LINE_BYTES: usize = 64;
/// The number of lines that [`Arena::prefetch`] requests; after them the hardware prefetcher
/// detects a copy.
const PREFETCH_LINES: usize = 8;

/// The options of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaOptions {
    /// The number of frames of 4 KiB.
    pub frames: u32,
    /// Ask the kernel for huge pages. If false, the arena advises against them, even where they are
    /// the default of the system: otherwise the first byte written would take 2 MiB.
    pub huge_pages: bool,
    /// Populate all memory now and lock it against swapping; the construction fails if that is not
    /// permitted.
    pub lock: bool,
}

/// Frames of 4 KiB in one mapping, with a latch each.
///
/// An arena that is dropped while frames are pinned leaves its memory mapped for the rest of the
/// process, because an operation of the kernel may still access it.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    latches: Latches,
    huge_pages: bool,
    /// True if the arena has withdrawn the advice for huge pages, because memory was released.
    huge_declined: AtomicBool,
    locked: bool,
    left_out_of_dumps: bool,
}

impl Arena {
    /// Maps an arena. It touches no frame, unless the arena is locked.
    ///
    /// # Errors
    /// There are no frames or too many, or the kernel does not map or lock the memory.
    pub fn new(options: ArenaOptions) -> Result<Arena, ArenaError> {
        Arena::growable(options, options.frames)
    }

    /// Reserves addresses for `frames_max` frames, if the kernel permits it, but uses only as many
    /// as in `options` until more are [committed](Arena::commit).
    ///
    /// # Errors
    /// As for [`Arena::new`].
    pub fn growable(options: ArenaOptions, frames_max: u32) -> Result<Arena, ArenaError> {
        let frames = options.frames;
        if frames == 0 {
            return Err(ArenaError::NoFrames);
        }
        let too_many_error = ArenaError::TooManyFrames { frames, frames_max: FRAMES_MAX };
        if frames > FRAMES_MAX {
            return Err(too_many_error);
        }
        let bytes = (frames as usize).checked_mul(FRAME_BYTES).ok_or(too_many_error)?;
        let mapping = match Self::addresses(frames, frames_max.min(FRAMES_MAX)) {
            Some(mapping) => mapping,
            None => Mapping::new(bytes).map_err(|source| ArenaError::Map { bytes, source })?,
        };
        // Before locking, which populates the memory with pages of the size advised here.
        let mut huge_taken = mapping.advise_huge(false);
        if options.huge_pages {
            huge_taken = mapping.advise_huge_in(0, bytes, true);
        }
        let left_out_of_dumps = mapping.advise_no_dump();
        let frame_count = u32::try_from(mapping.len() / FRAME_BYTES).expect("at most FRAMES_MAX");
        let arena = Arena {
            mapping,
            latches: Latches::new(frame_count),
            huge_pages: options.huge_pages && huge_taken,
            huge_declined: AtomicBool::new(false),
            locked: options.lock,
            left_out_of_dumps,
        };
        arena.lock(0, bytes)?;
        Ok(arena)
    }

    /// Reserves addresses for more frames than are used, if requested and possible.
    fn addresses(frames: u32, frames_max: u32) -> Option<Mapping> {
        let bytes = (frames_max as usize).checked_mul(FRAME_BYTES)?;
        (frames_max > frames).then(|| Mapping::addresses(bytes).ok()).flatten()
    }

    /// Locks a part of the arena, if the arena is locked.
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

    /// Returns the offset and length in bytes of each run of consecutive frames.
    fn runs(&self, write_pins: &[WritePin]) -> Vec<(usize, usize)> {
        let runs = write_pins.chunk_by(|write_pin, next| write_pin.frame() + 1 == next.frame());
        let extent = |run: &[WritePin]| {
            let frames = run.iter().map(|write_pin| self.latches.write_pinned(write_pin));
            let first = frames.min().expect("a run has at least one frame");
            (first as usize * FRAME_BYTES, run.len() * FRAME_BYTES)
        };
        runs.map(extent).collect()
    }

    /// Prepares frames for use that were not used initially or were released: advises huge pages,
    /// and locks the frames if the arena is locked. Consecutive frames in `write_pins` need only
    /// one call.
    ///
    /// # Errors
    /// The kernel does not lock the memory. Some of it may be locked already.
    pub fn commit(&self, write_pins: &mut [WritePin]) -> Result<(), ArenaError> {
        for (offset, len) in self.runs(write_pins) {
            if self.huge_pages && !self.huge_declined.load(Ordering::Acquire) {
                // Rejected advice affects only speed.
                self.mapping.advise_huge_in(offset, len, true);
            }
            self.lock(offset, len)?;
        }
        Ok(())
    }

    /// Declares that the first `frames` are all in use: from now on the kernel may use huge pages
    /// for them again, if the arena had them initially and has released memory since.
    pub fn advise_all_used(&self, frames: u32) {
        if self.huge_pages && self.huge_declined.swap(false, Ordering::AcqRel) {
            self.mapping.advise_huge_in(0, frames as usize * FRAME_BYTES, true);
        }
    }

    /// Returns the number of frames; ids start at 0.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.latches.count()
    }

    /// Returns true if the kernel accepted the advice to use huge pages. It accepts it, and uses
    /// none, where the administrator has set `/sys/kernel/mm/transparent_hugepage/enabled` to
    /// `never`.
    #[must_use]
    pub fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Returns true if the memory is locked.
    #[must_use]
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// Returns true if core dumps exclude the cached data.
    #[must_use]
    pub fn left_out_of_dumps(&self) -> bool {
        self.left_out_of_dumps
    }

    /// Returns the memory in bytes that a frame needs in addition to its 4,096.
    #[must_use]
    pub const fn metadata_bytes_per_frame() -> usize {
        Latches::bytes_per_frame()
    }

    /// Returns the number of pinned frames: a scan, for shutdown and tests; see
    /// [`Latches::frames_held`].
    #[must_use]
    pub fn frames_held(&self) -> usize {
        self.latches.frames_held()
    }

    /// Pins the frame, unless it is write-pinned. Never blocks.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_pin(&self, frame: u32) -> Option<Pin> {
        self.latches.try_pin(frame)
    }

    /// Write-pins the frame, unless it is pinned or write-pinned. Never blocks. It may also fail
    /// while another thread's [`Arena::try_pin`] is being rejected.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    #[must_use = "a hold that is dropped holds its frame for ever"]
    pub fn try_write_pin(&self, frame: u32) -> Option<WritePin> {
        self.latches.try_write_pin(frame)
    }

    /// Prefetches the latch of a frame that will be pinned soon. Invalid frames are ignored.
    #[inline]
    pub fn prefetch_latch(&self, frame: u32) {
        self.latches.prefetch(frame);
    }

    /// Prefetches the latch and the first lines of a frame that the caller may pin and read from
    /// `offset` soon, while the caller still checks if it is the right frame. Only a hint: invalid
    /// frames are ignored.
    #[inline]
    pub fn prefetch(&self, frame: u32, offset: usize) {
        self.latches.prefetch(frame);
        // This computes an address, which may be out of bounds, and never a reference.
        let start =
            self.mapping.base().as_ptr().wrapping_add(frame as usize * FRAME_BYTES + offset);
        for line in 0..PREFETCH_LINES {
            prefetch(start.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Releases a pin.
    ///
    /// # Panics
    /// The pin is of another arena; this holds for all methods that take a pin.
    #[inline]
    pub fn unpin(&self, pin: Pin) {
        self.latches.unpin(pin);
    }

    /// Releases a write pin.
    #[inline]
    pub fn release_write_pin(&self, write_pin: WritePin) {
        self.latches.release_write_pin(write_pin);
    }

    /// Converts a write pin into a pin; no other thread can write-pin the frame in between.
    #[inline]
    pub fn downgrade(&self, write_pin: WritePin) -> Pin {
        self.latches.downgrade(write_pin)
    }

    /// Returns the bytes of a pinned frame; a frame that was never written is zero.
    #[inline]
    #[must_use]
    pub fn bytes<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        let start = self.address(pin);
        // SAFETY: a whole frame of the mapping, which the arena keeps for `'a`, initially zero. The
        // pin excludes all write pins, and cannot be released while `'a` lasts.
        unsafe { std::slice::from_raw_parts(start, FRAME_BYTES) }
    }

    /// Returns the bytes of a write-pinned frame for modification.
    #[inline]
    #[must_use]
    pub fn bytes_mut<'a>(&'a self, write_pin: &'a mut WritePin) -> &'a mut [u8] {
        let start = self.address_mut(write_pin);
        // SAFETY: as in `bytes`; the write pin is the only pin of the frame, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(start, FRAME_BYTES) }
    }

    /// Copies bytes of the frame, starting at `offset`, to `to`.
    ///
    /// # Panics
    /// The range exceeds the frame; this holds for the other copies, too.
    #[inline]
    pub fn read(&self, pin: &Pin, offset: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes(pin)[offset..][..to.len()]);
    }

    /// Copies `from` into the frame at `offset`.
    #[inline]
    pub fn write(&self, write_pin: &mut WritePin, offset: usize, from: &[u8]) {
        self.bytes_mut(write_pin)[offset..][..from.len()].copy_from_slice(from);
    }

    /// Zeroes `len` bytes of the frame at `offset`.
    #[inline]
    pub fn zero(&self, write_pin: &mut WritePin, offset: usize, len: usize) {
        self.bytes_mut(write_pin)[offset..][..len].fill(0);
    }

    /// Copies `len` bytes at `offset` from one frame to the same offset in another.
    #[inline]
    pub fn copy(&self, from: &Pin, to: &mut WritePin, offset: usize, len: usize) {
        self.write(to, offset, &self.bytes(from)[offset..][..len]);
    }

    /// Returns the address of a pinned frame, for an operation that reads it (a write to a store, a
    /// send on a socket): 4,096 bytes, aligned to 4,096.
    ///
    /// The caller must release the pin, and drop the arena, only after the operation has ended, and
    /// must not write through the address.
    #[inline]
    #[must_use]
    pub fn address(&self, pin: &Pin) -> *const u8 {
        self.frame_start(self.latches.pinned(pin))
    }

    /// Returns the address of a write-pinned frame, for an operation that writes it (a read from a
    /// store): 4,096 bytes, aligned to 4,096.
    ///
    /// The caller must release or downgrade the write pin, and drop the arena, only after the
    /// operation has ended; until then it must not pass this write pin to any other method.
    #[inline]
    #[must_use]
    pub fn address_mut(&self, write_pin: &mut WritePin) -> *mut u8 {
        self.frame_start(self.latches.write_pinned(write_pin))
    }

    /// Returns the address of frame 0, aligned to 2 MiB; frame `n` is at an offset of
    /// `n * FRAME_BYTES`. Together with [`Arena::len_bytes`] this is the range to register as a
    /// fixed buffer of `io_uring`.
    ///
    /// The caller has the same obligations as for each frame above: it must not access a frame
    /// without its pin. Registration populates all memory and binds operations to the pages of that
    /// time, so the caller must not release memory until the buffer is unregistered. (The kernel
    /// would continue to use the released pages.)
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.mapping.base().as_ptr()
    }

    /// Returns the length of all frames together, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.mapping.len()
    }

    /// Returns the memory of the frame to the system; returns true on success. The frame is then
    /// zero and takes memory again when written; otherwise it is unchanged.
    ///
    /// The release is impossible where the kernel's pages exceed a frame. With huge pages it is
    /// possible but frees nothing at once: the kernel splits the huge page and keeps its memory
    /// until the other 511 frames are released too or memory is short. From then on the arena
    /// advises the kernel against new huge pages, which would take the memory back, until
    /// [`Arena::advise_all_used`].
    ///
    /// In a locked arena the frame is no longer locked; [`Arena::commit`] locks it again. The
    /// kernel limits the number of separate mappings (`vm.max_map_count`): where very many frames
    /// are scattered among locked ones, some cannot be released.
    pub fn release(&self, write_pin: &mut WritePin) -> bool {
        self.release_all(std::slice::from_mut(write_pin)) == 1
    }

    /// Releases the memory of frames like [`Arena::release`]; returns the number of released
    /// frames.
    ///
    /// Frames that are consecutive in the arena and in `write_pins` need only one call. With huge
    /// pages, the memory is freed immediately only where such a run contains all 512 frames from a
    /// multiple of 512 on.
    pub fn release_all(&self, write_pins: &mut [WritePin]) -> usize {
        if self.huge_pages && !self.huge_declined.swap(true, Ordering::AcqRel) {
            self.mapping.advise_huge(false);
        }
        let mut released = 0;
        for (offset, len) in self.runs(write_pins) {
            if self.locked && self.mapping.unlock(offset, len).is_err() {
                continue;
            }
            // SAFETY: all of the run is write-pinned, as `write_pinned` has checked for each frame,
            // and borrowed uniquely, so no reference exists. The caller of `address_mut` guarantees
            // that no operation of the kernel is in progress.
            if unsafe { self.mapping.release_memory(offset, len) } {
                released += len / FRAME_BYTES;
            }
        }
        released
    }

    /// Returns the start of a frame that the latches granted.
    #[inline]
    fn frame_start(&self, frame: u32) -> *mut u8 {
        debug_assert!(frame < self.frames(), "a hold names a frame that exists");
        // SAFETY: the mapping has FRAME_BYTES for every latch, and the callers got `frame` from a
        // pin that the latches granted.
        let start = unsafe { self.mapping.base().add(frame as usize * FRAME_BYTES) };
        start.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.latches.frames_held() > 0 {
            self.mapping.leak();
        }
    }
}
