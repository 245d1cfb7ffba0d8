//! Where blocks lie that lie in a row: a guess at a block's frame from a few bytes for each mebibyte.
//!
//! The page table is so large that each look at it misses the processor's caches, and the address of
//! the data hangs on what is found there: one trip to memory before the copy can begin. Blocks that
//! were read together mostly lie in consecutive frames. So for each group of 64 blocks this keeps
//! the frame that the group would begin at, and which of its blocks do lie where that says. That is
//! 64 bytes for each mebibyte of hot data, which stay in a cache of the processor.
//!
//! It is a guess, whose taker checks the key of the frame. It changes only under the lock of the
//! region's shard; whoever reads it meanwhile may guess wrong.

use crate::frames::{FrameId, NO_FRAME};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const GROUP_BLOCKS: u8 = 64;
/// Groups of a region of 256 blocks.
const GROUPS: usize = 4;

/// The runs of one region: one line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Runs {
    /// Which region of which volume this is about; 0 is none.
    region: AtomicU64,
    /// Of each group, the blocks that lie where they should.
    masks: [AtomicU64; GROUPS],
    /// Of each group, the frame of its first block, if that lay in the row. Wraps below 0.
    starts: [AtomicU32; GROUPS],
}

impl Runs {
    pub(crate) fn new() -> Self {
        Runs {
            region: AtomicU64::new(0),
            masks: std::array::from_fn(|_| AtomicU64::new(0)),
            starts: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The group of a block of the region, and the block's place in it.
    #[inline]
    fn place(block: u8) -> (usize, u32) {
        (usize::from(block / GROUP_BLOCKS), u32::from(block % GROUP_BLOCKS))
    }

    /// The frame that holds `block` of `region` if it lies in a row with others.
    #[inline]
    pub(crate) fn guess(&self, region: u64, block: u8) -> FrameId {
        let (group, place) = Self::place(block);
        let mask = self.masks[group].load(Ordering::Relaxed);
        if self.region.load(Ordering::Relaxed) != region || mask >> place & 1 == 0 {
            return NO_FRAME;
        }
        self.starts[group].load(Ordering::Relaxed).wrapping_add(place)
    }

    /// Notes that `block` of `region` is in `frame` now, under the lock of the shard.
    pub(crate) fn note(&self, region: u64, block: u8, frame: FrameId) {
        if self.region.load(Ordering::Relaxed) != region {
            for mask in &self.masks {
                mask.store(0, Ordering::Relaxed);
            }
            self.region.store(region, Ordering::Relaxed);
        }
        let (group, place) = Self::place(block);
        let start = frame.wrapping_sub(place);
        let mask = &self.masks[group];
        if self.starts[group].load(Ordering::Relaxed) != start {
            // The newest run is the one that grows.
            mask.store(0, Ordering::Relaxed);
            self.starts[group].store(start, Ordering::Relaxed);
        }
        mask.store(mask.load(Ordering::Relaxed) | 1 << place, Ordering::Relaxed);
    }

    /// Notes that `block` of `region` is no longer in `frame`, under the lock of the shard.
    pub(crate) fn forget(&self, region: u64, block: u8, frame: FrameId) {
        if self.guess(region, block) == frame {
            let (group, place) = Self::place(block);
            let mask = &self.masks[group];
            mask.store(mask.load(Ordering::Relaxed) & !(1 << place), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_a_row_are_guessed_and_others_are_not() {
        let runs = Runs::new();
        for block in 60..70 {
            runs.note(7, block, 1000 + u32::from(block));
        }
        runs.note(7, 80, 5);
        assert_eq!(runs.guess(7, 63), 1063);
        assert_eq!(runs.guess(7, 59), NO_FRAME, "never noted");
        assert_eq!(runs.guess(8, 63), NO_FRAME, "another region");
        assert_eq!(runs.guess(7, 80), 5, "the newest run, though its start wraps");
        assert_eq!(runs.guess(7, 65), NO_FRAME, "of the run that went");
        runs.forget(7, 63, 9);
        assert_eq!(runs.guess(7, 63), 1063, "what went is another frame");
        runs.forget(7, 63, 1063);
        assert_eq!(runs.guess(7, 63), NO_FRAME);
        assert_eq!(runs.guess(7, 62), 1062);
        runs.note(8, 0, 1);
        assert_eq!(runs.guess(7, 62), NO_FRAME, "the place went to another region");
    }
}
