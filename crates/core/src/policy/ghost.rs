//! Ghosts by age: page numbers of what was evicted lately, without a queue.
//!
//! Each ghost is remembered with the turn at which its page went; it is live while fewer than a
//! given number of turns went by since, which is how section 4.2 of the S3-FIFO paper keeps its
//! ghosts. So no order need be stored. What is dead stays dead when that number grows. Dead ghosts are dropped by a hand that looks at a few cells
//! of the table with each eviction, so that they are at most a few more than the live ones.

use super::index::{Index, fingerprint};

/// Turns count up to this and begin again; the hand has long passed by then.
const TURN_MASK: u32 = u32::MAX >> 1;
/// Cells that the hand looks at each turn: a table of three cells a ghost is seen once in the time
/// in which three eighths of the capacity go.
const SWEPT_PER_TURN: usize = 8;

/// The pages evicted last.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    index: Index,
    turn: u32,
    hand: usize,
    capacity: u32,
    /// Ghosts of so many turns are live: at most the capacity.
    window: u32,
}

impl Ghosts {
    /// Bytes that one ghost of the capacity needs.
    pub(crate) const BYTES: usize = Index::BYTES;

    fn age(now: u32, turn: u32) -> u32 {
        now.wrapping_sub(turn) & TURN_MASK
    }

    /// Lets a turn go by, so that all ghosts are older by one.
    pub(crate) fn advance(&mut self) {
        self.turn = (self.turn + 1) & TURN_MASK;
        self.window = (self.window + 1).min(self.capacity);
        let (now, window) = (self.turn, self.window);
        let is_live = |turn| Self::age(now, turn) < window;
        self.hand = self.index.sweep(self.hand, SWEPT_PER_TURN, is_live);
    }

    /// Remembers `page` until `capacity` more turns have gone by; this one is a turn of its own.
    pub(crate) fn remember(&mut self, page: u64, capacity: usize) {
        self.capacity = u32::try_from(capacity).unwrap_or(TURN_MASK).min(TURN_MASK);
        self.advance();
        self.fit(capacity);
        self.index.insert(fingerprint(page), self.turn);
    }

    /// Forgets `page`; how many turns went by since it was remembered, if it is live.
    pub(crate) fn take(&mut self, page: u64) -> Option<u32> {
        let age = Self::age(self.turn, self.index.remove(fingerprint(page))?);
        (age < self.window).then_some(age)
    }

    /// Keeps the table at two and a half to six cells for each ghost of the capacity.
    fn fit(&mut self, capacity: usize) {
        let cells = self.index.cells();
        if cells * 2 < capacity * 5 || cells > capacity * 6 + 64 {
            let (now, window) = (self.turn, self.window);
            let keep = |turn| Self::age(now, turn) < window;
            self.index.resize((capacity + 1) * 3, keep);
        }
    }

    /// Asserts that the table is whole and its size in proportion.
    pub(crate) fn check(&self) {
        self.index.check();
        let capacity = self.capacity as usize;
        assert!(self.index.len() <= capacity * 2 + 64, "dead ghosts pile up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_is_remembered_for_as_many_turns_as_the_capacity() {
        let mut ghosts = Ghosts::default();
        for page in 0..100_000 {
            ghosts.remember(page, 50);
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
            ghosts.remember(page, 10 + usize::try_from(page).expect("small"));
        }
        assert!((0..1000).all(|page| ghosts.take(page).is_some()), "lost while it grew");
        (0..200).for_each(|page| ghosts.remember(page, 20));
        ghosts.check();
        assert!(ghosts.index.cells() <= 20 * 6 + 64, "it does not shrink");
    }
}
