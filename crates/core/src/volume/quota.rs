//! The room of a volume in the pool: what it is promised, what it may have, what it has.

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State that all volumes of a cache share.
#[derive(Debug, Default)]
pub(crate) struct AllVolumes {
    /// Blocks that the stores do not have yet, written now or not.
    pub(crate) unclean: CachePadded<AtomicU64>,
    /// Frames in service, but for those that are about to leave.
    pub(crate) frames: AtomicU64,
}

/// The room of a volume in the pool.
#[derive(Debug)]
pub(crate) struct Quota {
    min: AtomicU32,
    max: AtomicU32,
    /// Frames that others cannot take although the user has promised nothing.
    reserve: AtomicU32,
    /// Frames that hold the volume's data, or that wait to be given back.
    pub(crate) usage: CachePadded<AtomicU32>,
    /// Per shard, when the page evicted last had been touched last: where the cold end is. The
    /// maximum where nothing can be evicted.
    pub(crate) coldest: Box<[AtomicU64]>,
    /// Per shard, its pages.
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

    /// Frames that the user has promised to the volume.
    pub(crate) fn min(&self) -> u32 {
        self.min.load(Ordering::Relaxed)
    }

    /// Frames that others cannot take.
    pub(crate) fn floor(&self) -> u32 {
        self.min().max(self.reserve.load(Ordering::Relaxed))
    }

    /// Sets how many frames others cannot take although the user has promised nothing.
    pub(crate) fn set_reserve(&self, frames: u32) {
        self.reserve.store(frames, Ordering::Relaxed);
    }

    /// Frames that the volume never exceeds, but for those it had when this was lowered.
    pub(crate) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// So many frames are no longer its.
    pub(crate) fn uncharge(&self, frames: usize) {
        let frames = u32::try_from(frames).expect("at most the arena");
        self.usage.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Whether it has more than it may.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.usage.load(Ordering::Relaxed) > self.max()
    }

    /// Sets both; whoever reads them one by one may see one old and one new for a moment.
    pub(crate) fn set_bounds(&self, min: u32, max: u32) {
        self.min.store(min, Ordering::Relaxed);
        self.max.store(max, Ordering::Relaxed);
    }
}
