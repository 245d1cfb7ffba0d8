//! The reference implementation of segmented LRU.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, first_accepted, move_to_end, remove_value};

#[derive(Default)]
pub(super) struct SlowSlru {
    segments: [Vec<Slot>; 4],
    configured: usize,
}

impl SlowSlru {
    fn len(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }
}

impl ReferencePolicy for SlowSlru {
    fn set_capacity(&mut self, pages: usize) {
        self.configured = pages;
    }

    fn insert(&mut self, slot: Slot, _page: u64) {
        let quarter = self.configured.max(self.len() + 1) / 4;
        let segment = self.segments.iter().position(|segment| segment.len() < quarter);
        self.segments[segment.unwrap_or(0)].push(slot);
    }

    fn hit(&mut self, slot: Slot) {
        let quarter = self.configured.max(self.len()) / 4;
        let segment = self.segments.iter().position(|segment| segment.contains(&slot)).unwrap();
        if segment == 3 {
            move_to_end(&mut self.segments[3], slot);
            return;
        }
        remove_value(&mut self.segments[segment], &slot);
        self.segments[segment + 1].push(slot);
        for segment in (1..=segment + 1).rev() {
            while self.segments[segment].len() > quarter {
                let oldest = self.segments[segment].remove(0);
                self.segments[segment - 1].push(oldest);
            }
        }
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        first_accepted(self.segments.iter().flatten(), &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        for segment in &mut self.segments {
            remove_value(segment, &slot);
        }
    }
}
