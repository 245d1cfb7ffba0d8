//! Lookups of the slot of a page: by the page itself, or by a number that one index assigns for
//! all caches.
//!
//! Both prefetch a batch of references first. These loads are independent of each other, and the
//! lookups after them find the table entries in the processor's cache.

use super::Reference;
use crate::page_index::{Hash, Index};
use crate::policy::{NO_SLOT, Slot};

/// Number of references of a batch.
pub(super) const BATCH: usize = 32;

/// Initial number of slots of an index, unless the capacity is smaller.
const SLOTS_MIN: u32 = 1024;

/// Maps pages to slots.
pub(super) trait SlotIndex: Send + std::fmt::Debug {
    /// The key of a lookup.
    type Key: Copy + Default;

    /// Writes the keys of up to [`BATCH`] references to `keys`, and prefetches their entries.
    fn prefetch(&mut self, references: &[Reference], numbers: &[u32], keys: &mut [Self::Key]);
    /// Returns the slot of a page; `pages` has the page of each slot.
    fn slot(&self, key: Self::Key, page: u64, pages: &[u64]) -> Option<Slot>;
    /// Adds a page. A previous page of the slot has been removed.
    fn insert(&mut self, key: Self::Key, slot: Slot);
    /// Removes the page of a slot.
    fn remove(&mut self, slot: Slot, page: u64);
    /// Asserts that each slot is found by its page.
    fn check(&self, pages: &[u64]);
}

/// Index by page.
#[derive(Debug)]
pub(super) struct PageIndex {
    index: Index,
}

impl PageIndex {
    pub(super) fn for_capacity(capacity: u32) -> Self {
        PageIndex { index: Index::for_numbers(capacity.min(SLOTS_MIN) as usize) }
    }
}

impl SlotIndex for PageIndex {
    type Key = Hash;

    #[inline]
    fn prefetch(&mut self, references: &[Reference], _numbers: &[u32], keys: &mut [Hash]) {
        let mut touched = 0;
        for (reference, key) in references.iter().zip(keys) {
            *key = Hash::of(reference.page);
            touched ^= self.index.touch(*key);
        }
        // Without a use of the value the compiler would remove the loads.
        std::hint::black_box(touched);
    }

    #[inline]
    fn slot(&self, hash: Hash, page: u64, pages: &[u64]) -> Option<Slot> {
        self.index.find(hash, |slot| pages[slot as usize] == page)
    }

    #[inline]
    fn insert(&mut self, hash: Hash, slot: Slot) {
        self.index.insert(hash, slot);
    }

    #[inline]
    fn remove(&mut self, slot: Slot, page: u64) {
        self.index.remove(Hash::of(page), slot);
    }

    fn check(&self, pages: &[u64]) {
        for (slot, &page) in (0..).zip(pages) {
            assert_eq!(self.index.find(Hash::of(page), |found| found == slot), Some(slot));
        }
    }
}

/// Index by page number.
#[derive(Debug, Default)]
pub(super) struct NumberIndex {
    /// The slot of each page number.
    slots: Vec<Slot>,
    /// The page number of each slot.
    numbers: Vec<u32>,
}

impl SlotIndex for NumberIndex {
    type Key = u32;

    #[inline]
    fn prefetch(&mut self, references: &[Reference], numbers: &[u32], keys: &mut [u32]) {
        let numbers = &numbers[..references.len()];
        let end = numbers.iter().max().map_or(0, |&number| number as usize + 1);
        if end > self.slots.len() {
            self.slots.resize(end, NO_SLOT);
        }
        let mut touched = 0;
        for (&number, key) in numbers.iter().zip(keys) {
            *key = number;
            touched ^= self.slots[number as usize];
        }
        std::hint::black_box(touched);
    }

    #[inline]
    fn slot(&self, number: u32, _page: u64, _pages: &[u64]) -> Option<Slot> {
        let slot = self.slots[number as usize];
        (slot != NO_SLOT).then_some(slot)
    }

    #[inline]
    fn insert(&mut self, number: u32, slot: Slot) {
        self.slots[number as usize] = slot;
        match self.numbers.get_mut(slot as usize) {
            Some(old) => *old = number,
            None => self.numbers.push(number),
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _page: u64) {
        self.slots[self.numbers[slot as usize] as usize] = NO_SLOT;
    }

    fn check(&self, pages: &[u64]) {
        assert_eq!(self.numbers.len(), pages.len());
        let taken = self.slots.iter().filter(|&&slot| slot != NO_SLOT).count();
        assert_eq!(taken, pages.len());
        for (slot, &number) in (0..).zip(&self.numbers) {
            assert_eq!(self.slots[number as usize], slot);
        }
    }
}
