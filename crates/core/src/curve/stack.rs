//! LRU stack distances: the number of distinct other pages referenced since the last reference to a
//! page; also its inverse, the page at a distance.
//!
//! Time is an array of positions, and the last reference of each page is a mark in it; the distance
//! is the number of marks after that of the page. Marks are bits in blocks of a cache line, and
//! counts per block are kept in a Fenwick tree (Fenwick, "A new data structure for cumulative
//! frequency tables", 1994), which is 1/512 of the array and stays in the processor cache. When the
//! array is full its marks are compacted; it is at least twice as long as there are pages, so the
//! cost is constant per reference.
//!
//! Memory: 4 bytes per page, and about half a byte of marks; for the inverse another 8 bytes.

/// The value of an unused position.
const NONE: u32 = u32::MAX;
const WORDS: usize = 8;
/// Positions in a block: the bits of a cache line.
const BLOCK: usize = WORDS * 64;
/// The minimum number of positions.
const POSITIONS_MIN: usize = 1 << 13;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Block([u64; WORDS]);

impl Block {
    /// Returns the number of marks at positions up to and including `at`.
    #[inline]
    fn rank(&self, at: usize) -> u32 {
        let (word, bit) = (at / 64, at % 64);
        let whole: u32 = self.0[..word].iter().map(|word| word.count_ones()).sum();
        whole + (self.0[word] & (u64::MAX >> (63 - bit))).count_ones()
    }

    /// Returns the position of the mark that follows `before` other marks.
    fn select(&self, mut before: u32) -> Option<usize> {
        for (number, &word) in self.0.iter().enumerate() {
            let marks = word.count_ones();
            if before < marks {
                let word = (0..before).fold(word, |word, _| word & (word - 1));
                return Some(number * 64 + word.trailing_zeros() as usize);
            }
            before -= marks;
        }
        None
    }
}

/// The pages of a trace in the order of their last references.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The position of each page's last reference.
    last: Vec<u32>,
    blocks: Vec<Block>,
    /// Fenwick tree over the marks of blocks, from index 1.
    counts: Vec<u32>,
    /// The next position.
    now: usize,
    pages: usize,
    /// The page at each position, if pages are looked up by distance; it is known where a mark is.
    numbers: Option<Vec<u32>>,
}

impl Default for Stack {
    fn default() -> Self {
        Stack::new()
    }
}

impl Stack {
    /// Creates an empty stack.
    #[must_use]
    pub fn new() -> Self {
        let blocks = vec![Block::default(); POSITIONS_MIN / BLOCK];
        let counts = vec![0; blocks.len() + 1];
        Stack { last: Vec::new(), blocks, counts, now: 0, pages: 0, numbers: None }
    }

    /// Creates an empty stack for [`Stack::page_at`].
    #[must_use]
    pub fn with_numbers() -> Self {
        Stack { numbers: Some(vec![NONE; POSITIONS_MIN]), ..Stack::new() }
    }

    /// Returns the number of pages in the stack.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages
    }

    /// Returns true if the stack is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.last.capacity() * size_of::<u32>()
            + self.blocks.len() * (size_of::<Block>() + size_of::<u32>())
            + self.numbers.as_ref().map_or(0, |numbers| numbers.len() * size_of::<u32>())
    }

    /// References the page of this number; returns its stack distance, or `None` if it was not in
    /// the stack.
    pub fn reference(&mut self, number: u32) -> Option<u32> {
        if self.now == self.blocks.len() * BLOCK {
            self.close_up();
        }
        let page = number as usize;
        if page >= self.last.len() {
            self.last.resize(page + 1, NONE);
        }
        let position = u32::try_from(self.now).expect("fewer than 2^32 positions");
        let before = std::mem::replace(&mut self.last[page], position);
        let distance = (before != NONE).then(|| self.unmark(before));
        self.blocks[self.now / BLOCK].0[self.now % BLOCK / 64] |= 1 << (self.now % 64);
        add(&mut self.counts, self.now / BLOCK, 1);
        if let Some(numbers) = &mut self.numbers {
            numbers[self.now] = number;
        }
        self.pages += 1;
        self.now += 1;
        distance
    }

    /// Returns the stack distance of the page of this number, or `None` if it is not in the stack.
    #[must_use]
    pub fn distance(&self, number: u32) -> Option<u32> {
        let before = *self.last.get(number as usize)?;
        (before != NONE).then(|| self.marks_behind(before))
    }

    /// Returns the number of the page at a stack distance, or `None` if the stack has fewer pages
    /// or was made without numbers.
    #[must_use]
    pub fn page_at(&self, distance: u32) -> Option<u32> {
        let numbers = self.numbers.as_ref()?;
        let before = self.pages.checked_sub(1)?.checked_sub(distance as usize)?;
        let mut before = u32::try_from(before).expect("fewer than 2^32 pages");
        let mut block = 0;
        let mut step = self.blocks.len().next_power_of_two();
        while step > 0 {
            if let Some(&count) = self.counts.get(block + step).filter(|&&count| count <= before) {
                before -= count;
                block += step;
            }
            step /= 2;
        }
        Some(numbers[block * BLOCK + self.blocks[block].select(before)?])
    }

    /// Removes the page of this number, which is in the stack.
    pub fn remove(&mut self, number: u32) {
        let before = std::mem::replace(&mut self.last[number as usize], NONE);
        assert!(before != NONE, "page {number} is in the stack");
        self.unmark(before);
    }

    /// Removes a mark; returns the number of marks after it.
    #[inline]
    fn unmark(&mut self, position: u32) -> u32 {
        let behind = self.marks_behind(position);
        let at = position as usize;
        let word = &mut self.blocks[at / BLOCK].0[at % BLOCK / 64];
        debug_assert!(*word >> (at % 64) & 1 == 1, "position {at} is marked");
        *word &= !(1 << (at % 64));
        add(&mut self.counts, at / BLOCK, u32::MAX);
        self.pages -= 1;
        behind
    }

    #[inline]
    fn marks_behind(&self, position: u32) -> u32 {
        let at = position as usize;
        let mut up_to = self.blocks[at / BLOCK].rank(at % BLOCK);
        let mut node = at / BLOCK;
        while node > 0 {
            up_to += self.counts[node];
            node &= node - 1;
        }
        u32::try_from(self.pages).expect("fewer than 2^32 pages") - up_to
    }

    /// Compacts the marks at the beginning of an array that is at least twice as long.
    fn close_up(&mut self) {
        let mut before = Vec::with_capacity(self.blocks.len());
        let mut sum = 0;
        for block in &self.blocks {
            before.push(sum);
            sum += block.rank(BLOCK - 1);
        }
        assert_eq!(sum as usize, self.pages, "as many marks as pages");
        for last in self.last.iter_mut().filter(|last| **last != NONE) {
            let at = *last as usize;
            *last = before[at / BLOCK] + self.blocks[at / BLOCK].rank(at % BLOCK) - 1;
        }
        let positions = (self.pages * 2).max(POSITIONS_MIN);
        self.blocks.clear();
        self.blocks.resize(positions.div_ceil(BLOCK), Block::default());
        self.counts.clear();
        self.counts.resize(self.blocks.len() + 1, 0);
        for at in 0..self.pages {
            self.blocks[at / BLOCK].0[at % BLOCK / 64] |= 1 << (at % 64);
        }
        for number in 0..self.pages.div_ceil(BLOCK) {
            let marks = (self.pages - number * BLOCK).min(BLOCK);
            add(&mut self.counts, number, u32::try_from(marks).expect("at most a block"));
        }
        if let Some(numbers) = &mut self.numbers {
            numbers.clear();
            numbers.resize(self.blocks.len() * BLOCK, NONE);
            for (number, &at) in (0..).zip(&self.last).filter(|(_, at)| **at != NONE) {
                numbers[at as usize] = number;
            }
        }
        self.now = self.pages;
    }
}

/// Adds to the count of a block. To subtract one, pass 2^32 - 1.
#[inline]
fn add(counts: &mut [u32], block: usize, marks: u32) {
    let mut node = block + 1;
    while let Some(count) = counts.get_mut(node) {
        *count = count.wrapping_add(marks);
        node += node & node.wrapping_neg();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::testing::Random;

    #[test]
    fn distances_are_places_in_a_list_in_order_of_use() {
        for seed in 0..8 {
            let mut random = Random::from_seed(seed);
            let (mut stack, mut list) = (Stack::with_numbers(), Vec::new());
            for _ in 0..30_000 {
                let range = random.below(700) + 1;
                let number = u32::try_from(random.below(range)).unwrap();
                let place = list.iter().position(|&other| other == number);
                if let Some(place) = place.filter(|_| random.below(20) == 0) {
                    stack.remove(number);
                    list.remove(place);
                    continue;
                }
                let expected = place.map(|place| u32::try_from(place).unwrap());
                assert_eq!(stack.distance(number), expected, "seed {seed}");
                assert_eq!(stack.reference(number), expected, "seed {seed}");
                place.map(|place| list.remove(place));
                list.insert(0, number);
                assert_eq!(stack.len(), list.len());
                let distance = random.below(list.len() as u64 + 1);
                let page = list.get(usize::try_from(distance).unwrap()).copied();
                assert_eq!(stack.page_at(u32::try_from(distance).unwrap()), page);
            }
        }
    }

    #[test]
    fn a_row_grows_with_the_pages() {
        let mut stack = Stack::new();
        let pages = u32::try_from(POSITIONS_MIN * 3).unwrap();
        assert!((0..pages).all(|number| stack.reference(number).is_none()));
        assert!((0..pages).all(|number| stack.reference(number) == Some(pages - 1)));
        assert!(stack.bytes() < 6 * stack.len() + (1 << 16), "{} bytes", stack.bytes());
        assert!(stack.bytes() > 4 * stack.last.capacity(), "{} bytes", stack.bytes());
    }
}
