//! The page cache of Linux: an active and an inactive list, and refaults measured by distance.
//!
//! After `mm/swap.c`, `mm/vmscan.c` and `mm/workingset.c` of Linux 6, for file pages that are read
//! and not mapped. A page enters the inactive list as referenced once; the second reference
//! activates it. A reference to an active page sets its bit, and no more. While the inactive list
//! is low, which is when its pages times the ratio are fewer than the active ones, the oldest
//! active page becomes inactive; it keeps its bit, so one reference activates it again if it had
//! one. The ratio is the integer root of ten times the GiB on both lists, and 1 below 1 GiB, with
//! pages of 4 KiB. The oldest inactive page is evicted.
//!
//! An evicted page leaves a ghost with the age of the lists (evictions and activations so far). If
//! the page is referenced again when this age has grown by at most the number of active pages, it
//! is active at once.
//!
//! Not modeled: reclaim in batches of 32, deactivation because of refaults, mapped and executable
//! pages, several generations (MGLRU). Ghosts: as many as the cache has pages.

use super::ghost::Ghosts;
use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// Pages of 4 KiB in a GiB, as a power of two.
const GIB_PAGES_LOG2: u32 = 18;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    active: bool,
    referenced: bool,
}

/// Returns the maximum ratio of active to inactive pages in a cache of `pages` pages: 1 below 1
/// GiB, else the square root of ten times the size in GiB (`inactive_is_low` in `mm/vmscan.c`).
fn inactive_ratio(pages: usize) -> usize {
    let gib = pages >> GIB_PAGES_LOG2;
    if gib > 0 { (gib * 10).isqrt() } else { 1 }
}

/// An active and an inactive list, with refault distance.
#[derive(Debug, Default)]
pub struct Linux {
    links: Links,
    active: List,
    inactive: List,
    entries: ChunkedArray<Entry>,
    ghosts: Ghosts,
}

impl Linux {
    /// Memory per resident page in bytes, ghosts included.
    pub(super) const BYTES: usize = Links::BYTES + size_of::<Entry>() + Ghosts::BYTES;

    fn inactive_is_low(&self) -> bool {
        self.inactive.len() * inactive_ratio(self.len()) < self.active.len()
    }
}

impl Policy for Linux {
    fn on_insert(&mut self, slot: Slot, page: u64) {
        let distance = self.ghosts.take(page).map(|age| age as usize + 1);
        let active = distance.is_some_and(|distance| distance <= self.active.len());
        if active {
            self.ghosts.advance();
        }
        *self.entries.get_mut(slot) = Entry { active, referenced: true };
        let list = if active { &mut self.active } else { &mut self.inactive };
        self.links.push_head(list, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        let entry = self.entries.get_mut(slot);
        if entry.active || !entry.referenced {
            entry.referenced = true;
            return;
        }
        *entry = Entry { active: true, referenced: false };
        self.links.remove(&mut self.inactive, slot);
        self.links.push_head(&mut self.active, slot);
        self.ghosts.advance();
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        while self.inactive_is_low()
            && let Some(slot) = self.links.pop_tail(&mut self.active)
        {
            self.entries.get_mut(slot).active = false;
            self.links.push_head(&mut self.inactive, slot);
        }
        let mut budget = PASSED_OVER_MAX;
        self.links
            .find_oldest(&self.inactive, &mut budget, accept)
            .or_else(|| self.links.find_oldest(&self.active, &mut budget, accept))
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let capacity = self.len();
        let active = self.entries.get(slot).active;
        let list = if active { &mut self.active } else { &mut self.inactive };
        self.links.remove(list, slot);
        if evicted {
            self.ghosts.insert(page, capacity);
        }
    }

    fn len(&self) -> usize {
        self.active.len() + self.inactive.len()
    }

    fn check(&self) {
        self.ghosts.check();
        for (list, active) in [(&self.active, true), (&self.inactive, false)] {
            self.links.check(list);
            let right = |slot| self.entries.get(slot).active == active;
            assert!(self.links.oldest_first(list).all(right), "a page in the wrong list");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the comment on `inactive_is_low` in `mm/vmscan.c`.
    #[test]
    fn the_ratio_of_inactive_pages_is_that_of_the_kernel() {
        let ratio = |gib: usize| inactive_ratio(gib << GIB_PAGES_LOG2);
        assert_eq!([1, 10, 100, 1024, 10_240].map(ratio), [3, 10, 31, 101, 320]);
        assert_eq!(inactive_ratio((1 << GIB_PAGES_LOG2) - 1), 1);
    }
}
