//! The twin of LRU.

use super::{PASSED_OVER_MAX, Slot, Twin, first_accepted, renew, take};

#[derive(Default)]
pub(super) struct Slow(Vec<Slot>);

impl Twin for Slow {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.0.push(slot);
    }

    fn hit(&mut self, slot: Slot) {
        renew(&mut self.0, slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        first_accepted(&self.0, &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        take(&mut self.0, &slot);
    }
}
