//! 2Q: keeps a page for long only if it is referenced again soon after its eviction.
//!
//! Johnson, Shasha, "2Q: a low overhead high performance buffer management replacement algorithm",
//! VLDB '94, the full version. New pages enter A1in, a FIFO of a quarter of the cache, where
//! references do not count; A1out, a FIFO of ghosts for half as many pages as the cache holds,
//! remembers the pages evicted from it. A page that is in A1out when it is inserted enters Am, an
//! LRU list. The victim comes from A1in while A1in exceeds its share, otherwise from Am. Both
//! shares are the paper's.

use super::ghost_lists::GhostLists;
use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// The share of A1in: one page in this many.
const IN_SHARE: usize = 4;
/// The size of A1out: one ghost per this many pages.
const OUT_SHARE: usize = 2;

/// The full version of 2Q.
#[derive(Debug, Default)]
pub struct TwoQ {
    links: Links,
    a1in: List,
    am: List,
    is_am: ChunkedArray<bool>,
    a1out: GhostLists<1>,
    capacity: usize,
}

impl TwoQ {
    /// Memory per resident page in bytes, ghosts included.
    pub(super) const BYTES: usize = Links::BYTES + 1 + GhostLists::<1>::BYTES / OUT_SHARE;

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }
}

impl Policy for TwoQ {
    fn on_capacity(&mut self, pages: usize) {
        self.capacity = pages;
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        let is_am = self.a1out.take(page).is_some();
        *self.is_am.get_mut(slot) = is_am;
        let list = if is_am { &mut self.am } else { &mut self.a1in };
        self.links.push_head(list, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        if *self.is_am.get(slot) {
            self.links.move_to_head(&mut self.am, slot);
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let from_a1in = self.a1in.len() > (self.capacity() / IN_SHARE).max(1);
        let (first, second) =
            if from_a1in { (&self.a1in, &self.am) } else { (&self.am, &self.a1in) };
        self.links
            .find_oldest(first, &mut budget, accept)
            .or_else(|| self.links.find_oldest(second, &mut budget, accept))
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let ghosts = (self.capacity() / OUT_SHARE).max(1);
        let is_am = *self.is_am.get(slot);
        let list = if is_am { &mut self.am } else { &mut self.a1in };
        self.links.remove(list, slot);
        if evicted && !is_am {
            self.a1out.push(0, page);
            while self.a1out.total() > ghosts {
                self.a1out.pop_oldest(0);
            }
        }
    }

    fn is_protected(&self, slot: Slot) -> bool {
        *self.is_am.get(slot)
    }

    fn len(&self) -> usize {
        self.a1in.len() + self.am.len()
    }

    fn check(&self) {
        self.a1out.check();
        for (list, is_am) in [(&self.a1in, false), (&self.am, true)] {
            self.links.check(list);
            let right = |slot| *self.is_am.get(slot) == is_am;
            assert!(self.links.oldest_first(list).all(right), "a page in the wrong queue");
        }
    }
}
