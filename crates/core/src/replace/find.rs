//! How a cache finds the slot of a page: by the page itself, or by a number that was found once for
//! all caches.
//!
//! Both first look a chunk of references ahead: those loads do not wait for each other, and the
//! look-ups after them find their part of the table in the processor's cache.

use super::Reference;
use crate::curve::index::{Hash, Index};
use crate::policy::{NO_SLOT, Slot};

/// How many references a chunk has.
pub(super) const BATCH: usize = 32;

/// Slots that a table has room for at first, if the cache may have so many.
const SLOTS_MIN: u32 = 1024;

/// Finds slots. `Name` is what a page is looked up by.
pub(super) trait SlotIndex: Send + std::fmt::Debug {
    /// What a page is looked up by.
    type Name: Copy + Default;

    /// The names of up to [`BATCH`] references, and a touch of where they will be looked for.
    fn prefetch(&mut self, references: &[Reference], numbers: &[u32], names: &mut [Self::Name]);
    /// The slot of a page; `pages` holds the page of each slot.
    fn slot(&self, name: Self::Name, page: u64, pages: &[u64]) -> Option<Slot>;
    /// A page enters. If the slot had another page, that left before.
    fn enter(&mut self, name: Self::Name, slot: Slot);
    /// The page in a slot leaves.
    fn leave(&mut self, slot: Slot, page: u64);
    /// Asserts that every slot is found, given the page of each.
    fn check(&self, pages: &[u64]);
}

/// By page.
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
    type Name = Hash;

    #[inline]
    fn prefetch(&mut self, references: &[Reference], _numbers: &[u32], names: &mut [Hash]) {
        let mut touched = 0;
        for (reference, name) in references.iter().zip(names) {
            *name = Hash::of(reference.page);
            touched ^= self.index.touch(*name);
        }
        // Without a use the loads would be left out.
        std::hint::black_box(touched);
    }

    #[inline]
    fn slot(&self, hash: Hash, page: u64, pages: &[u64]) -> Option<Slot> {
        self.index.find(hash, |slot| pages[slot as usize] == page)
    }

    #[inline]
    fn enter(&mut self, hash: Hash, slot: Slot) {
        self.index.insert(hash, slot);
    }

    #[inline]
    fn leave(&mut self, slot: Slot, page: u64) {
        self.index.remove(Hash::of(page), slot);
    }

    fn check(&self, pages: &[u64]) {
        for (slot, &page) in (0..).zip(pages) {
            assert_eq!(self.index.find(Hash::of(page), |found| found == slot), Some(slot));
        }
    }
}

/// By number.
#[derive(Debug, Default)]
pub(super) struct NumberIndex {
    /// The slot of each number.
    slots: Vec<Slot>,
    /// The number in each slot.
    numbers: Vec<u32>,
}

impl SlotIndex for NumberIndex {
    type Name = u32;

    #[inline]
    fn prefetch(&mut self, references: &[Reference], numbers: &[u32], names: &mut [u32]) {
        let numbers = &numbers[..references.len()];
        let end = numbers.iter().max().map_or(0, |&number| number as usize + 1);
        if end > self.slots.len() {
            self.slots.resize(end, NO_SLOT);
        }
        let mut touched = 0;
        for (&number, name) in numbers.iter().zip(names) {
            *name = number;
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
    fn enter(&mut self, number: u32, slot: Slot) {
        self.slots[number as usize] = slot;
        match self.numbers.get_mut(slot as usize) {
            Some(old) => *old = number,
            None => self.numbers.push(number),
        }
    }

    #[inline]
    fn leave(&mut self, slot: Slot, _page: u64) {
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
