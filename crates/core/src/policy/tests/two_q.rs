//! The reference implementation of 2Q.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, first_accepted, move_to_end, remove_value};

#[derive(Default)]
pub(super) struct SlowTwoQ {
    a1in: Vec<Slot>,
    am: Vec<Slot>,
    a1out: Vec<u64>,
    configured: usize,
}

impl SlowTwoQ {
    fn capacity(&self) -> usize {
        self.configured.max(self.a1in.len() + self.am.len())
    }
}

impl ReferencePolicy for SlowTwoQ {
    fn set_capacity(&mut self, pages: usize) {
        self.configured = pages;
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        if remove_value(&mut self.a1out, &page) {
            self.am.push(slot);
        } else {
            self.a1in.push(slot);
        }
    }

    fn hit(&mut self, slot: Slot) {
        if self.am.contains(&slot) {
            move_to_end(&mut self.am, slot);
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let kin = (self.capacity() / 4).max(1);
        let (first, second) =
            if self.a1in.len() > kin { (&self.a1in, &self.am) } else { (&self.am, &self.a1in) };
        first_accepted(first.iter().chain(second), &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let kout = (self.capacity() / 2).max(1);
        remove_value(&mut self.am, &slot);
        if remove_value(&mut self.a1in, &slot) && evicted {
            self.a1out.push(page);
            while self.a1out.len() > kout {
                self.a1out.remove(0);
            }
        }
    }
}
