//! The twin of CLOCK: a queue of slots with their bits.

use super::{PASSED_OVER_MAX, Slot, Twin};

#[derive(Default)]
pub(super) struct Slow(Vec<(Slot, bool)>);

impl Twin for Slow {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.0.push((slot, false));
    }

    fn hit(&mut self, slot: Slot) {
        self.0.iter_mut().find(|entry| entry.0 == slot).expect("resident").1 = true;
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut refused = 0;
        while let Some(&(slot, referenced)) = self.0.get(refused) {
            if referenced {
                self.0.remove(refused);
                self.0.push((slot, false));
            } else if accept(slot) {
                return Some(slot);
            } else {
                refused += 1;
                if refused == PASSED_OVER_MAX as usize {
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
