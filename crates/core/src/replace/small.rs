//! A small cache that replays what happened to a sample of the pages of a large one.

use super::Cache;
use super::find::{PageIndex, SlotIndex};
use crate::page_index::Hash;
use crate::policy::{Policy, PolicyKind, Slot};

/// An event of a page in the cache that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheEvent {
    /// A reference that missed.
    Miss,
    /// A reference that hit a page that a reference had brought in.
    Hit,
    /// A later reference that hit a page that read-ahead had brought in, next to a neighbor of this
    /// page. A cache that had evicted the page would probably read it ahead again.
    ReadAheadHit,
    /// The first reference to a page that read-ahead had brought in.
    FirstUse,
    /// Read-ahead brought the page in. No reference.
    ReadAhead,
}

/// A small cache under one policy, which replays events of another cache one at a time.
#[derive(Debug)]
pub(crate) struct SmallCache {
    cache: Cache<Box<dyn Policy>, PageIndex>,
    /// Slots whose page was read ahead and not referenced since. The policy does not receive the
    /// first reference, as in the engine. Empty without read-ahead.
    unused: Vec<bool>,
}

impl SmallCache {
    pub(crate) fn new(kind: PolicyKind, capacity: u32) -> Self {
        let cache = Cache::new(kind.build(), capacity, PageIndex::for_capacity(capacity));
        SmallCache { cache, unused: Vec::new() }
    }

    /// Returns the size in bytes per slot: the state of the policy, an entry of the index (16 to 32
    /// bytes), the page and a flag.
    pub(crate) fn bytes_per_slot(kind: PolicyKind) -> usize {
        kind.bytes_per_page() + 42
    }

    /// Replays an event. Returns false for a reference that misses.
    #[inline]
    pub(crate) fn replay(&mut self, page: u64, hash: Hash, event: CacheEvent) -> bool {
        let Cache { policy, slot_index, pages, .. } = &mut self.cache;
        if let Some(slot) = slot_index.slot(hash, page, pages) {
            let unused = self.unused.get_mut(slot as usize).is_some_and(std::mem::take);
            if event == CacheEvent::ReadAhead {
                // A cache with the page does not read it; the next use is still the first one.
                self.note_unused(slot, unused);
            } else if !unused {
                policy.on_hit(slot);
            }
            return true;
        }
        // Read-ahead brings the page in before the reference, if it does.
        let is_read_ahead = matches!(event, CacheEvent::ReadAhead | CacheEvent::ReadAheadHit);
        if !is_read_ahead {
            policy.on_miss(page);
        }
        let slot = self.cache.insert(page, hash);
        self.note_unused(slot, event == CacheEvent::ReadAhead);
        is_read_ahead
    }

    /// Returns true if pages were read ahead.
    pub(crate) fn has_read_ahead(&self) -> bool {
        !self.unused.is_empty()
    }

    pub(crate) fn slots(&self) -> u32 {
        self.cache.capacity
    }

    #[inline]
    fn note_unused(&mut self, slot: Slot, unused: bool) {
        let slot = slot as usize;
        if let Some(flag) = self.unused.get_mut(slot) {
            *flag = unused;
        } else if unused {
            self.unused.resize(self.cache.capacity as usize, false);
            self.unused[slot] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(cache: &mut SmallCache, events: &[(u64, CacheEvent)]) -> Vec<bool> {
        let replayed =
            events.iter().map(|&(page, event)| cache.replay(page, Hash::of(page), event));
        replayed.collect()
    }

    #[test]
    fn references_hit_while_their_page_is_there() {
        let mut cache = SmallCache::new(PolicyKind::Lru, 2);
        let events = [1, 1, 2, 1, 3, 1, 2].map(|page| (page, CacheEvent::Miss));
        let hits = replay(&mut cache, &events);
        assert_eq!(hits, [false, true, false, true, false, true, false]);
    }

    #[test]
    fn the_first_use_hits_where_read_ahead_is_still_there() {
        let mut cache = SmallCache::new(PolicyKind::Lru, 2);
        let events = [
            (1, CacheEvent::ReadAhead),
            (2, CacheEvent::Miss),
            // No reference of the policy: page 1 stays the oldest.
            (1, CacheEvent::FirstUse),
            (3, CacheEvent::Miss),
            (1, CacheEvent::Hit),
        ];
        assert_eq!(replay(&mut cache, &events), [true, false, true, false, false]);
    }

    #[test]
    fn a_smaller_cache_reads_ahead_what_it_has_evicted() {
        let mut cache = SmallCache::new(PolicyKind::Lru, 1);
        let events = [
            (1, CacheEvent::ReadAhead),
            (2, CacheEvent::ReadAhead),
            (1, CacheEvent::FirstUse),
            (2, CacheEvent::ReadAheadHit),
            (1, CacheEvent::Hit),
        ];
        assert_eq!(replay(&mut cache, &events), [true, true, false, true, false]);
    }
}
