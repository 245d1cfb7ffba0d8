//! SIEVE: a queue with a moving hand, in which referenced pages keep their position.
//!
//! Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU: an efficient turn-key eviction
//! algorithm for web caches", NSDI '24. One bit per page. The hand moves from the oldest page
//! towards the newest and starts again at the oldest; it clears the bits that are set and stops at
//! the first page whose bit is not set. The hand stays at a page that cannot be evicted, so that
//! the next search starts there. No parameters, no ghosts.

use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// SIEVE.
#[derive(Debug)]
pub struct Sieve {
    links: Links,
    list: List,
    visited: ChunkedArray<bool>,
    /// The page to visit next; [`NO_SLOT`] means the oldest one.
    hand: Slot,
}

impl Default for Sieve {
    fn default() -> Self {
        Sieve {
            links: Links::default(),
            list: List::default(),
            visited: ChunkedArray::default(),
            hand: NO_SLOT,
        }
    }
}

impl Sieve {
    /// Memory per resident page in bytes.
    pub(super) const BYTES: usize = Links::BYTES + 1;
}

impl Policy for Sieve {
    fn on_insert(&mut self, slot: Slot, _page: u64) {
        *self.visited.get_mut(slot) = false;
        self.links.push_head(&mut self.list, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        *self.visited.get_mut(slot) = true;
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut refused = NO_SLOT;
        let mut slot = self.hand;
        // The first round clears the bits, the second finds a page.
        for _ in 0..self.list.len() * 2 {
            if slot == NO_SLOT {
                slot = self.list.tail();
            }
            if std::mem::take(self.visited.get_mut(slot)) {
                slot = self.links.newer(slot);
                continue;
            }
            if accept(slot) {
                self.hand = if refused == NO_SLOT { slot } else { refused };
                return Some(slot);
            }
            if refused == NO_SLOT {
                refused = slot;
            }
            budget -= 1;
            if budget == 0 {
                break;
            }
            slot = self.links.newer(slot);
        }
        self.hand = refused;
        None
    }

    fn on_remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        if self.hand == slot {
            self.hand = self.links.newer(slot);
        }
        self.links.remove(&mut self.list, slot);
    }

    fn len(&self) -> usize {
        self.list.len()
    }

    fn check(&self) {
        self.links.check(&self.list);
        let held = self.links.oldest_first(&self.list).any(|slot| slot == self.hand);
        assert!(held || self.hand == NO_SLOT, "the hand points at no resident page");
    }
}
