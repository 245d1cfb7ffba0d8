//! An index of evicted pages: it maps the fingerprint of a page number to a number of the caller's
//! choice, in one open-addressing table.
//!
//! A cell has 8 bytes and holds a 32-bit hash instead of the page number, so two pages with the
//! same hash are treated as one: with a million ghosts, one lookup in 4,000 is wrong. Cells are in
//! the order of their fingerprints except for collisions (linear probing), so the position of a
//! cell follows from its fingerprint, and a removal moves the following cells up: no tombstones
//! remain that a later search would have to skip.

/// The value of an empty cell.
const EMPTY: u32 = u32::MAX;
/// The minimum number of cells.
const CELLS_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Cell {
    fingerprint: u32,
    value: u32,
}

const EMPTY_CELL: Cell = Cell { fingerprint: 0, value: EMPTY };

/// A table from fingerprints to values below `u32::MAX`.
#[derive(Debug, Default)]
pub(crate) struct Index {
    cells: Vec<Cell>,
    len: usize,
}

/// Returns the 32-bit fingerprint of a page.
pub(crate) fn fingerprint(page: u64) -> u32 {
    u32::try_from(crate::page::mix(page) >> 32).expect("a shifted u64")
}

impl Index {
    /// Maximum memory per entry in bytes: a table that grows is created with a load of a third.
    pub(crate) const BYTES: usize = 3 * size_of::<Cell>();

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn cells(&self) -> usize {
        self.cells.len()
    }

    fn home(&self, fingerprint: u32) -> usize {
        let scaled = (u64::from(fingerprint) * self.cells.len() as u64) >> 32;
        usize::try_from(scaled).expect("below the length of a Vec")
    }

    fn next_cell(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() { 0 } else { at + 1 }
    }

    /// Returns the cell of a fingerprint, or the empty one for its insertion.
    fn find(&self, fingerprint: u32) -> usize {
        let mut at = self.home(fingerprint);
        loop {
            let cell = self.cells[at];
            if cell.value == EMPTY || cell.fingerprint == fingerprint {
                return at;
            }
            at = self.next_cell(at);
        }
    }

    pub(crate) fn get(&self, fingerprint: u32) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let value = self.cells[self.find(fingerprint)].value;
        (value != EMPTY).then_some(value)
    }

    /// Sets the value of a fingerprint; returns the previous one.
    pub(crate) fn insert(&mut self, fingerprint: u32, value: u32) -> Option<u32> {
        debug_assert_ne!(value, EMPTY, "not a value");
        if self.len * 2 >= self.cells.len() {
            self.resize((self.len + 1) * 3, |_| true);
        }
        let at = self.find(fingerprint);
        let before = std::mem::replace(&mut self.cells[at], Cell { fingerprint, value }).value;
        self.len += usize::from(before == EMPTY);
        (before != EMPTY).then_some(before)
    }

    pub(crate) fn remove(&mut self, fingerprint: u32) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let at = self.find(fingerprint);
        let value = self.cells[at].value;
        (value != EMPTY).then(|| {
            self.vacate(at);
            value
        })
    }

    /// Empties a cell and moves up the cells that a search would no longer find.
    fn vacate(&mut self, mut hole: usize) {
        self.len -= 1;
        let mut at = hole;
        loop {
            at = self.next_cell(at);
            let cell = self.cells[at];
            if cell.value == EMPTY {
                break;
            }
            // The cell may move up unless its home lies behind the hole, in cyclic order.
            let first = self.home(cell.fingerprint);
            let is_behind =
                if hole < at { hole < first && first <= at } else { hole < first || first <= at };
            if !is_behind {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY_CELL;
    }

    /// Visits `count` cells starting at `hand` and removes those whose value `keep` rejects;
    /// returns the next hand.
    pub(crate) fn sweep(
        &mut self,
        mut hand: usize,
        count: usize,
        keep: impl Fn(u32) -> bool,
    ) -> usize {
        for _ in 0..count.min(self.cells.len()) {
            if hand >= self.cells.len() {
                hand = 0;
            }
            let value = self.cells[hand].value;
            if value == EMPTY || keep(value) {
                hand += 1;
            } else {
                // Another cell may have moved here, so the hand stays.
                self.vacate(hand);
            }
        }
        hand
    }

    /// Keeps the table at two and a half to six cells for each of `capacity` entries; a table that
    /// is replaced receives those values that `keep` accepts.
    pub(crate) fn fit(&mut self, capacity: usize, keep: impl Fn(u32) -> bool) {
        let cells = self.cells();
        if cells * 2 < capacity * 5 || cells > capacity * 6 + 64 {
            self.resize((capacity + 1) * 3, keep);
        }
    }

    /// Creates a table of `count` cells with those values that `keep` accepts.
    pub(crate) fn resize(&mut self, count: usize, keep: impl Fn(u32) -> bool) {
        let new = vec![EMPTY_CELL; count.max(CELLS_MIN)];
        let old = std::mem::replace(&mut self.cells, new);
        self.len = 0;
        for cell in old.into_iter().filter(|cell| cell.value != EMPTY && keep(cell.value)) {
            let at = self.find(cell.fingerprint);
            self.cells[at] = cell;
            self.len += 1;
        }
    }

    /// Asserts that a search finds every cell by its fingerprint and that the length is right.
    pub(crate) fn check(&self) {
        let mut count = 0;
        for (at, cell) in self.cells.iter().enumerate().filter(|(_, cell)| cell.value != EMPTY) {
            assert_eq!(self.find(cell.fingerprint), at, "the cell of {:#x}", cell.fingerprint);
            count += 1;
        }
        assert_eq!(count, self.len, "entries of an index");
        assert!(count < self.cells.len().max(1), "an index without an empty cell");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::mix;
    use std::collections::BTreeMap;

    #[test]
    fn an_index_does_what_a_map_does() {
        let (mut index, mut map) = (Index::default(), BTreeMap::new());
        let mut state = 1;
        for round in 0..20_000u32 {
            state = mix(state + 1);
            // Few homes, so that runs of collisions are long and wrap around the end.
            let fingerprint = u32::MAX - u32::try_from(state % 97).expect("small");
            match (state >> 32) % 5 {
                0 | 1 => {
                    assert_eq!(index.insert(fingerprint, round), map.insert(fingerprint, round));
                }
                2 => assert_eq!(index.remove(fingerprint), map.remove(&fingerprint)),
                3 => assert_eq!(index.get(fingerprint), map.get(&fingerprint).copied()),
                _ if round % 50 == 0 => {
                    let cells = index.cells();
                    let mut hand = 0;
                    for _ in 0..4 {
                        hand = index.sweep(hand, cells, |value| value % 3 != 0);
                    }
                    map.retain(|_, value| *value % 3 != 0);
                }
                _ => {}
            }
            index.check();
            assert_eq!(index.len(), map.len());
        }
    }
}
