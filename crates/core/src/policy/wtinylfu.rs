//! W-TinyLFU: admits a page if it was referenced more often than the page that it would replace.
//!
//! Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM
//! Transactions on Storage 13(4), 2017. New pages enter a window, an LRU list of one page in a
//! hundred. The page that leaves the full window is a candidate for the main cache, a segmented LRU
//! with four fifths protected. If the sketch has counted more references to it than to the oldest
//! page of the main cache, it is admitted and that page is evicted; otherwise the candidate is
//! evicted. The window's share is fixed; the candidate always loses a tie. There are no ghosts, but
//! the sketch counts pages that are not resident: 16 counters of 4 bits for each page of the cache.
//!
//! Two details are those of libCacheSim. References to a page of the window are not counted: they
//! follow soon after the first one and say little about later ones. Until the first eviction the
//! window holds all pages; then its oldest pages fill the main cache, protected segment included.

use super::index::fingerprint;
use super::list::{Links, List};
use super::sketch::Sketch;
use super::slru::Segments;
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// The share of the window: one page in this many, and at least one.
const WINDOW_SHARE: usize = 100;
/// The protected segment's share of the main cache, as a fraction.
const PROTECTED_SHARE: (usize, usize) = (4, 5);
/// The maximum number of pages that one insertion moves from the window to the main cache.
const MOVED_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    fingerprint: u32,
    in_window: bool,
}

/// W-TinyLFU with a window of 1 %.
#[derive(Debug, Default)]
pub struct WTinyLfu {
    links: Links,
    window: List,
    main: Segments<2>,
    entries: ChunkedArray<Entry>,
    sketch: Sketch,
    capacity: usize,
    /// True if the cache was full, so that a victim was searched, since the capacity grew last.
    was_full: bool,
    /// The page that is about to be inserted and has been counted.
    pending: Option<u64>,
}

impl WTinyLfu {
    /// Memory per resident page in bytes, the sketch included.
    pub(super) const BYTES: usize =
        Links::BYTES + size_of::<Entry>() + Segments::<2>::BYTES + Sketch::BYTES;

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    fn window_max(&self) -> usize {
        (self.capacity() / WINDOW_SHARE).max(1)
    }

    fn fit_main(&mut self) {
        let main = self.capacity() - self.window_max();
        let protected = main * PROTECTED_SHARE.0 / PROTECTED_SHARE.1;
        self.main.set_sizes([main - protected, protected]);
    }

    fn count_pending(&mut self, page: u64) {
        if self.pending != Some(page) {
            self.pending = Some(page);
            self.sketch.add(fingerprint(page));
        }
    }

    /// Returns true if the oldest page of the window was referenced more often than that of the
    /// main cache.
    fn candidate_wins(&self) -> bool {
        let count = |slot| self.sketch.estimate(self.entries.get(slot).fingerprint);
        count(self.window.tail()) > count(self.main.oldest())
    }
}

impl Policy for WTinyLfu {
    fn on_capacity(&mut self, pages: usize) {
        self.was_full &= pages <= self.capacity;
        self.capacity = pages;
        self.sketch.fit(self.capacity());
    }

    fn on_miss(&mut self, page: u64) {
        self.count_pending(page);
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        self.count_pending(page);
        self.pending = None;
        *self.entries.get_mut(slot) = Entry { fingerprint: fingerprint(page), in_window: true };
        self.links.push_head(&mut self.window, slot);
        if self.len() > self.sketch.capacity() {
            // There are more pages than the configured capacity.
            self.sketch.fit(self.len() * 2);
        }
        self.fit_main();
        let window_max = if self.was_full { self.window_max() } else { usize::MAX };
        for _ in 0..self.window.len().saturating_sub(window_max).min(MOVED_MAX) {
            let oldest = self.links.pop_tail(&mut self.window).expect("the window is too long");
            self.entries.get_mut(oldest).in_window = false;
            self.main.insert(&mut self.links, oldest);
        }
    }

    fn on_hit(&mut self, slot: Slot) {
        let Entry { fingerprint, in_window } = *self.entries.get(slot);
        if in_window {
            self.links.move_to_head(&mut self.window, slot);
        } else {
            self.sketch.add(fingerprint);
            self.fit_main();
            self.main.hit(&mut self.links, slot);
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.was_full = true;
        let mut budget = PASSED_OVER_MAX;
        let window_first = self.main.oldest() == NO_SLOT
            || (self.window.len() >= self.window_max() && !self.candidate_wins());
        if window_first {
            self.links
                .find_oldest(&self.window, &mut budget, accept)
                .or_else(|| self.main.victim(&self.links, &mut budget, accept))
        } else {
            // The candidate moves to the main cache when the new page pushes it out of the window.
            self.main
                .victim(&self.links, &mut budget, accept)
                .or_else(|| self.links.find_oldest(&self.window, &mut budget, accept))
        }
    }

    fn on_remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        if self.entries.get(slot).in_window {
            self.links.remove(&mut self.window, slot);
        } else {
            self.main.remove(&mut self.links, slot);
        }
    }

    fn len(&self) -> usize {
        self.window.len() + self.main.len()
    }

    fn check(&self) {
        self.links.check(&self.window);
        self.main.check(&self.links);
        let in_window = |slot| self.entries.get(slot).in_window;
        assert!(self.links.oldest_first(&self.window).all(in_window), "not of the window");
        assert!(self.main.slots(&self.links).all(|slot| !in_window(slot)), "of the window");
    }
}
