//! The twin of the page cache of Linux, for caches far below 1 GiB.

use super::{PASSED_OVER_MAX, Slot, SlowGhosts, Twin, first_accepted, take};
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Slow {
    active: Vec<Slot>,
    inactive: Vec<Slot>,
    referenced: BTreeSet<Slot>,
    ghosts: SlowGhosts,
}

impl Twin for Slow {
    fn insert(&mut self, slot: Slot, page: u64) {
        // The age goes on by one with the eviction itself.
        let distance = self.ghosts.take(page).map(|turns| turns + 1);
        if distance.is_some_and(|distance| distance <= self.active.len()) {
            self.active.push(slot);
            self.ghosts.turn(None);
        } else {
            self.inactive.push(slot);
        }
        self.referenced.insert(slot);
    }

    fn hit(&mut self, slot: Slot) {
        let is_first = self.referenced.insert(slot);
        if !is_first && take(&mut self.inactive, &slot) {
            self.referenced.remove(&slot);
            self.active.push(slot);
            self.ghosts.turn(None);
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        while self.inactive.len() < self.active.len() {
            self.inactive.push(self.active.remove(0));
        }
        let order = self.inactive.iter().chain(&self.active);
        first_accepted(order, &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let capacity = self.active.len() + self.inactive.len();
        take(&mut self.active, &slot);
        take(&mut self.inactive, &slot);
        self.referenced.remove(&slot);
        if evicted {
            self.ghosts.remember(page, capacity);
        }
    }
}
