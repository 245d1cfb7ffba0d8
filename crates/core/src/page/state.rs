//! The state of a published frame: three masks of sectors and a mark in one word.
//!
//! * valid: holds what a read must return.
//! * dirty: newer than the store, and no write of it is under way.
//! * writing: newer than the store, and a write of it is under way.
//!
//! * ahead, the mark: read ahead, and nobody has touched its page since.
//!
//! dirty and writing are parts of valid; a block that was written to has been touched. The word
//! changes under the lock of the frame's shard; only a write into a frame that is dirty already
//! changes it without, holding the frame exclusively, and whoever touches a page first takes its
//! marks away.

/// The masks of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameState {
    pub(crate) valid: u8,
    pub(crate) dirty: u8,
    pub(crate) writing: u8,
    pub(crate) ahead: bool,
}

/// The mark in the packed word.
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

    /// The state after a write to the sectors of `mask`.
    pub(crate) fn with_dirty(self, mask: u8) -> Self {
        let (valid, dirty) = (self.valid | mask, self.dirty | mask);
        FrameState { valid, dirty, ahead: false, ..self }
    }

    /// The packed word without its mark.
    pub(crate) const UNMARKED: u32 = !AHEAD;

    /// Whether all sectors of `mask` may be read.
    pub(crate) fn covers(self, mask: u8) -> bool {
        self.valid & mask == mask
    }
}
