//! A small queue for new pages and a main queue: the common part of S3-FIFO and Clock2Q+, with the
//! ghosts of the small queue.
//!
//! The victim comes from the small queue when that holds its share of pages or more, otherwise from
//! the main queue. Until the first eviction, pages that the small queue cannot hold go to the main
//! queue: so a scan of a new cache fills it, and does not leave it with the last pages of the scan.
//! The policy decides the number of references that promote a page and their maximum.

use super::ghost_queue::GhostQueue;
use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Slot};
use crate::page::ChunkedArray;

/// The share of the small queue: one page in this many.
const SMALL_SHARE: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    count: u8,
    main: bool,
}

/// The two queues and the ghosts.
#[derive(Debug, Default)]
pub(super) struct SmallMain {
    links: Links,
    small: List,
    main: List,
    entries: ChunkedArray<Entry>,
    ghosts: GhostQueue,
    capacity: usize,
    /// True if the cache was full, so that a victim was searched, since the capacity grew last.
    was_full: bool,
}

impl SmallMain {
    /// Memory per resident page in bytes, ghosts included.
    pub(super) const BYTES: usize = Links::BYTES + size_of::<Entry>() + GhostQueue::BYTES;

    pub(super) fn set_capacity(&mut self, pages: usize) {
        self.was_full &= pages <= self.capacity;
        self.capacity = pages;
    }

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// Returns the target size of the small queue in pages.
    pub(super) fn small_max(&self) -> usize {
        (self.capacity() / SMALL_SHARE).max(1)
    }

    pub(super) fn is_main(&self, slot: Slot) -> bool {
        self.entries.get(slot).main
    }

    /// Inserts a page; returns true if it went to the main queue: because it had a ghost, or since
    /// the small queue is full and the cache is not.
    pub(super) fn insert(&mut self, slot: Slot, page: u64) -> bool {
        let main =
            self.ghosts.take(page) || (!self.was_full && self.small.len() >= self.small_max());
        *self.entries.get_mut(slot) = Entry { count: 0, main };
        let queue = if main { &mut self.main } else { &mut self.small };
        self.links.push_head(queue, slot);
        main
    }

    /// Counts a reference, up to `max_count`.
    #[inline]
    pub(super) fn count_reference(&mut self, slot: Slot, max_count: u8) {
        let entry = self.entries.find_mut(slot).expect("a resident page");
        // Most pages have reached the maximum already. Skipping the store then avoids taking the
        // cache line from other processors.
        if entry.count < max_count {
            entry.count += 1;
        }
    }

    /// Returns the page to evict, where `promote_at` references promote a page from the small queue
    /// to the main one. Each queue is searched with its own budget: a small queue full of dirty
    /// pages must not hide clean pages in the main one.
    pub(super) fn victim(
        &mut self,
        promote_at: u8,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        self.was_full = true;
        if self.main.len() == 0 || self.small.len() >= self.small_max() {
            self.victim_small(promote_at, accept).or_else(|| self.victim_main(accept))
        } else {
            self.victim_main(accept).or_else(|| self.victim_small(promote_at, accept))
        }
    }

    /// Returns the oldest page of the small queue that can be evicted; the search promotes pages
    /// with enough references to the main queue.
    fn victim_small(
        &mut self,
        promote_at: u8,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut slot = self.small.tail();
        while slot != NO_SLOT && budget > 0 {
            let newer = self.links.newer(slot);
            let entry = self.entries.get_mut(slot);
            if entry.count >= promote_at {
                *entry = Entry { count: 0, main: true };
                self.links.remove(&mut self.small, slot);
                self.links.push_head(&mut self.main, slot);
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
            }
            slot = newer;
        }
        None
    }

    /// Returns the oldest page of the main queue that can be evicted; pages with references left
    /// get another round.
    fn victim_main(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut slot = self.main.tail();
        while slot != NO_SLOT && budget > 0 {
            let newer = self.links.newer(slot);
            let entry = self.entries.get_mut(slot);
            if entry.count > 0 {
                entry.count -= 1;
                self.links.move_to_head(&mut self.main, slot);
                // The newest page is visited again at once, the others at the end of the walk.
                slot = if newer == NO_SLOT { slot } else { newer };
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
                slot = newer;
            }
        }
        None
    }

    pub(super) fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let capacity = self.capacity();
        let main = self.entries.get(slot).main;
        let queue = if main { &mut self.main } else { &mut self.small };
        self.links.remove(queue, slot);
        if evicted && !main {
            // As many ghosts as the main queue should hold pages.
            self.ghosts.insert(page, (capacity - capacity / SMALL_SHARE).max(1));
        }
    }

    /// Asserts that queues, pages and ghosts are consistent.
    pub(super) fn check(&self) {
        self.ghosts.check();
        for (queue, main) in [(&self.small, false), (&self.main, true)] {
            self.links.check(queue);
            let right = |slot| self.is_main(slot) == main;
            assert!(self.links.oldest_first(queue).all(right), "a page in the wrong queue");
        }
    }
}
