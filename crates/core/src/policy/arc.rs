//! ARC: recency against frequency, in a proportion that adapts to ghost hits.
//!
//! Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST '03, figure 4. T1
//! holds pages seen once recently, T2 those seen more often, both LRU lists; B1 and B2 hold the
//! ghosts of pages evicted from them. A miss on a page in B1 raises the target of T1, one on a page
//! in B2 lowers it, by the ratio of the ghost lists, which is not rounded, and by at least one. The
//! paper adapts before it replaces, and its replacement depends on the ghost list of the page, so
//! this policy uses [`Policy::on_miss`]. Ghosts are trimmed after the insertion of the page instead
//! of before, which gives the same lists. T1 and B1 hold at most as many pages as the cache, all
//! four twice as many: so with a full cache there is at most one ghost for each resident page.

use super::ghost_lists::GhostLists;
use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// Indices of the ghost lists.
const B1: usize = 0;
const B2: usize = 1;

/// The unit of the target: a fraction of a page, since the ratios that change it are seldom
/// integers.
const TARGET_UNIT: usize = 1 << 20;

/// ARC.
#[derive(Debug, Default)]
pub struct Arc {
    links: Links,
    t1: List,
    t2: List,
    is_t2: ChunkedArray<bool>,
    ghosts: GhostLists<2>,
    /// The target size of T1 in pages, times [`TARGET_UNIT`].
    target: usize,
    capacity: usize,
    /// The page that is about to be inserted, and the ghost list that it was in.
    pending: Option<(u64, Option<usize>)>,
}

impl Arc {
    /// Memory per resident page in bytes, ghosts included.
    pub(super) const BYTES: usize = Links::BYTES + 1 + GhostLists::<2>::BYTES;

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    /// Adapts the target to a page that is about to be inserted.
    fn adapt(&mut self, page: u64) {
        let found = self.ghosts.find(page);
        let (b1, b2) = (self.ghosts.len(B1), self.ghosts.len(B2));
        match found {
            Some(B1) => {
                let step = (b2 * TARGET_UNIT / b1.max(1)).max(TARGET_UNIT);
                self.target = (self.target + step).min(self.capacity() * TARGET_UNIT);
            }
            Some(_) => {
                let step = (b1 * TARGET_UNIT / b2.max(1)).max(TARGET_UNIT);
                self.target = self.target.saturating_sub(step);
            }
            None => {}
        }
        self.pending = Some((page, found));
    }

    fn is_pending(&self, page: u64) -> bool {
        self.pending.is_some_and(|(pending, _)| pending == page)
    }
}

impl Policy for Arc {
    fn on_capacity(&mut self, pages: usize) {
        self.capacity = pages;
        self.target = self.target.min(self.capacity() * TARGET_UNIT);
    }

    fn on_miss(&mut self, page: u64) {
        if !self.is_pending(page) {
            self.adapt(page);
        }
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        if !self.is_pending(page) {
            self.adapt(page);
        }
        self.pending = None;
        let is_t2 = self.ghosts.take(page).is_some();
        *self.is_t2.get_mut(slot) = is_t2;
        let list = if is_t2 { &mut self.t2 } else { &mut self.t1 };
        self.links.push_head(list, slot);
        let capacity = self.capacity();
        while self.t1.len() + self.ghosts.len(B1) > capacity && self.ghosts.len(B1) > 0 {
            self.ghosts.pop_oldest(B1);
        }
        while self.len() + self.ghosts.total() > capacity * 2 && self.ghosts.len(B2) > 0 {
            self.ghosts.pop_oldest(B2);
        }
    }

    fn on_hit(&mut self, slot: Slot) {
        let is_t2 = self.is_t2.get_mut(slot);
        if *is_t2 {
            self.links.move_to_head(&mut self.t2, slot);
        } else {
            *is_t2 = true;
            self.links.remove(&mut self.t1, slot);
            self.links.push_head(&mut self.t2, slot);
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let was_b2 = self.pending.is_some_and(|(_, found)| found == Some(B2));
        let t1 = self.t1.len() * TARGET_UNIT;
        let from_t1 = t1 > self.target || (was_b2 && t1 == self.target);
        let (first, second) = if from_t1 { (&self.t1, &self.t2) } else { (&self.t2, &self.t1) };
        self.links
            .find_oldest(first, &mut budget, accept)
            .or_else(|| self.links.find_oldest(second, &mut budget, accept))
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let is_t2 = *self.is_t2.get(slot);
        let list = if is_t2 { &mut self.t2 } else { &mut self.t1 };
        self.links.remove(list, slot);
        if evicted {
            self.ghosts.push(if is_t2 { B2 } else { B1 }, page);
        }
    }

    fn is_protected(&self, slot: Slot) -> bool {
        *self.is_t2.get(slot)
    }

    fn len(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    fn check(&self) {
        self.ghosts.check();
        for (list, is_t2) in [(&self.t1, false), (&self.t2, true)] {
            self.links.check(list);
            let in_right_list = |slot| *self.is_t2.get(slot) == is_t2;
            assert!(self.links.oldest_first(list).all(in_right_list), "a page in the wrong list");
        }
    }
}
