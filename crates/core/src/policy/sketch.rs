//! Approximate counts of recent references per page: a count-min sketch with aging.
//!
//! Einziger, Friedman, Manes (see W-TinyLFU) after Cormode, Muthukrishnan, "An improved data stream
//! summary: the count-min sketch and its applications", Journal of Algorithms 55(1), 2005. Four
//! counters of 4 bits for each page, all in one block of 64 bytes, so that an update touches one
//! cache line; an estimate is the minimum of the four and never below the count since the counters
//! were halved. After ten references for each page of the cache all counters are halved.

use crate::page::mix;

/// Words of a block, and pages of the cache per block: 16 counters per page.
const WORDS: usize = 8;
/// Counters that a page uses.
const ROWS: u32 = 4;
const COUNT_MAX: u64 = 15;
/// References per page of the cache after which all counters are halved.
const REFERENCES_PER_PAGE: usize = 10;
/// A word with the low three bits of each counter set.
const HALVED: u64 = 0x7777_7777_7777_7777;

/// A sketch for a cache of a given size.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    blocks: Vec<[u64; WORDS]>,
    additions: usize,
    capacity: usize,
}

impl Sketch {
    /// Memory per page of the cache in bytes; twice as much if the capacity is not set.
    pub(super) const BYTES: usize = 2 * size_of::<u64>();

    /// Returns the capacity in pages that it was created for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adjusts the table to the references to a cache of `capacity` pages. Counts are kept as long
    /// as the table is large enough and less than twice too large; otherwise it is replaced.
    pub(super) fn fit(&mut self, capacity: usize) {
        self.capacity = capacity;
        let wanted = capacity.div_ceil(WORDS).max(1);
        if self.blocks.len() < wanted || self.blocks.len() > wanted * 2 {
            self.blocks = vec![[0; WORDS]; wanted];
            self.additions = 0;
        }
    }

    /// Returns the block of a page, and the word and shift of each of its counters.
    fn counters(&self, fingerprint: u32) -> (usize, [(usize, u32); ROWS as usize]) {
        let scaled = (u64::from(fingerprint) * self.blocks.len() as u64) >> 32;
        let block = usize::try_from(scaled).expect("below the length of a Vec");
        let bits = mix(u64::from(fingerprint));
        // Each row has two words for itself: one bit selects the word, four the counter in it.
        let counter = |row: u32| {
            let choice = u32::try_from((bits >> (row * 8)) & 31).expect("5 bits");
            ((row * 2 + (choice & 1)) as usize, (choice >> 1) * 4)
        };
        (block, [counter(0), counter(1), counter(2), counter(3)])
    }

    /// Counts a reference.
    pub(super) fn add(&mut self, fingerprint: u32) {
        if self.blocks.is_empty() {
            return;
        }
        let (block, counters) = self.counters(fingerprint);
        let block = &mut self.blocks[block];
        let mut added = false;
        for (word, shift) in counters {
            if (block[word] >> shift) & COUNT_MAX < COUNT_MAX {
                block[word] += 1 << shift;
                added = true;
            }
        }
        self.additions += usize::from(added);
        if self.additions >= self.capacity * REFERENCES_PER_PAGE {
            for word in self.blocks.iter_mut().flatten() {
                *word = (*word >> 1) & HALVED;
            }
            self.additions /= 2;
        }
    }

    /// Returns the approximate number of recent references to a page, at most 15.
    pub(super) fn estimate(&self, fingerprint: u32) -> u64 {
        if self.blocks.is_empty() {
            return 0;
        }
        let (block, counters) = self.counters(fingerprint);
        let counts = counters.map(|(word, shift)| (self.blocks[block][word] >> shift) & COUNT_MAX);
        counts.into_iter().min().expect("four rows")
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::fingerprint;
    use super::*;

    #[test]
    fn an_estimate_is_never_too_low_and_seldom_too_high() {
        let mut sketch = Sketch::default();
        sketch.fit(1000);
        for page in 0..1000 {
            (0..page % 7).for_each(|_| sketch.add(fingerprint(page)));
        }
        let over = |page: &u64| sketch.estimate(fingerprint(*page)) > page % 7;
        assert!((0..1000).all(|page| sketch.estimate(fingerprint(page)) >= page % 7));
        let wrong = (0..1000).filter(over).count();
        assert!(wrong < 50, "{wrong} of 1000 estimates are too high");
    }

    #[test]
    fn counts_are_halved_after_ten_references_a_page() {
        let mut sketch = Sketch::default();
        sketch.fit(16);
        (0..12).for_each(|_| sketch.add(fingerprint(1)));
        assert_eq!(sketch.estimate(fingerprint(1)), 12);
        for page in 2.. {
            let before = sketch.additions;
            sketch.add(fingerprint(page));
            if sketch.additions < before {
                break;
            }
        }
        assert!((6..9).contains(&sketch.estimate(fingerprint(1))), "not halved");
    }
}
