//! A simulated cache under `--policy auto`: replacement alone, with the tracker and the decision of
//! the engine, as for the only volume of a server.

use larder_core::cache::tracker_bytes;
use larder_core::curve::choice::PolicyChoice;
use larder_core::curve::tracker::Tracker;
use larder_core::replace::{Counts, Reference, Replace, SwitchableCache};

/// A cache whose policy the tracker changes.
#[derive(Debug)]
pub struct AutoCache {
    cache: SwitchableCache,
    /// `None` if a server has too little memory for one; then the first policy stays.
    tracker: Option<Tracker>,
    counts: Counts,
}

impl AutoCache {
    /// Creates a cache of `capacity` pages (at least one).
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let first = PolicyChoice::Auto.first();
        // The seed is the number of the first volume.
        let tracker = Tracker::new(tracker_bytes(capacity), capacity.into(), first, 0);
        let cache = SwitchableCache::new(first, capacity);
        AutoCache { cache, tracker, counts: Counts::default() }
    }

    /// References a page. Returns true if it was resident.
    fn touch(&mut self, page: u64) -> bool {
        let hit = self.cache.touch(page);
        let Some(tracker) = &mut self.tracker else { return hit };
        if let Some(kind) = tracker.reference(page, !hit) {
            self.cache.set_policy(kind);
            tracker.note_policy(kind);
        }
        hit
    }
}

impl Replace for AutoCache {
    fn run(&mut self, references: &[Reference], _numbers: &[u32]) {
        for reference in references {
            let hit = self.touch(reference.page);
            self.counts.count(reference, hit);
        }
    }

    fn counts(&self) -> Counts {
        Counts { evictions: self.cache.evictions(), ..self.counts }
    }

    fn check(&self) {
        self.cache.check();
    }
}
