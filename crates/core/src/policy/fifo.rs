//! First in, first out: evicts the page that was inserted first, regardless of references.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal
//! 5(2), 1966. One list in the order of insertion; no parameters, no ghosts.

use super::list::{Links, List};
use super::{PASSED_OVER_MAX, Policy, Slot};

/// First in, first out.
#[derive(Debug, Default)]
pub struct Fifo {
    links: Links,
    list: List,
}

impl Fifo {
    /// Memory per resident page in bytes.
    pub(super) const BYTES: usize = Links::BYTES;
}

impl Policy for Fifo {
    fn on_insert(&mut self, slot: Slot, _page: u64) {
        self.links.push_head(&mut self.list, slot);
    }

    fn on_hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        self.links.find_oldest(&self.list, &mut budget, accept)
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
