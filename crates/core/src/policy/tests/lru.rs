//! The reference implementation of LRU.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, first_accepted, move_to_end, remove_value};

#[derive(Default)]
pub(super) struct SlowLru(Vec<Slot>);

impl ReferencePolicy for SlowLru {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.0.push(slot);
    }

    fn hit(&mut self, slot: Slot) {
        move_to_end(&mut self.0, slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        first_accepted(&self.0, &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        remove_value(&mut self.0, &slot);
    }
}
