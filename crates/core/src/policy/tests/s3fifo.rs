//! The reference implementation of S3-FIFO: two queues of slots and their counts.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, SlowGhostQueue};

#[derive(Default)]
pub(super) struct SlowS3Fifo {
    small: Vec<(Slot, u8)>,
    main: Vec<(Slot, u8)>,
    ghosts: SlowGhostQueue,
    configured: usize,
    was_full: bool,
}

impl SlowS3Fifo {
    fn capacity(&self) -> usize {
        self.configured.max(self.small.len() + self.main.len())
    }

    fn victim_small(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut position = 0;
        while position < self.small.len() && budget > 0 {
            let (slot, count) = self.small[position];
            if count > 1 {
                self.small.remove(position);
                self.main.push((slot, 0));
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
                position += 1;
            }
        }
        None
    }

    fn victim_main(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut position = 0;
        while position < self.main.len() && budget > 0 {
            let (slot, count) = self.main[position];
            if count > 0 {
                self.main.remove(position);
                self.main.push((slot, count - 1));
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
                position += 1;
            }
        }
        None
    }
}

impl ReferencePolicy for SlowS3Fifo {
    fn set_capacity(&mut self, pages: usize) {
        self.was_full &= pages <= self.configured;
        self.configured = pages;
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        let is_full = self.small.len() >= (self.capacity() / 10).max(1);
        if self.ghosts.take(page) || (is_full && !self.was_full) {
            self.main.push((slot, 0));
        } else {
            self.small.push((slot, 0));
        }
    }

    fn hit(&mut self, slot: Slot) {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        let (_, count) = all.find(|(other, _)| *other == slot).expect("resident");
        *count = (*count + 1).min(3);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.was_full = true;
        if self.main.is_empty() || self.small.len() >= (self.capacity() / 10).max(1) {
            self.victim_small(accept).or_else(|| self.victim_main(accept))
        } else {
            self.victim_main(accept).or_else(|| self.victim_small(accept))
        }
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let capacity = self.capacity();
        let was_small = self.small.iter().any(|&(other, _)| other == slot);
        self.small.retain(|&(other, _)| other != slot);
        self.main.retain(|&(other, _)| other != slot);
        if evicted && was_small {
            self.ghosts.insert(page, (capacity - capacity / 10).max(1));
        }
    }
}
