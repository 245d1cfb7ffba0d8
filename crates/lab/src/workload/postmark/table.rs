//! The table of files: their existence, location and size.
//!
//! Invariants: there are twice as many slots as initial files; a slot of 0 bytes is free; free
//! slots are found in the order of the original, since it determines which file a random number
//! selects. Sizes are bytes.

use super::generator::Generator;

/// No directory: the file is in the location itself.
pub(super) const NO_DIRECTORY: u32 = u32::MAX;

/// A file, or no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// Its size; 0 if there is no file.
    pub(super) bytes: u32,
    /// Its name.
    pub(super) number: u32,
    /// The index of its location.
    pub(super) location: u32,
    /// The number of its subdirectory, or [`NO_DIRECTORY`].
    pub(super) directory: u32,
}

/// The slots.
#[derive(Clone, Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    /// The slot after the one that was used last.
    next: usize,
    /// The number of files.
    pub(super) used: usize,
}

impl Table {
    /// Returns a table for `number` files and as many more; `None` if there is not enough memory.
    pub(super) fn new(number: u32) -> Option<Self> {
        let len = usize::try_from(u64::from(number) * 2).ok()?;
        let mut slots = Vec::new();
        slots.try_reserve_exact(len).ok()?;
        slots.resize(len, Slot::default());
        Some(Table { slots, next: 0, used: 0 })
    }

    /// Returns the free slot for the next file: the one after the last used slot, else the first.
    pub(super) fn free(&mut self) -> Option<usize> {
        if self.used == self.slots.len() {
            return None;
        }
        let is_free = |slot: &Slot| slot.bytes == 0;
        let index = match self.slots.get(self.next) {
            Some(slot) if is_free(slot) => self.next,
            _ => self.slots.iter().position(is_free)?,
        };
        self.next = index + 1;
        Some(index)
    }

    /// Returns a random file: draws slots until one holds a file. There must be one.
    pub(super) fn pick(&self, random: &mut Generator) -> usize {
        assert!(self.used > 0, "a file to pick");
        let len = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        loop {
            let index = random.below(len) as usize;
            if self.slots[index].bytes > 0 {
                return index;
            }
        }
    }

    /// Returns the content of a slot.
    pub(super) fn get(&self, index: usize) -> Slot {
        self.slots[index]
    }

    /// Puts a file into a free slot.
    pub(super) fn put(&mut self, index: usize, slot: Slot) {
        assert!(self.slots[index].bytes == 0 && slot.bytes > 0, "a file for a free slot");
        self.slots[index] = slot;
        self.used += 1;
    }

    /// Extends a file.
    pub(super) fn grow(&mut self, index: usize, bytes: u32) {
        self.slots[index].bytes += bytes;
    }

    /// Frees a slot.
    pub(super) fn clear(&mut self, index: usize) {
        assert!(self.slots[index].bytes > 0, "a file to forget");
        self.slots[index] = Slot::default();
        self.used -= 1;
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u32) -> Slot {
        Slot { bytes: 1, number, location: 0, directory: NO_DIRECTORY }
    }

    #[test]
    fn free_slots_are_found_in_the_order_of_the_original() {
        let mut table = Table::new(2).unwrap();
        for number in 0..4 {
            let index = table.free().unwrap();
            assert_eq!(index, number as usize);
            table.put(index, file(number));
        }
        assert_eq!(table.free(), None);
        table.clear(3);
        table.clear(1);
        assert_eq!(table.free(), Some(1), "the pointer is at the end, so the first free one");
        table.put(1, file(9));
        table.clear(0);
        assert_eq!(table.free(), Some(0), "slot 2 is taken, so the first free one");
        assert_eq!(table.used, 2);
    }

    #[test]
    fn a_pick_draws_until_it_meets_a_file() {
        let mut table = Table::new(50).unwrap();
        table.put(77, file(1));
        let mut random = Generator::from_seed(1);
        assert_eq!(table.pick(&mut random), 77);
        let mut repeated = Generator::from_seed(1);
        while repeated.below(100) != 77 {}
        assert_eq!(random.draws, repeated.draws);
    }
}
