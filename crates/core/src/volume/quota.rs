//! Frames of a volume: its guarantee, its maximum, its target and its usage.

use crate::clock::Nanos;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State that all volumes of a cache share.
#[derive(Debug, Default)]
pub(crate) struct AllVolumes {
    /// Blocks that the stores do not have yet, dirty or being written.
    pub(crate) unclean: CachePadded<AtomicU64>,
    /// Frames in service, except those about to leave it.
    pub(crate) frames: AtomicU64,
}

/// The part of a volume in one shard, as evictions of all volumes see it.
#[derive(Debug)]
struct ShardPart {
    /// Time of the last reference to the page that was evicted last: the age of the cold end. The
    /// maximum if no page can be evicted.
    coldest: AtomicU64,
    pages: AtomicU32,
}

/// The frame counts and bounds of a volume.
#[derive(Debug)]
pub(crate) struct Quota {
    min: AtomicU32,
    max: AtomicU32,
    /// Frames that other volumes cannot take although the user has not guaranteed them.
    reserve: AtomicU32,
    /// Number of frames that the cache intends for the volume, if it divides the pool
    /// automatically; otherwise the maximum of the type.
    target: AtomicU32,
    /// Frames that hold the volume's data, or that have not been freed yet.
    usage: CachePadded<AtomicU32>,
    shards: Box<[ShardPart]>,
}

impl Quota {
    pub(crate) fn new(min: u32, max: u32, shards: usize) -> Self {
        let part = |_| ShardPart { coldest: AtomicU64::new(Nanos::MAX), pages: AtomicU32::new(0) };
        Quota {
            min: AtomicU32::new(min),
            max: AtomicU32::new(max),
            reserve: AtomicU32::new(0),
            target: AtomicU32::new(u32::MAX),
            usage: CachePadded::default(),
            shards: (0..shards).map(part).collect(),
        }
    }

    /// Returns the number of frames that the user has guaranteed.
    #[inline]
    pub(crate) fn min(&self) -> u32 {
        self.min.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that other volumes cannot take.
    #[inline]
    pub(crate) fn floor(&self) -> u32 {
        self.min().max(self.reserve.load(Ordering::Relaxed))
    }

    /// Sets the number of frames that other volumes cannot take although the user has not
    /// guaranteed them.
    pub(crate) fn set_reserve(&self, frames: u32) {
        self.reserve.store(frames, Ordering::Relaxed);
    }

    /// Returns the maximum number of frames. The usage may exceed it after it was lowered.
    #[inline]
    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets both bounds. A concurrent reader may see one old and one new value.
    pub(crate) fn set_bounds(&self, min: u32, max: u32) {
        self.min.store(min, Ordering::Relaxed);
        self.max.store(max, Ordering::Relaxed);
    }

    /// Returns the target, if the cache divides the pool automatically.
    pub(crate) fn target(&self) -> Option<u32> {
        let target = self.target.load(Ordering::Relaxed);
        (target < u32::MAX).then_some(target)
    }

    pub(crate) fn set_target(&self, frames: Option<u32>) {
        let target = frames.map_or(u32::MAX, |frames| frames.min(u32::MAX - 1));
        self.target.store(target, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn usage(&self) -> u32 {
        self.usage.load(Ordering::Relaxed)
    }

    pub(crate) fn charge(&self) {
        self.usage.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts `frames` from the usage.
    pub(crate) fn uncharge(&self, frames: usize) {
        let frames = u32::try_from(frames).expect("at most the arena");
        self.usage.fetch_sub(frames, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.usage() >= self.max()
    }

    /// Returns the number of frames of the floor that the volume has not taken.
    pub(crate) fn unused_floor(&self) -> u32 {
        self.floor().saturating_sub(self.usage())
    }

    pub(crate) fn shards(&self) -> std::ops::Range<usize> {
        0..self.shards.len()
    }

    /// Returns the age of the cold end of a shard; the maximum if no page can be evicted.
    pub(crate) fn coldest(&self, shard: usize) -> Nanos {
        self.shards[shard].coldest.load(Ordering::Relaxed)
    }

    pub(crate) fn set_coldest(&self, shard: usize, at: Nanos) {
        self.shards[shard].coldest.store(at, Ordering::Relaxed);
    }

    pub(crate) fn pages(&self, shard: usize) -> u32 {
        self.shards[shard].pages.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pages(&self, shard: usize, pages: u32) {
        self.shards[shard].pages.store(pages, Ordering::Relaxed);
    }

    /// Gives up all claims to memory: the volume was removed.
    pub(super) fn clear(&self) {
        self.set_bounds(0, u32::MAX);
        self.set_reserve(0);
        self.shards().for_each(|shard| self.set_coldest(shard, Nanos::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_guarantee_or_the_reserve_less_what_is_used() {
        let quota = Quota::new(2, 4, 1);
        quota.charge();
        assert_eq!((quota.floor(), quota.unused_floor(), quota.is_full()), (2, 1, false));
        quota.set_reserve(3);
        quota.charge();
        quota.charge();
        quota.charge();
        assert_eq!((quota.floor(), quota.unused_floor(), quota.is_full()), (3, 0, true));
        quota.uncharge(3);
        quota.set_coldest(0, 9);
        quota.clear();
        assert_eq!((quota.floor(), quota.is_full(), quota.coldest(0)), (0, false, Nanos::MAX));
    }

    #[test]
    fn a_target_is_below_the_value_for_none() {
        let quota = Quota::new(0, 9, 1);
        assert_eq!(quota.target(), None);
        quota.set_target(Some(u32::MAX));
        assert_eq!(quota.target(), Some(u32::MAX - 1));
        quota.set_target(None);
        assert_eq!(quota.target(), None);
    }
}
