//! Ghosts in one exact queue, without the queue: the page numbers evicted last, of which a new one
//! displaces the oldest.
//!
//! Each ghost has a number, one more than that of the previous ghost. The index maps a page to the
//! number of its ghost, and a ring of bits says which of the recent numbers still have a ghost. So
//! the oldest ghost is found without links or a copy of its page number, at one byte per ghost at
//! most instead of eight or more. An expired ghost stays in the index until a hand that visits a
//! few cells per insertion removes it.

use super::index::{Index, fingerprint};

/// The ring has this many bits per ghost of the capacity or more. If more ghosts than all but one
/// in this many are removed early, the oldest ghosts are dropped although the queue is not full.
const SPAN: usize = 4;
/// Bits of a word of the ring.
const WORD: usize = u64::BITS as usize;
/// Wraps the numbers; the hand has visited every cell long before a number repeats.
const NUMBER_MASK: u32 = u32::MAX >> 1;
/// Cells that the hand visits per insertion; a table has six cells per ghost at most.
const CELLS_PER_INSERTION: usize = 8;

/// The recent numbers, and which of them have a ghost.
#[derive(Debug, Default)]
struct Numbers {
    /// Bit `number % bits` is set if the number has a ghost; a power of two of bits.
    ring: Vec<u64>,
    /// The number of the next ghost.
    next: u32,
    /// Ghosts are at most this many numbers older than `next`.
    span: u32,
    /// Numbers with a ghost.
    len: usize,
}

impl Numbers {
    /// Returns the number of bits of the ring.
    fn bits(&self) -> usize {
        self.ring.len() * WORD
    }

    /// Returns the word of the bit of a number, and the mask of the bit.
    fn place(&self, number: u32) -> (usize, u64) {
        let bit = number as usize & (self.bits() - 1);
        (bit / WORD, 1 << (bit % WORD))
    }

    /// Returns true if a number of the index has a ghost. The ring need not be read: a ghost that
    /// was removed early is not in the index, and the others end at the old end of the span.
    fn is_live(&self, number: u32) -> bool {
        (1..=self.span).contains(&(self.next.wrapping_sub(number) & NUMBER_MASK))
    }

    /// Returns true if a number of the span has a ghost.
    fn has_ghost(&self, number: u32) -> bool {
        let (word, mask) = self.place(number);
        self.ring[word] & mask != 0
    }

    /// Ends the ghost of a number of the index; returns true if the number had one.
    fn end(&mut self, number: u32) -> bool {
        let was_live = self.is_live(number);
        if was_live {
            self.clear(number);
        }
        was_live
    }

    fn clear(&mut self, number: u32) {
        debug_assert!(self.has_ghost(number), "a number without a ghost in the index");
        let (word, mask) = self.place(number);
        self.ring[word] &= !mask;
        self.len -= 1;
    }

    /// Gives the next number to a ghost.
    fn push(&mut self) {
        if self.span as usize == self.bits() {
            self.shorten();
        }
        let (word, mask) = self.place(self.next);
        self.ring[word] |= mask;
        self.next = (self.next + 1) & NUMBER_MASK;
        self.span += 1;
        self.len += 1;
    }

    /// Ends the ghost of the oldest number of the span, if it has one, and shortens the span.
    fn shorten(&mut self) {
        let oldest = self.next.wrapping_sub(self.span) & NUMBER_MASK;
        if self.has_ghost(oldest) {
            self.clear(oldest);
        }
        self.span -= 1;
    }

    /// Ends the oldest ghosts of more than `max`.
    fn truncate(&mut self, max: usize) {
        while self.len > max {
            self.shorten();
        }
    }

    /// Moves the bits of the span into a ring of another size.
    fn resize(&mut self, bits: usize) {
        while self.span as usize > bits {
            self.shorten();
        }
        let numbers = (1..=self.span).map(|age| self.next.wrapping_sub(age) & NUMBER_MASK);
        let live: Vec<u32> = numbers.filter(|&number| self.has_ghost(number)).collect();
        self.ring = vec![0; bits / WORD];
        for number in live {
            let (word, mask) = self.place(number);
            self.ring[word] |= mask;
        }
    }
}

/// A queue of ghosts of bounded length.
#[derive(Debug, Default)]
pub(crate) struct GhostQueue {
    index: Index,
    numbers: Numbers,
    capacity: usize,
    hand: usize,
}

impl GhostQueue {
    /// Maximum memory per ghost of the capacity in bytes.
    pub(crate) const BYTES: usize = Index::BYTES + 2 * SPAN / 8;

    /// Inserts `page` as the newest ghost of a queue of `capacity` ghosts, at least one; the oldest
    /// ghosts are dropped from a full queue.
    pub(crate) fn insert(&mut self, page: u64, capacity: usize) {
        self.set_capacity(capacity.clamp(1, NUMBER_MASK as usize / (4 * SPAN)));
        let GhostQueue { index, numbers, .. } = self;
        if let Some(previous) = index.insert(fingerprint(page), numbers.next) {
            numbers.end(previous);
        }
        numbers.push();
        numbers.truncate(self.capacity);
        let is_live = |number| numbers.is_live(number);
        self.hand = index.sweep(self.hand, CELLS_PER_INSERTION, is_live);
    }

    /// Removes `page`; returns true if it had a ghost.
    pub(crate) fn take(&mut self, page: u64) -> bool {
        let number = self.index.remove(fingerprint(page));
        number.is_some_and(|number| self.numbers.end(number))
    }

    fn set_capacity(&mut self, capacity: usize) {
        if capacity == self.capacity {
            return;
        }
        self.capacity = capacity;
        let numbers = &mut self.numbers;
        numbers.truncate(capacity);
        let bits = (capacity * SPAN).next_power_of_two().max(WORD);
        if bits > numbers.bits() || bits * 4 <= numbers.bits() {
            numbers.resize(bits);
        }
        self.index.fit(capacity, |number| numbers.is_live(number));
    }

    /// Asserts that ring and index agree.
    pub(crate) fn check(&self) {
        let Numbers { ring, span, len, .. } = &self.numbers;
        self.index.check();
        let set: u32 = ring.iter().map(|word| word.count_ones()).sum();
        assert_eq!(set as usize, *len, "bits of the ring");
        assert!(*len <= self.capacity, "too many ghosts");
        assert!(*span as usize <= self.numbers.bits(), "a span longer than the ring");
        // A smaller table replaces the index at less than half of the capacity; until then it also
        // has expired ghosts of the larger capacity.
        assert!(self.index.len() <= self.capacity * 3 + 64, "expired ghosts pile up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::mix;
    use std::collections::VecDeque;

    /// Random insertions, removals and capacities, beside a plain queue.
    #[test]
    fn a_queue_of_ghosts_does_what_a_queue_does() {
        let (mut ghosts, mut queue) = (GhostQueue::default(), VecDeque::new());
        let (mut state, mut capacity) = (7, 40);
        for round in 0..60_000u32 {
            state = mix(state + 1);
            if round % 1000 == 0 {
                capacity = 1 + usize::try_from(state >> 40).expect("small") % 300;
            }
            let page = state % 900;
            let at = queue.iter().position(|&other| other == page);
            // Two of three are insertions, so that no ghost is dropped before the queue is full.
            if (state >> 32) % 3 == 0 {
                assert_eq!(ghosts.take(page), at.is_some(), "page {page} in round {round}");
                at.map(|at| queue.remove(at));
            } else {
                at.map(|at| queue.remove(at));
                ghosts.insert(page, capacity);
                queue.push_back(page);
                queue.drain(..queue.len().saturating_sub(capacity));
            }
            assert_eq!(ghosts.numbers.len, queue.len(), "ghosts in round {round}");
            if round % 61 == 0 {
                ghosts.check();
            }
        }
    }

    #[test]
    fn ghosts_outlive_a_wrap_of_their_numbers_and_memory_is_bounded() {
        let mut ghosts = GhostQueue {
            numbers: Numbers { next: NUMBER_MASK - 100, ..Numbers::default() },
            ..GhostQueue::default()
        };
        for page in 0..100_000 {
            ghosts.insert(page, 50);
            assert!(
                page < 49
                    || ghosts.numbers.is_live(ghosts.numbers.next.wrapping_sub(50) & NUMBER_MASK)
            );
            if page % 97 == 0 {
                ghosts.check();
            }
        }
        assert!(!ghosts.take(99_949), "older than the capacity");
        assert!(ghosts.take(99_950) && !ghosts.take(99_950), "taken once, forgotten");
        assert!(ghosts.index.cells() < 50 * 6 + 64);
        assert!(ghosts.numbers.bits() < 50 * 2 * SPAN);
    }

    #[test]
    fn a_queue_of_which_nearly_all_are_removed_stays_within_its_ring() {
        let mut ghosts = GhostQueue::default();
        ghosts.insert(u64::MAX, 64);
        for page in 0..1000 {
            ghosts.insert(page, 64);
            ghosts.check();
            assert!(ghosts.take(page));
        }
        assert!(!ghosts.take(u64::MAX), "the ring has no bit for it anymore");
        ghosts.check();
    }
}
