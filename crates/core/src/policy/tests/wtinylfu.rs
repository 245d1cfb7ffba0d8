//! The reference implementation of W-TinyLFU, with a sketch of plain counters.

use super::{
    PASSED_OVER_MAX, ReferencePolicy, Slot, fingerprint, first_accepted, mix, move_to_end,
    remove_value,
};
use std::collections::BTreeMap;

/// Counters by block, row and number; 32 in each row.
#[derive(Default)]
struct SlowSketch {
    counters: BTreeMap<(u64, u64, u64), u8>,
    blocks: u64,
    additions: usize,
    capacity: usize,
}

impl SlowSketch {
    fn fit(&mut self, capacity: usize) {
        self.capacity = capacity;
        let wanted = capacity.div_ceil(8).max(1) as u64;
        if self.blocks < wanted || self.blocks > wanted * 2 {
            *self = SlowSketch { blocks: wanted, capacity, ..SlowSketch::default() };
        }
    }

    fn keys(&self, page: u64) -> [(u64, u64, u64); 4] {
        let hash = u64::from(fingerprint(page));
        let block = (hash * self.blocks) >> 32;
        [0, 1, 2, 3].map(|row| (block, row, mix(hash) >> (8 * row) & 31))
    }

    fn add(&mut self, page: u64) {
        if self.blocks == 0 {
            return;
        }
        let before = self.counters.clone();
        for key in self.keys(page) {
            let counter = self.counters.entry(key).or_default();
            *counter = (*counter + 1).min(15);
        }
        self.additions += usize::from(self.counters != before);
        if self.additions >= self.capacity * 10 {
            self.counters.values_mut().for_each(|counter| *counter /= 2);
            self.additions /= 2;
        }
    }

    fn estimate(&self, page: u64) -> u8 {
        let count = |key| self.counters.get(&key).copied().unwrap_or(0);
        self.keys(page).map(count).into_iter().min().unwrap()
    }
}

#[derive(Default)]
pub(super) struct SlowWTinyLfu {
    window: Vec<Slot>,
    probation: Vec<Slot>,
    protected: Vec<Slot>,
    pages: BTreeMap<Slot, u64>,
    sketch: SlowSketch,
    configured: usize,
    was_full: bool,
    pending: Option<u64>,
}

impl SlowWTinyLfu {
    fn capacity(&self) -> usize {
        self.configured.max(self.pages.len())
    }

    fn window_max(&self) -> usize {
        (self.capacity() / 100).max(1)
    }

    /// Returns the sizes of the segments of the main cache.
    fn main_sizes(&self) -> [usize; 2] {
        let main = self.capacity() - self.window_max();
        [main - main * 4 / 5, main * 4 / 5]
    }

    fn count_pending(&mut self, page: u64) {
        if self.pending != Some(page) {
            self.pending = Some(page);
            self.sketch.add(page);
        }
    }

    /// Returns the pages of the main cache, the next victim first.
    fn main(&self) -> Vec<Slot> {
        [&self.probation[..], &self.protected[..]].concat()
    }
}

impl ReferencePolicy for SlowWTinyLfu {
    fn set_capacity(&mut self, pages: usize) {
        self.was_full &= pages <= self.configured;
        self.configured = pages;
        self.sketch.fit(self.capacity());
    }

    fn miss(&mut self, page: u64) {
        self.count_pending(page);
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        self.count_pending(page);
        self.pending = None;
        self.pages.insert(slot, page);
        self.window.push(slot);
        if self.pages.len() > self.sketch.capacity {
            self.sketch.fit(self.pages.len() * 2);
        }
        let [probation, protected] = self.main_sizes();
        for _ in 0..64 {
            if self.was_full && self.window.len() > self.window_max() {
                let oldest = self.window.remove(0);
                if self.probation.len() >= probation && self.protected.len() < protected {
                    self.protected.push(oldest);
                } else {
                    self.probation.push(oldest);
                }
            }
        }
    }

    fn hit(&mut self, slot: Slot) {
        if self.window.contains(&slot) {
            move_to_end(&mut self.window, slot);
            return;
        }
        self.sketch.add(self.pages[&slot]);
        if self.protected.contains(&slot) {
            move_to_end(&mut self.protected, slot);
        } else {
            remove_value(&mut self.probation, &slot);
            self.protected.push(slot);
            while self.protected.len() > self.main_sizes()[1] {
                self.probation.push(self.protected.remove(0));
            }
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.was_full = true;
        let main = self.main();
        let count = |slot: &Slot| self.sketch.estimate(self.pages[slot]);
        let window_is_full = self.window.len() >= self.window_max();
        let loses = |main: &Slot| window_is_full && count(&self.window[0]) <= count(main);
        let window_first = main.first().is_none_or(loses);
        let (first, second) =
            if window_first { (&self.window, &main) } else { (&main, &self.window) };
        first_accepted(first.iter().chain(second), &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        remove_value(&mut self.window, &slot);
        remove_value(&mut self.probation, &slot);
        remove_value(&mut self.protected, &slot);
        self.pages.remove(&slot);
    }
}
