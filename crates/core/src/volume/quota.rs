//! Frames of a volume: its guarantee, its maximum, and its usage.

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

/// The frame counts and bounds of a volume.
#[derive(Debug)]
pub(crate) struct Quota {
    min: AtomicU32,
    max: AtomicU32,
    /// Frames that other volumes cannot take although the user has not guaranteed them.
    reserve: AtomicU32,
    /// Frames that hold the volume's data, or that have not been freed yet.
    pub(crate) usage: CachePadded<AtomicU32>,
    /// By shard, the time of the last reference to the page that was evicted last: the age of the
    /// cold end. The maximum if no page can be evicted.
    pub(crate) coldest: Box<[AtomicU64]>,
    /// By shard, the number of pages.
    pub(crate) pages: Box<[AtomicU32]>,
}

impl Quota {
    pub(crate) fn new(min: u32, max: u32, shards: usize) -> Self {
        Quota {
            min: AtomicU32::new(min),
            max: AtomicU32::new(max),
            reserve: AtomicU32::new(0),
            usage: CachePadded::default(),
            coldest: (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect(),
            pages: (0..shards).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the number of frames that the user has guaranteed.
    pub(crate) fn min(&self) -> u32 {
        self.min.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that other volumes cannot take.
    pub(crate) fn floor(&self) -> u32 {
        self.min().max(self.reserve.load(Ordering::Relaxed))
    }

    /// Sets the number of frames that other volumes cannot take although the user has not
    /// guaranteed them.
    pub(crate) fn set_reserve(&self, frames: u32) {
        self.reserve.store(frames, Ordering::Relaxed);
    }

    /// Returns the maximum number of frames. The usage may exceed it after it was lowered.
    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Subtracts `frames` from the usage.
    pub(crate) fn uncharge(&self, frames: usize) {
        let frames = u32::try_from(frames).expect("at most the arena");
        self.usage.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Returns true if the usage exceeds the maximum.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.usage.load(Ordering::Relaxed) > self.max()
    }

    /// Sets both bounds. A concurrent reader may see one old and one new value.
    pub(crate) fn set_bounds(&self, min: u32, max: u32) {
        self.min.store(min, Ordering::Relaxed);
        self.max.store(max, Ordering::Relaxed);
    }
}
