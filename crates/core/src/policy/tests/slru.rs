//! The twin of segmented LRU.

use super::{PASSED_OVER_MAX, Slot, Twin, first_accepted, renew, take};

#[derive(Default)]
pub(super) struct Slow {
    probation: Vec<Slot>,
    protected: Vec<Slot>,
    told: usize,
}

impl Twin for Slow {
    fn tell_capacity(&mut self, pages: usize) {
        self.told = pages;
    }

    fn insert(&mut self, slot: Slot, _page: u64) {
        self.probation.push(slot);
    }

    fn hit(&mut self, slot: Slot) {
        let capacity = self.told.max(self.probation.len() + self.protected.len());
        if self.protected.contains(&slot) {
            renew(&mut self.protected, slot);
            return;
        }
        take(&mut self.probation, &slot);
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
        take(&mut self.probation, &slot);
        take(&mut self.protected, &slot);
    }
}
