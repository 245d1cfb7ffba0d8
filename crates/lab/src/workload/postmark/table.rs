//! The table of files: which exist, where, and how large they are.
//!
//! Invariants: twice as many slots as files are created first; a slot of 0 bytes is free; the order
//! in which free slots are found is that of the original, since it decides which file a random
//! number means. Sizes are bytes.

use super::generator::Generator;

/// No directory: the file lies in the location itself.
pub(super) const NO_DIRECTORY: u32 = u32::MAX;

/// A file, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// Its size; 0 if there is no file.
    pub(super) bytes: u32,
    /// What it is called.
    pub(super) number: u32,
    /// In which location.
    pub(super) location: u32,
    /// In which subdirectory, or [`NO_DIRECTORY`].
    pub(super) directory: u32,
}

/// The slots.
#[derive(Clone, Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    /// The slot after the one that was taken last.
    next: usize,
    used: usize,
}

impl Table {
    /// A table for `number` files and as many more; nothing if there is no memory for it.
    pub(super) fn new(number: u32) -> Option<Self> {
        let len = usize::try_from(u64::from(number) * 2).ok()?;
        let mut slots = Vec::new();
        slots.try_reserve_exact(len).ok()?;
        slots.resize(len, Slot::default());
        Some(Table { slots, next: 0, used: 0 })
    }

    /// The free slot for the next file: the one after the last that was taken, else the first.
    pub(super) fn free(&mut self) -> Option<usize> {
        if self.used == self.slots.len() {
            return None;
        }
        let is_free = |slot: &Slot| slot.bytes == 0;
        let place = match self.slots.get(self.next) {
            Some(slot) if is_free(slot) => self.next,
            _ => self.slots.iter().position(is_free)?,
        };
        self.next = place + 1;
        Some(place)
    }

    /// A file at random: slots are drawn until one holds a file. There must be one.
    pub(super) fn pick(&self, random: &mut Generator) -> usize {
        assert!(self.used > 0, "a file to pick");
        let len = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        loop {
            let place = random.below(len) as usize;
            if self.slots[place].bytes > 0 {
                return place;
            }
        }
    }

    /// What is in a slot.
    pub(super) fn get(&self, place: usize) -> Slot {
        self.slots[place]
    }

    /// Puts a file into a free slot.
    pub(super) fn put(&mut self, place: usize, slot: Slot) {
        assert!(self.slots[place].bytes == 0 && slot.bytes > 0, "a file for a free slot");
        self.slots[place] = slot;
        self.used += 1;
    }

    /// Makes a file longer.
    pub(super) fn grow(&mut self, place: usize, bytes: u32) {
        self.slots[place].bytes += bytes;
    }

    /// Frees a slot.
    pub(super) fn clear(&mut self, place: usize) {
        assert!(self.slots[place].bytes > 0, "a file to forget");
        self.slots[place] = Slot::default();
        self.used -= 1;
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many files there are.
    pub(super) fn used(&self) -> usize {
        self.used
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
            let place = table.free().unwrap();
            assert_eq!(place, number as usize);
            table.put(place, file(number));
        }
        assert_eq!(table.free(), None);
        table.clear(3);
        table.clear(1);
        assert_eq!(table.free(), Some(1), "the pointer is at the end, so the first free one");
        table.put(1, file(9));
        table.clear(0);
        assert_eq!(table.free(), Some(0), "slot 2 is taken, so the first free one");
        assert_eq!(table.used(), 2);
    }

    #[test]
    fn a_pick_draws_until_it_meets_a_file() {
        let mut table = Table::new(50).unwrap();
        table.put(77, file(1));
        let mut random = Generator::from_seed(1);
        assert_eq!(table.pick(&mut random), 77);
        let mut again = Generator::from_seed(1);
        while again.below(100) != 77 {}
        assert_eq!(random.draws(), again.draws());
    }
}
