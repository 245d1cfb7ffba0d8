//! Units of all amounts, and conversions between them.
//!
//! A *block* is 4 KiB, the size of a frame of memory. A *sector* is 512 bytes, the smallest part of
//! a block whose validity is tracked. A *page* is the unit that a policy admits and evicts: 1 to
//! 256 blocks, aligned to its own size.

use std::ops::Range;

/// Bytes in a block, and in a frame of memory.
pub const BLOCK_BYTES: usize = 4096;
/// The same as a 64-bit number, for offsets.
pub const BLOCK_BYTES_U64: u64 = 4096;
/// Bytes in a sector.
pub const SECTOR_BYTES: usize = 512;
/// Sectors in a block; each has one bit in the masks of a frame.
pub const SECTORS_PER_BLOCK: usize = BLOCK_BYTES / SECTOR_BYTES;
/// The largest page, in blocks: 1 MiB. Also the largest joined write to a store.
pub const PAGE_BLOCKS_MAX: u32 = 256;

/// Bytes of a segment. In a store of several files each file has its own segments, so no operation
/// may cross a multiple of this.
pub const SEGMENT_BYTES: u64 = 1 << 30;

/// Returns true if the ranges, which are not empty, have a common element.
pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns the blocks that a range of bytes touches, completely or in part.
#[must_use]
pub fn blocks_touched(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES_U64..bytes.end.div_ceil(BLOCK_BYTES_U64)
}

/// Splits blocks at the boundaries of regions of [`PAGE_BLOCKS_MAX`] blocks. The blocks of a region
/// are in one shard of the cache.
pub(crate) fn regions(blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let region = u64::from(PAGE_BLOCKS_MAX);
    let parts = (blocks.start / region..blocks.end.div_ceil(region))
        .map(move |i| blocks.start.max(i * region)..blocks.end.min((i + 1) * region));
    parts.filter(|part| !part.is_empty())
}

/// Returns the mask of the sectors that the bytes `offset..offset + len` of a block touch,
/// completely or in part.
#[must_use]
pub fn sectors_touched(offset: usize, len: usize) -> u8 {
    debug_assert!(len > 0 && offset + len <= BLOCK_BYTES, "range inside one block");
    let first = offset / SECTOR_BYTES;
    let last = (offset + len - 1) / SECTOR_BYTES;
    (0xff_u8 << first) & (0xff_u8 >> (SECTORS_PER_BLOCK - 1 - last))
}

/// Returns the mask of the sectors that the bytes `offset..offset + len` of a block cover
/// completely.
#[must_use]
pub fn sectors_covered(offset: usize, len: usize) -> u8 {
    debug_assert!(offset + len <= BLOCK_BYTES, "range inside one block");
    let first = offset.div_ceil(SECTOR_BYTES);
    let end = (offset + len) / SECTOR_BYTES;
    if first >= end {
        return 0;
    }
    sectors_touched(first * SECTOR_BYTES, (end - first) * SECTOR_BYTES)
}

/// Maximum length of a volume in bytes. Keys of pages have no room for more.
pub const LENGTH_MAX: u64 = (1 << 60) - 1;

/// Converts a count to a floating-point number.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_split_at_the_boundaries_of_regions() {
        let split = |blocks| regions(blocks).collect::<Vec<_>>();
        assert_eq!(split(255..513), [255..256, 256..512, 512..513]);
        assert_eq!(split(256..512).len(), 1);
        assert_eq!(split(7..7), []);
    }

    #[test]
    fn masks_of_touched_and_covered_sectors() {
        assert_eq!(sectors_touched(0, BLOCK_BYTES), 0xff);
        assert_eq!(sectors_touched(511, 2), 0b11);
        assert_eq!(sectors_touched(4095, 1), 0b1000_0000);
        assert_eq!(sectors_covered(0, BLOCK_BYTES), 0xff);
        assert_eq!(sectors_covered(511, 2), 0);
        assert_eq!(sectors_covered(1, 1024), 0b10);
        assert_eq!(sectors_covered(512, 512), 0b10);
        assert_eq!(sectors_covered(100, 0), 0);
    }
}
