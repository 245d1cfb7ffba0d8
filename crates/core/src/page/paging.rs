//! Paging: the division of the blocks of a volume into pages.
//!
//! It can change while the volume serves. The paging of an [`crate::shard::Instance`] is exact
//! under the shard's lock; that of the volume may be outdated, so a caller that computed a page
//! from it checks again under the lock.

use std::ops::Range;

/// Pages of one size over the blocks of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paging {
    /// Blocks in a page, a power of two.
    pub(crate) page_blocks: u32,
    /// Blocks in the volume.
    pub(crate) blocks: u64,
}

impl Paging {
    pub(crate) fn blocks_of(self, page: u64) -> Range<u64> {
        let first = page * u64::from(self.page_blocks);
        first..(first + u64::from(self.page_blocks)).min(self.blocks)
    }

    pub(crate) fn page_of(self, block: u64) -> u64 {
        block / u64::from(self.page_blocks)
    }

    /// Returns the pages that contain `blocks`, which is not empty.
    pub(crate) fn pages_of(self, blocks: &Range<u64>) -> Range<u64> {
        self.page_of(blocks.start)..self.page_of(blocks.end - 1) + 1
    }

    /// Returns the blocks of the page of `block`.
    pub(crate) fn around(self, block: u64) -> Range<u64> {
        self.blocks_of(self.page_of(block))
    }
}
