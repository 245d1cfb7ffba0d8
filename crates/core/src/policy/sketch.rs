//! How often pages were referenced lately, about: a count-min sketch that forgets.
//!
//! Einziger, Friedman, Manes (see W-TinyLFU) after Cormode, Muthukrishnan, "An improved data stream
//! summary: the count-min sketch and its applications", Journal of Algorithms 55(1), 2005. Four
//! counters of 4 bits for each page, all in one block of 64 bytes, so that a count costs one cache
//! line; an estimate is the least of the four and never too low but for what was forgotten. After
//! ten references for each page of the cache all counters are halved.

use crate::page::mix;

/// Words of a block, and pages of the cache for each block: 16 counters a page.
const WORDS: usize = 8;
/// Counters of a page.
const ROWS: u32 = 4;
const COUNT_MAX: u64 = 15;
/// References for each page of the cache after which all counters are halved.
const SAMPLE: usize = 10;
/// A word with the low three bits of each counter set.
const HALVED: u64 = 0x7777_7777_7777_7777;

/// A sketch for a cache of some size.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    blocks: Vec<[u64; WORDS]>,
    additions: usize,
    capacity: usize,
}

impl Sketch {
    /// Bytes for each page of the cache; twice as many where the size is not told.
    pub(super) const BYTES: usize = 2 * size_of::<u64>();

    /// Pages of the cache that it was made for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for the references to a cache of `capacity` pages; what is known stays if the
    /// table does, which is while it is less than twice too large and not too small.
    pub(super) fn fit(&mut self, capacity: usize) {
        self.capacity = capacity;
        let wanted = capacity.div_ceil(WORDS).max(1);
        if self.blocks.len() < wanted || self.blocks.len() > wanted * 2 {
            self.blocks = vec![[0; WORDS]; wanted];
            self.additions = 0;
        }
    }

    /// The block of a page, and the word and shift of each of its counters.
    fn places(&self, fingerprint: u32) -> (usize, [(usize, u32); ROWS as usize]) {
        let scaled = (u64::from(fingerprint) * self.blocks.len() as u64) >> 32;
        let block = usize::try_from(scaled).expect("below the length of a Vec");
        let bits = mix(u64::from(fingerprint));
        // Each row has two words of its own: one bit chooses the word, four the counter in it.
        let place = |row: u32| {
            let choice = u32::try_from((bits >> (row * 8)) & 31).expect("5 bits");
            ((row * 2 + (choice & 1)) as usize, (choice >> 1) * 4)
        };
        (block, [place(0), place(1), place(2), place(3)])
    }

    /// Counts a reference.
    pub(super) fn add(&mut self, fingerprint: u32) {
        if self.blocks.is_empty() {
            return;
        }
        let (block, places) = self.places(fingerprint);
        let block = &mut self.blocks[block];
        let mut added = false;
        for (word, shift) in places {
            if (block[word] >> shift) & COUNT_MAX < COUNT_MAX {
                block[word] += 1 << shift;
                added = true;
            }
        }
        self.additions += usize::from(added);
        if self.additions >= self.capacity * SAMPLE {
            for word in self.blocks.iter_mut().flatten() {
                *word = (*word >> 1) & HALVED;
            }
            self.additions /= 2;
        }
    }

    /// About how often a page was referenced lately, at most 15.
    pub(super) fn estimate(&self, fingerprint: u32) -> u64 {
        if self.blocks.is_empty() {
            return 0;
        }
        let (block, places) = self.places(fingerprint);
        let counts = places.map(|(word, shift)| (self.blocks[block][word] >> shift) & COUNT_MAX);
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
