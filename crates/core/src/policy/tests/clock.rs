//! The reference implementation of CLOCK: a queue of slots with their bits.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot};

#[derive(Default)]
pub(super) struct SlowClock(Vec<(Slot, bool)>);

impl ReferencePolicy for SlowClock {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.0.push((slot, false));
    }

    fn hit(&mut self, slot: Slot) {
        self.0.iter_mut().find(|entry| entry.0 == slot).expect("resident").1 = true;
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut rejected = 0;
        while let Some(&(slot, referenced)) = self.0.get(rejected) {
            if referenced {
                self.0.remove(rejected);
                self.0.push((slot, false));
            } else if accept(slot) {
                return Some(slot);
            } else {
                rejected += 1;
                if rejected == PASSED_OVER_MAX as usize {
                    break;
                }
            }
        }
        None
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        self.0.retain(|entry| entry.0 != slot);
    }
}
