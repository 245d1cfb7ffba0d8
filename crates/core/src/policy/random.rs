//! Random replacement: evicts any resident page, with equal probability.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal
//! 5(2), 1966 (RAND). The random numbers come from a stream with a fixed seed, so runs are
//! reproducible. If the chosen page cannot be evicted, the search continues with the following
//! pages in the array. No ghosts.

use super::{PASSED_OVER_MAX, Policy, Slot};
use crate::page::{ChunkedArray, mix};

/// The seed of every instance.
pub const SEED: u64 = 0x6c61_7264_6572;

/// Random replacement.
#[derive(Debug)]
pub struct Random {
    /// The resident pages, in no order.
    slots: Vec<Slot>,
    /// The position of each slot in `slots`.
    positions: ChunkedArray<u32>,
    /// The state of the stream: a Weyl sequence, scrambled by [`mix`].
    state: u64,
}

impl Default for Random {
    fn default() -> Self {
        Random { slots: Vec::new(), positions: ChunkedArray::default(), state: SEED }
    }
}

impl Random {
    /// Memory per resident page in bytes; the capacity of `slots` may be twice its length.
    pub(super) const BYTES: usize = 3 * size_of::<Slot>();

    /// Returns a number below `end`, which is at most 2^32.
    fn below(&mut self, end: usize) -> usize {
        // The increment is 2^64 over the golden ratio, as in SplitMix64 (Steele, Lea, Flood 2014).
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let scaled = ((mix(self.state) >> 32) * end as u64) >> 32;
        usize::try_from(scaled).expect("below a length")
    }

    fn position(&self, slot: Slot) -> usize {
        *self.positions.get(slot) as usize
    }
}

impl Policy for Random {
    fn on_insert(&mut self, slot: Slot, _page: u64) {
        *self.positions.get_mut(slot) = u32::try_from(self.slots.len()).expect("slots are u32");
        self.slots.push(slot);
    }

    fn on_hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        if self.slots.is_empty() {
            return None;
        }
        let start = self.below(self.slots.len());
        let (before, after) = self.slots.split_at(start);
        let candidates = after.iter().chain(before).take(PASSED_OVER_MAX as usize);
        candidates.copied().find(|&slot| accept(slot))
    }

    fn on_remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        let position = self.position(slot);
        self.slots.swap_remove(position);
        if let Some(&moved) = self.slots.get(position) {
            *self.positions.get_mut(moved) = u32::try_from(position).expect("slots are u32");
        }
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    fn check(&self) {
        for (position, &slot) in self.slots.iter().enumerate() {
            assert_eq!(self.position(slot), position, "the place of slot {slot}");
        }
    }
}
