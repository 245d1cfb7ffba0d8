//! ARC: recency against frequency, in a proportion that the ghosts teach.
//!
//! Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST '03, figure 4. T1
//! holds pages seen once lately, T2 those seen more often, both LRU lists; B1 and B2 remember what
//! left them. A miss whose page is in B1 raises the target of T1, one in B2 lowers it, by the ratio
//! of the ghost lists, which is not rounded, and by one at least. The paper adapts before it
//! replaces and lets the replacement depend on where the page was, so [`Policy::on_miss`] matters
//! here. Ghosts are trimmed after the page came in instead of before, which leaves the same lists.
//! T1 and B1 hold at most as many pages as the cache, all four twice as many: so with a full cache
//! there is at most one ghost for each resident page.

use super::ghost_lists::GhostLists;
use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::Chunked;

/// The ghost lists, by number.
const B1: usize = 0;
const B2: usize = 1;

/// The unit of the target: a fraction of a page, since the ratios that move it are seldom whole.
const ONE: usize = 1 << 20;

/// ARC.
#[derive(Debug, Default)]
pub struct Arc {
    links: Links,
    t1: List,
    t2: List,
    is_t2: Chunked<bool>,
    ghosts: GhostLists<2>,
    /// How many pages T1 should hold, times [`ONE`].
    target: usize,
    capacity: usize,
    /// The page that is about to come, and the ghost list that it was in.
    coming: Option<(u64, Option<usize>)>,
}

impl Arc {
    /// Bytes for each resident page, ghosts included.
    pub(super) const BYTES: usize = Links::BYTES + 1 + GhostLists::<2>::BYTES;

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    /// Learns from the page that is about to come.
    fn adapt(&mut self, page: u64) {
        let found = self.ghosts.find(page);
        let (b1, b2) = (self.ghosts.len(B1), self.ghosts.len(B2));
        match found {
            Some(B1) => {
                let step = (b2 * ONE / b1.max(1)).max(ONE);
                self.target = (self.target + step).min(self.capacity() * ONE);
            }
            Some(_) => {
                let step = (b1 * ONE / b2.max(1)).max(ONE);
                self.target = self.target.saturating_sub(step);
            }
            None => {}
        }
        self.coming = Some((page, found));
    }

    fn is_coming(&self, page: u64) -> bool {
        self.coming.is_some_and(|(coming, _)| coming == page)
    }
}

impl Policy for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    fn on_capacity(&mut self, pages: usize) {
        self.capacity = pages;
        self.target = self.target.min(self.capacity() * ONE);
    }

    fn on_miss(&mut self, page: u64) {
        if !self.is_coming(page) {
            self.adapt(page);
        }
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        if !self.is_coming(page) {
            self.adapt(page);
        }
        self.coming = None;
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
        let was_b2 = self.coming.is_some_and(|(_, found)| found == Some(B2));
        let t1 = self.t1.len() * ONE;
        let t1_is_over = t1 > self.target || (was_b2 && t1 == self.target);
        let (first, second) = if t1_is_over { (&self.t1, &self.t2) } else { (&self.t2, &self.t1) };
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
            let right = |slot| *self.is_t2.get(slot) == is_t2;
            assert!(self.links.oldest_first(list).all(right), "a page in the wrong list");
        }
    }
}
