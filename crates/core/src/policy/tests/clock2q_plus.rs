//! The reference implementation of Clock2Q+: two queues of pages with their bits and times of
//! insertion.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, SlowGhostQueue};

struct Entry {
    slot: Slot,
    referenced: bool,
    arrival: usize,
}

#[derive(Default)]
pub(super) struct SlowClock2QPlus {
    small: Vec<Entry>,
    main: Vec<Entry>,
    ghosts: SlowGhostQueue,
    arrivals: usize,
    configured: usize,
    was_full: bool,
}

impl SlowClock2QPlus {
    fn capacity(&self) -> usize {
        self.configured.max(self.small.len() + self.main.len())
    }

    fn small_max(&self) -> usize {
        (self.capacity() / 10).max(1)
    }

    /// Searches one queue; a page whose bit is set moves to the new end of the main queue.
    fn search(&mut self, small: bool, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut position = 0;
        while budget > 0 {
            let queue = if small { &mut self.small } else { &mut self.main };
            let entry = queue.get(position)?;
            if entry.referenced {
                let entry = queue.remove(position);
                self.main.push(Entry { referenced: false, ..entry });
            } else if accept(entry.slot) {
                return Some(entry.slot);
            } else {
                budget -= 1;
                position += 1;
            }
        }
        None
    }
}

impl ReferencePolicy for SlowClock2QPlus {
    fn set_capacity(&mut self, pages: usize) {
        self.was_full &= pages <= self.configured;
        self.configured = pages;
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        let is_full = self.small.len() >= self.small_max();
        let main = self.ghosts.take(page) || (is_full && !self.was_full);
        self.arrivals += usize::from(!main);
        let entry = Entry { slot, referenced: false, arrival: self.arrivals };
        if main { &mut self.main } else { &mut self.small }.push(entry);
    }

    fn hit(&mut self, slot: Slot) {
        let (window, arrivals) = (self.small_max().div_ceil(2), self.arrivals);
        if let Some(entry) = self.main.iter_mut().find(|entry| entry.slot == slot) {
            entry.referenced = true;
        }
        if let Some(entry) = self.small.iter_mut().find(|entry| entry.slot == slot) {
            entry.referenced |= arrivals - entry.arrival >= window;
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.was_full = true;
        let small_first = self.main.is_empty() || self.small.len() >= self.small_max();
        self.search(small_first, accept).or_else(|| self.search(!small_first, accept))
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let capacity = self.capacity();
        let was_small = self.small.iter().any(|entry| entry.slot == slot);
        self.small.retain(|entry| entry.slot != slot);
        self.main.retain(|entry| entry.slot != slot);
        if evicted && was_small {
            self.ghosts.insert(page, (capacity - capacity / 10).max(1));
        }
    }
}
