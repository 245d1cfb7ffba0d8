//! The twin of SIEVE: a queue of slots with their bits, and the slot at the hand.

use super::{PASSED_OVER_MAX, Slot, Twin};

#[derive(Default)]
pub(super) struct Slow {
    queue: Vec<(Slot, bool)>,
    hand: Option<Slot>,
}

impl Slow {
    fn place(&self, slot: Option<Slot>) -> Option<usize> {
        self.queue.iter().position(|entry| Some(entry.0) == slot)
    }
}

impl Twin for Slow {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.queue.push((slot, false));
    }

    fn hit(&mut self, slot: Slot) {
        let place = self.place(Some(slot)).expect("resident");
        self.queue[place].1 = true;
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let len = self.queue.len();
        let start = self.place(self.hand).unwrap_or(0);
        let mut refused = Vec::new();
        // Twice round at most.
        for place in (start..start + len * 2).map(|place| place % len) {
            let (slot, visited) = self.queue[place];
            self.queue[place].1 = false;
            if visited {
                continue;
            }
            if accept(slot) {
                self.hand = Some(*refused.first().unwrap_or(&slot));
                return Some(slot);
            }
            refused.push(slot);
            if refused.len() == PASSED_OVER_MAX as usize {
                break;
            }
        }
        self.hand = refused.first().copied();
        None
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        let place = self.place(Some(slot)).expect("resident");
        if self.hand == Some(slot) {
            self.hand = self.queue.get(place + 1).map(|entry| entry.0);
        }
        self.queue.remove(place);
    }
}
