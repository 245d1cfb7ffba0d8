//! The reference implementation of random replacement: the array of pages, and the same random
//! stream.

use super::super::SEED;
use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, mix};

#[derive(Default)]
pub(super) struct SlowRandom {
    slots: Vec<Slot>,
    draws: u64,
}

impl ReferencePolicy for SlowRandom {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.slots.push(slot);
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        if self.slots.is_empty() {
            return None;
        }
        self.draws += 1;
        let draw = mix(SEED.wrapping_add(self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 32;
        let mut order = self.slots.clone();
        let start = (draw * order.len() as u64) >> 32;
        order.rotate_left(usize::try_from(start).unwrap());
        order.into_iter().take(PASSED_OVER_MAX as usize).find(|&slot| accept(slot))
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        let last = self.slots.pop().expect("a page");
        if last != slot {
            let position = self.slots.iter().position(|&other| other == slot).expect("resident");
            self.slots[position] = last;
        }
    }
}
