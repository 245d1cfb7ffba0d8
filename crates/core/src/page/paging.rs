//! Paging: how the blocks of a volume are grouped into pages.
//!
//! It can change while the volume serves. Under a shard's lock the instance there says what is so;
//! without one the volume says what was so a moment ago, and whoever computed a page from that
//! looks again under the lock.

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
    /// The blocks of page `page`.
    pub(crate) fn blocks_of(self, page: u64) -> Range<u64> {
        let first = page * u64::from(self.page_blocks);
        first..(first + u64::from(self.page_blocks)).min(self.blocks)
    }

    /// The page of `block`.
    pub(crate) fn page_of(self, block: u64) -> u64 {
        block / u64::from(self.page_blocks)
    }

    /// Returns the pages that `blocks`, at least one, lie in.
    pub(crate) fn pages_of(self, blocks: &Range<u64>) -> Range<u64> {
        self.page_of(blocks.start)..self.page_of(blocks.end - 1) + 1
    }

    /// The blocks of the page of `block`.
    pub(crate) fn around(self, block: u64) -> Range<u64> {
        self.blocks_of(self.page_of(block))
    }
}
