//! The reference implementation of segmented LRU.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, first_accepted, move_to_end, remove_value};

#[derive(Default)]
pub(super) struct SlowSlru {
    probation: Vec<Slot>,
    protected: Vec<Slot>,
    configured: usize,
}

impl ReferencePolicy for SlowSlru {
    fn set_capacity(&mut self, pages: usize) {
        self.configured = pages;
    }

    fn insert(&mut self, slot: Slot, _page: u64) {
        self.probation.push(slot);
    }

    fn hit(&mut self, slot: Slot) {
        let capacity = self.configured.max(self.probation.len() + self.protected.len());
        if self.protected.contains(&slot) {
            move_to_end(&mut self.protected, slot);
            return;
        }
        remove_value(&mut self.probation, &slot);
        self.protected.push(slot);
        while self.protected.len() > capacity * 4 / 5 {
            self.probation.push(self.protected.remove(0));
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let order = self.probation.iter().chain(&self.protected);
        first_accepted(order, &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        remove_value(&mut self.probation, &slot);
        remove_value(&mut self.protected, &slot);
    }
}
