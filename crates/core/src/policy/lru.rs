//! Least recently used: the page that was referenced longest ago goes first.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966, describes it among others.

use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, Slot};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    list: List,
}

impl Lru {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Lru { links: Links::default(), list: List::new() }
    }
}

impl Default for Lru {
    fn default() -> Self {
        Lru::new()
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn on_insert(&mut self, slot: Slot, _page: u64) {
        self.links.push_head(&mut self.list, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        self.links.remove(&mut self.list, slot);
        self.links.push_head(&mut self.list, slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut slot = self.list.tail();
        for _ in 0..PASSED_OVER_MAX {
            if slot == NO_SLOT {
                return None;
            }
            if accept(slot) {
                return Some(slot);
            }
            slot = self.links.newer(slot);
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
