//! The reference implementation of the Linux page cache, for caches far below 1 GiB.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, SlowGhosts, first_accepted, remove_value};
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct SlowLinux {
    active: Vec<Slot>,
    inactive: Vec<Slot>,
    referenced: BTreeSet<Slot>,
    ghosts: SlowGhosts,
}

impl ReferencePolicy for SlowLinux {
    fn insert(&mut self, slot: Slot, page: u64) {
        // The eviction itself advances the age by one.
        let distance = self.ghosts.take(page).map(|ticks| ticks + 1);
        if distance.is_some_and(|distance| distance <= self.active.len()) {
            self.active.push(slot);
            self.ghosts.tick(None);
        } else {
            self.inactive.push(slot);
        }
        self.referenced.insert(slot);
    }

    fn hit(&mut self, slot: Slot) {
        let is_first = self.referenced.insert(slot);
        if !is_first && remove_value(&mut self.inactive, &slot) {
            self.referenced.remove(&slot);
            self.active.push(slot);
            self.ghosts.tick(None);
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
        remove_value(&mut self.active, &slot);
        remove_value(&mut self.inactive, &slot);
        self.referenced.remove(&slot);
        if evicted {
            self.ghosts.insert(page, capacity);
        }
    }
}
