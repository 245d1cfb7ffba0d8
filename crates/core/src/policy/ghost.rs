//! Ghosts by age: the page numbers of recently evicted pages, without a queue.
//!
//! The table stores each ghost with the logical time at which its page was evicted. A ghost is live
//! while its age is below a given number of ticks, as in section 4.2 of the S3-FIFO paper, so no
//! order need be stored. A dead ghost stays dead when that number grows. A hand visits a few cells
//! of the table at each tick and removes dead ghosts, so that there are at most a few more than
//! live ones.

use super::index::{Index, fingerprint};

/// Wraps the logical time; the hand has visited every cell long before it repeats.
const TIME_MASK: u32 = u32::MAX >> 1;
/// Cells that the hand visits per tick: it visits each cell of a table with three cells per ghost
/// once in the time in which three eighths of the capacity are evicted.
const CELLS_PER_TICK: usize = 8;

/// The pages evicted last.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    index: Index,
    time: u32,
    hand: usize,
    capacity: u32,
    /// Ghosts younger than this number of ticks are live: at most the capacity.
    window: u32,
}

impl Ghosts {
    /// Memory per ghost of the capacity in bytes.
    pub(crate) const BYTES: usize = Index::BYTES;

    fn age(now: u32, time: u32) -> u32 {
        now.wrapping_sub(time) & TIME_MASK
    }

    /// Advances the logical time by one tick.
    pub(crate) fn advance(&mut self) {
        self.time = (self.time + 1) & TIME_MASK;
        self.window = (self.window + 1).min(self.capacity);
        let (now, window) = (self.time, self.window);
        let is_live = |time| Self::age(now, time) < window;
        self.hand = self.index.sweep(self.hand, CELLS_PER_TICK, is_live);
    }

    /// Inserts `page`, which stays live for the next `capacity` ticks; the insertion itself is a
    /// tick.
    pub(crate) fn insert(&mut self, page: u64, capacity: usize) {
        self.capacity = u32::try_from(capacity).unwrap_or(TIME_MASK).min(TIME_MASK);
        self.advance();
        let (now, window) = (self.time, self.window);
        self.index.fit(capacity, |time| Self::age(now, time) < window);
        self.index.insert(fingerprint(page), self.time);
    }

    /// Removes `page`; returns its age in ticks if it was live.
    pub(crate) fn take(&mut self, page: u64) -> Option<u32> {
        let age = Self::age(self.time, self.index.remove(fingerprint(page))?);
        (age < self.window).then_some(age)
    }

    /// Asserts that the table is consistent and its size in proportion.
    pub(crate) fn check(&self) {
        self.index.check();
        let capacity = self.capacity as usize;
        // The table is replaced when the capacity is less than half of what it was; until then it
        // also has dead ghosts of the larger capacity.
        assert!(self.index.len() <= capacity * 3 + 64, "dead ghosts pile up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_is_remembered_for_as_many_turns_as_the_capacity() {
        let mut ghosts = Ghosts::default();
        for page in 0..100_000 {
            ghosts.insert(page, 50);
            if page % 97 == 0 {
                ghosts.check();
            }
        }
        assert_eq!(ghosts.take(99_949), None, "older than the capacity");
        assert_eq!(ghosts.take(99_950), Some(49));
        assert_eq!(ghosts.take(99_999), Some(0));
        assert_eq!(ghosts.take(99_999), None, "taken once, forgotten");
        (0..2).for_each(|_| ghosts.advance());
        assert_eq!(ghosts.take(99_951), None, "older by two turns");
        assert_eq!(ghosts.take(99_952), Some(49));
        assert!(ghosts.index.cells() < 50 * 6 + 64);
    }

    #[test]
    fn a_change_of_capacity_keeps_what_is_live() {
        let mut ghosts = Ghosts::default();
        for page in 0..1000 {
            ghosts.insert(page, 10 + usize::try_from(page).expect("small"));
        }
        assert!((0..1000).all(|page| ghosts.take(page).is_some()), "lost while it grew");
        (0..200).for_each(|page| ghosts.insert(page, 20));
        ghosts.check();
        assert!(ghosts.index.cells() <= 20 * 6 + 64, "it does not shrink");
    }
}
