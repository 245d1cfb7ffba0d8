//! The state of a published frame: three masks of sectors and a flag in one word.
//!
//! * valid: a read may return the sector.
//! * dirty: newer than the store, and not being written.
//! * writing: newer than the store, and being written.
//! * ahead (the flag): read ahead, and no client has touched the page since.
//!
//! The dirty and writing masks are subsets of the valid one; a block that a client has written has
//! been touched. The word changes under the lock of the frame's shard, with two exceptions that
//! need no lock: a write into a frame that is already dirty, with a write pin, and the first touch
//! of a page, which clears its flags.

/// The masks of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameState {
    pub(crate) valid: u8,
    pub(crate) dirty: u8,
    pub(crate) writing: u8,
    pub(crate) ahead: bool,
}

/// The flag in the packed word.
const AHEAD: u32 = 1 << 24;

impl FrameState {
    pub(crate) fn unpack(word: u32) -> Self {
        let [valid, dirty, writing, _] = word.to_le_bytes();
        FrameState { valid, dirty, writing, ahead: word & AHEAD != 0 }
    }

    pub(crate) fn pack(self) -> u32 {
        debug_assert_eq!((self.dirty | self.writing) & !self.valid, 0, "dirty but not valid");
        u32::from_le_bytes([self.valid, self.dirty, self.writing, u8::from(self.ahead)])
    }

    /// Returns the state after a write to the sectors of `mask`.
    pub(crate) fn with_dirty(self, mask: u8) -> Self {
        let (valid, dirty) = (self.valid | mask, self.dirty | mask);
        FrameState { valid, dirty, ahead: false, ..self }
    }

    /// Mask that clears the flag of the packed word.
    pub(crate) const UNMARKED: u32 = !AHEAD;

    /// Returns true if all sectors of `mask` are valid.
    pub(crate) fn covers(self, mask: u8) -> bool {
        self.valid & mask == mask
    }
}
