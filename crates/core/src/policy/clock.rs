//! CLOCK, or second chance: a queue in which referenced pages get another round.
//!
//! Corbato, "A paging experiment with the Multics system", MIT Project MAC, 1968. One reference bit
//! per page. The hand is the end of a queue: a page whose bit is set moves to the other end with
//! its bit cleared. A page that cannot be evicted is skipped and keeps its position. No ghosts.

use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// CLOCK with one bit.
#[derive(Debug, Default)]
pub struct Clock {
    links: Links,
    list: List,
    referenced: ChunkedArray<bool>,
}

impl Clock {
    /// Memory per resident page in bytes.
    pub(super) const BYTES: usize = Links::BYTES + 1;
}

impl Policy for Clock {
    fn on_insert(&mut self, slot: Slot, _page: u64) {
        *self.referenced.get_mut(slot) = false;
        self.links.push_head(&mut self.list, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        *self.referenced.get_mut(slot) = true;
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut slot = self.list.tail();
        while slot != NO_SLOT && budget > 0 {
            if std::mem::take(self.referenced.get_mut(slot)) {
                let newer = self.links.newer(slot);
                self.links.move_to_head(&mut self.list, slot);
                // The page is visited again at the end of the walk, if the walk gets that far.
                slot = if newer == NO_SLOT { slot } else { newer };
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
                slot = self.links.newer(slot);
            }
        }
        None
    }

    fn on_remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        self.links.remove(&mut self.list, slot);
    }

    fn len(&self) -> usize {
        self.list.len()
    }

    fn check(&self) {
        self.links.check(&self.list);
    }
}
