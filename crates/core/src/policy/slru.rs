//! Segmented LRU: a page is protected after its second reference.
//!
//! Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE Computer
//! 27(3), 1994. Two LRU lists, the paper's two segments. A page enters the probationary segment and
//! moves to the protected one when it is referenced; pages that exceed the protected segment move
//! back to the new end of the probationary one. Victims are the oldest probationary pages. The
//! protected segment has four fifths of the cache, the share that Einziger et al. (see W-TinyLFU)
//! use. No ghosts.

use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// The protected segment's share of the cache, as a fraction.
pub(super) const PROTECTED_SHARE: (usize, usize) = (4, 5);

/// The two segments and their pages: also the main cache of W-TinyLFU.
#[derive(Debug, Default)]
pub(super) struct Segments {
    probation: List,
    protected: List,
    is_protected: ChunkedArray<bool>,
}

impl Segments {
    pub(super) fn len(&self) -> usize {
        self.probation.len() + self.protected.len()
    }

    pub(super) fn insert(&mut self, links: &mut Links, slot: Slot) {
        *self.is_protected.get_mut(slot) = false;
        links.push_head(&mut self.probation, slot);
    }

    /// Records a reference; at most `max_protected` pages stay protected.
    pub(super) fn hit(&mut self, links: &mut Links, slot: Slot, max_protected: usize) {
        let is_protected = self.is_protected.get_mut(slot);
        if *is_protected {
            links.move_to_head(&mut self.protected, slot);
            return;
        }
        *is_protected = true;
        links.remove(&mut self.probation, slot);
        links.push_head(&mut self.protected, slot);
        while self.protected.len() > max_protected
            && let Some(oldest) = links.pop_tail(&mut self.protected)
        {
            self.insert(links, oldest);
        }
    }

    /// Returns the oldest page in the order of eviction, even if it cannot be evicted now.
    pub(super) fn oldest(&self) -> Slot {
        if self.probation.len() > 0 { self.probation.tail() } else { self.protected.tail() }
    }

    pub(super) fn victim(
        &self,
        links: &Links,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        links
            .find_oldest(&self.probation, budget, accept)
            .or_else(|| links.find_oldest(&self.protected, budget, accept))
    }

    pub(super) fn remove(&mut self, links: &mut Links, slot: Slot) {
        let is_protected = *self.is_protected.get(slot);
        let list = if is_protected { &mut self.protected } else { &mut self.probation };
        links.remove(list, slot);
    }

    pub(super) fn slots<'a>(&'a self, links: &'a Links) -> impl Iterator<Item = Slot> + 'a {
        links.oldest_first(&self.probation).chain(links.oldest_first(&self.protected))
    }

    /// Asserts that the lists are consistent and agree with the pages.
    pub(super) fn check(&self, links: &Links) {
        for (list, is_protected) in [(&self.probation, false), (&self.protected, true)] {
            links.check(list);
            let right = |slot| *self.is_protected.get(slot) == is_protected;
            assert!(links.oldest_first(list).all(right), "a page in the wrong segment");
        }
    }
}

/// Segmented LRU.
#[derive(Debug, Default)]
pub struct Slru {
    links: Links,
    segments: Segments,
    capacity: usize,
}

impl Slru {
    /// Memory per resident page in bytes.
    pub(super) const BYTES: usize = Links::BYTES + 1;
}

impl Policy for Slru {
    fn on_capacity(&mut self, pages: usize) {
        self.capacity = pages;
    }

    fn on_insert(&mut self, slot: Slot, _page: u64) {
        self.segments.insert(&mut self.links, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        let capacity = self.capacity.max(self.len());
        let max_protected = capacity * PROTECTED_SHARE.0 / PROTECTED_SHARE.1;
        self.segments.hit(&mut self.links, slot, max_protected);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        self.segments.victim(&self.links, &mut budget, accept)
    }

    fn on_remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        self.segments.remove(&mut self.links, slot);
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn check(&self) {
        self.segments.check(&self.links);
    }
}
