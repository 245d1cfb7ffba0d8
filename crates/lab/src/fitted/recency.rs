//! Pages by the order of their last references: the page at a stack distance.
//!
//! It is the inverse of [`larder_core::curve::stack::Stack`]: positions in time that hold the page
//! last referenced there, a bit for each occupied position, and a Fenwick tree over the bits of
//! words. Memory: about 12 bytes per page.

const BITS: usize = u64::BITS as usize;
const POSITIONS_MIN: usize = 1 << 13;

/// The pages in the order of their last references.
#[derive(Debug, Default)]
pub(super) struct Recency {
    /// The page at each position; it is the last position of that page if the bit is set.
    pages: Vec<u32>,
    /// The last position of each page.
    last: Vec<u32>,
    words: Vec<u64>,
    /// Fenwick tree over the bits of words, from index 1.
    counts: Vec<u32>,
    len: u32,
}

impl Recency {
    /// Returns the number of pages.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Makes this page the most recent one. Pages are numbered from 0 in the order of first
    /// references.
    pub(super) fn reference(&mut self, page: u32) {
        if self.pages.len() == self.words.len() * BITS {
            self.compact();
        }
        let position = u32::try_from(self.pages.len()).expect("fewer than 2^32 positions");
        if page as usize == self.last.len() {
            self.last.push(position);
            self.len += 1;
        } else {
            let before = std::mem::replace(&mut self.last[page as usize], position) as usize;
            self.words[before / BITS] &= !(1 << (before % BITS));
            self.add(before / BITS, u32::MAX);
        }
        self.mark(page);
    }

    /// Appends a position with this page.
    fn mark(&mut self, page: u32) {
        let position = self.pages.len();
        self.pages.push(page);
        self.words[position / BITS] |= 1 << (position % BITS);
        self.add(position / BITS, 1);
    }

    /// Returns the page at a stack distance, which is less than the number of pages.
    pub(super) fn page_at(&self, distance: u32) -> u32 {
        let mut before = self.len - 1 - distance;
        let mut word = 0;
        let mut step = self.words.len().next_power_of_two();
        while step > 0 {
            if let Some(&count) = self.counts.get(word + step).filter(|&&count| count <= before) {
                before -= count;
                word += step;
            }
            step /= 2;
        }
        let mut bits = self.words[word];
        for _ in 0..before {
            bits &= bits - 1;
        }
        self.pages[word * BITS + bits.trailing_zeros() as usize]
    }

    /// Compacts the positions to the beginning of an array at least twice as long.
    fn compact(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        let is_last =
            |(at, page): (usize, u32)| (self.last[page as usize] as usize == at).then_some(page);
        let kept: Vec<u32> = pages.into_iter().enumerate().filter_map(is_last).collect();
        let positions = (kept.len() * 2).max(POSITIONS_MIN);
        self.pages.reserve_exact(positions);
        self.words = vec![0; positions.div_ceil(BITS)];
        self.counts = vec![0; self.words.len() + 1];
        for (position, page) in (0..).zip(kept) {
            self.last[page as usize] = position;
            self.mark(page);
        }
    }

    /// Adds to the count of a word. To subtract one, pass 2^32 - 1.
    fn add(&mut self, word: usize, bits: u32) {
        let mut node = word + 1;
        while let Some(count) = self.counts.get_mut(node) {
            *count = count.wrapping_add(bits);
            node += node & node.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_page_is_at_its_place_in_a_list_in_order_of_use() {
        let mut random = Random::from_seed(1);
        let (mut recency, mut list) = (Recency::default(), Vec::new());
        for _ in 0..40_000 {
            let pages = u32::try_from(list.len()).unwrap();
            let new = pages < 700 && random.below(20) == 0;
            let old = u32::try_from(random.below(pages.max(1).into())).unwrap();
            let page = if new || pages == 0 { pages } else { old };
            list.retain(|&other| other != page);
            list.insert(0, page);
            recency.reference(page);
            let distance = u32::try_from(random.below(list.len() as u64)).unwrap();
            assert_eq!(recency.page_at(distance), list[distance as usize]);
            assert_eq!(recency.len() as usize, list.len());
        }
    }
}
