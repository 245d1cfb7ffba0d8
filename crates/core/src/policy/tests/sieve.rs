//! The reference implementation of SIEVE: a queue of slots with their bits, and the slot at the
//! hand.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot};

#[derive(Default)]
pub(super) struct SlowSieve {
    queue: Vec<(Slot, bool)>,
    hand: Option<Slot>,
}

impl SlowSieve {
    fn position(&self, slot: Option<Slot>) -> Option<usize> {
        self.queue.iter().position(|entry| Some(entry.0) == slot)
    }
}

impl ReferencePolicy for SlowSieve {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.queue.push((slot, false));
    }

    fn hit(&mut self, slot: Slot) {
        let position = self.position(Some(slot)).expect("resident");
        self.queue[position].1 = true;
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let len = self.queue.len();
        let start = self.position(self.hand).unwrap_or(0);
        let mut rejected = Vec::new();
        // At most two rounds.
        for position in (start..start + len * 2).map(|position| position % len) {
            let (slot, visited) = self.queue[position];
            self.queue[position].1 = false;
            if visited {
                continue;
            }
            if accept(slot) {
                self.hand = Some(*rejected.first().unwrap_or(&slot));
                return Some(slot);
            }
            rejected.push(slot);
            if rejected.len() == PASSED_OVER_MAX as usize {
                break;
            }
        }
        self.hand = rejected.first().copied();
        None
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        let position = self.position(Some(slot)).expect("resident");
        if self.hand == Some(slot) {
            self.hand = self.queue.get(position + 1).map(|entry| entry.0);
        }
        self.queue.remove(position);
    }
}
