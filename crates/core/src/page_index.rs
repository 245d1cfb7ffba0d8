//! The table that maps a page to its number, for caches (slots) and for the pages of a trace (ids).
//!
//! Open addressing with linear probing over entries of 8 bytes: the upper half of the page's hash
//! and a number. The caller keeps the page itself in an array indexed by number, and compares it
//! only when the halves of the hash agree. The position of an entry follows from its half of the
//! hash alone, so the table grows and closes gaps (backward shift) without access to the pages.
//!
//! Invariants: at most half of the entries are occupied; a probe sequence contains no gap before
//! its entry.

use crate::mix;

/// The number of a free entry.
const NONE: u32 = u32::MAX;

const ENTRIES_MIN: usize = 64;

/// The half of a page's hash that the table stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash(u32);

impl Hash {
    /// Returns the hash of a page.
    #[must_use]
    pub fn of(page: u64) -> Hash {
        Hash(u32::try_from(mix(page) >> 32).expect("a shifted u64"))
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    number: u32,
}

const EMPTY: Entry = Entry { hash: 0, number: NONE };

/// A hash table from pages to numbers.
#[derive(Clone, Debug)]
pub struct Index {
    entries: Vec<Entry>,
    /// The number of entries is a power of two; the upper bits of the half hash are the position.
    shift: u32,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Index::with_entries(ENTRIES_MIN)
    }
}

impl Index {
    /// Creates a table with room for `numbers` entries.
    #[must_use]
    pub fn for_numbers(numbers: usize) -> Self {
        Index::with_entries((numbers * 2).next_power_of_two().max(ENTRIES_MIN))
    }

    fn with_entries(entries: usize) -> Self {
        let shift = u32::BITS - entries.trailing_zeros();
        Index { entries: vec![EMPTY; entries], shift, len: 0 }
    }

    /// Returns the size of the table in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    /// Reads the first entry for `hash`, so that a lookup soon after finds it in the processor
    /// cache. The caller must use the returned value, or the compiler removes the read.
    #[must_use]
    pub fn touch(&self, hash: Hash) -> u32 {
        self.entries[self.home(hash.0)].number
    }

    /// Returns the number with this hash for which `matches` returns true.
    #[inline]
    pub fn find(&self, hash: Hash, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.entries.len() - 1;
        let mut position = self.home(hash.0);
        loop {
            let entry = self.entries[position];
            if entry.number == NONE {
                return None;
            }
            if entry.hash == hash.0 && matches(entry.number) {
                return Some(entry.number);
            }
            position = (position + 1) & mask;
        }
    }

    /// Adds a number that is not in the table.
    ///
    /// # Panics
    /// The table holds 2^31 numbers.
    pub fn insert(&mut self, hash: Hash, number: u32) {
        debug_assert!(number != NONE, "a number");
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.place(Entry { hash: hash.0, number });
        self.len += 1;
    }

    fn place(&mut self, entry: Entry) {
        let mask = self.entries.len() - 1;
        let mut position = self.home(entry.hash);
        while self.entries[position].number != NONE {
            position = (position + 1) & mask;
        }
        self.entries[position] = entry;
    }

    fn grow(&mut self) {
        // A position consists of 32 bits of hash, and numbers have no more.
        assert!(self.shift > 0, "at most 2^31 numbers in one table");
        let old = std::mem::take(&mut self.entries);
        self.entries = vec![EMPTY; old.len() * 2];
        self.shift -= 1;
        for entry in old.into_iter().filter(|entry| entry.number != NONE) {
            self.place(entry);
        }
    }

    /// Removes a number that is in the table with this hash.
    ///
    /// # Panics
    /// The number is not in the table.
    pub fn remove(&mut self, hash: Hash, number: u32) {
        let mask = self.entries.len() - 1;
        let mut gap = self.home(hash.0);
        while self.entries[gap].number != number {
            assert!(self.entries[gap].number != NONE, "number {number} is in the table");
            gap = (gap + 1) & mask;
        }
        let mut next = gap;
        loop {
            next = (next + 1) & mask;
            let entry = self.entries[next];
            if entry.number == NONE {
                break;
            }
            // The entry may fill the gap if its home position does not lie behind the gap.
            let from_home = next.wrapping_sub(self.home(entry.hash)) & mask;
            if from_home >= (next.wrapping_sub(gap) & mask) {
                self.entries[gap] = entry;
                gap = next;
            }
        }
        self.entries[gap] = EMPTY;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::testing::Random;
    use std::collections::HashMap;

    #[test]
    fn it_agrees_with_a_map_under_random_operations() {
        for seed in 0..20 {
            let mut random = Random::from_seed(seed);
            let (mut index, mut map) = (Index::default(), HashMap::new());
            let mut pages: Vec<u64> = Vec::new();
            for _ in 0..4_000 {
                let page = random.below(300);
                let found = index.find(Hash::of(page), |number| pages[number as usize] == page);
                assert_eq!(found, map.get(&page).copied(), "seed {seed}, page {page}");
                if let Some(number) = found {
                    if random.below(3) == 0 {
                        index.remove(Hash::of(page), number);
                        map.remove(&page);
                    }
                } else {
                    let number = u32::try_from(pages.len()).unwrap();
                    pages.push(page);
                    index.insert(Hash::of(page), number);
                    map.insert(page, number);
                }
            }
            assert_eq!(index.len, map.len());
        }
    }

    #[test]
    fn it_grows_with_what_it_holds_and_stays_half_empty() {
        let (mut index, mut filled) = (Index::default(), false);
        for number in 0..10_000 {
            index.insert(Hash::of(u64::from(number)), number);
            assert!(index.len * 2 <= index.entries.len());
            filled |= index.len * 2 == index.entries.len();
        }
        assert!(filled, "it does not grow before half of it is filled");
        let found = (0..10_000).filter(|&n| index.find(Hash::of(n.into()), |m| m == n).is_some());
        assert_eq!(found.count(), 10_000);
        assert_eq!(index.bytes(), 32_768 * 8);
        assert_eq!(Index::for_numbers(10_000).bytes(), index.bytes());
    }
}
