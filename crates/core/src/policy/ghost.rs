//! Ghosts: page numbers of what was evicted lately, in memory proportional to the cache.
//!
//! An open-addressing table of 8-byte entries, a fingerprint and the turn at which the page went.
//! A page is remembered while fewer than the queue's capacity of pages went after it, so the queue
//! itself need not be stored; entries whose turn has passed are overwritten. Two pages with the
//! same 32-bit fingerprint in one probe window are taken for the same page: at most one admission
//! in 2^28 errs.

const WINDOW: usize = 8;
const ENTRIES_MIN: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    fingerprint: u32,
    turn: u32,
}

/// The pages evicted last.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    entries: Vec<Entry>,
    /// Counts evictions; 0 is "never".
    turn: u32,
    capacity: u32,
}

impl Ghosts {
    fn window(&self, page: u64) -> (usize, u32) {
        let hash = crate::page::mix(page);
        let fingerprint = u32::try_from(hash >> 32).expect("a shifted u64") | 1;
        let mask = self.entries.len() - 1;
        (usize::try_from(hash & 0xffff_ffff).expect("32 bits") & mask & !(WINDOW - 1), fingerprint)
    }

    fn is_live(&self, entry: Entry) -> bool {
        entry.turn != 0 && self.turn.wrapping_sub(entry.turn) < self.capacity
    }

    /// Remembers `page` until `capacity` more pages went.
    pub(crate) fn remember(&mut self, page: u64, capacity: usize) {
        self.fit(capacity);
        self.turn = self.turn.wrapping_add(1).max(1);
        let (start, fingerprint) = self.window(page);
        let turn = self.turn;
        let slot = (start..start + WINDOW)
            .min_by_key(|&i| {
                let entry = self.entries[i];
                let same = entry.fingerprint == fingerprint && entry.turn != 0;
                if same {
                    (0, 0)
                } else if self.is_live(entry) {
                    (2, entry.turn)
                } else {
                    (1, 0)
                }
            })
            .expect("a window is not empty");
        self.entries[slot] = Entry { fingerprint, turn };
    }

    /// Whether `page` is remembered; if so it is forgotten.
    pub(crate) fn take(&mut self, page: u64) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let (start, fingerprint) = self.window(page);
        for i in start..start + WINDOW {
            let entry = self.entries[i];
            if entry.fingerprint == fingerprint && self.is_live(entry) {
                self.entries[i] = Entry::default();
                return true;
            }
        }
        false
    }

    /// Grows the table to twice the capacity, keeping what is live.
    fn fit(&mut self, capacity: usize) {
        self.capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let wanted = (capacity * 2).next_power_of_two().max(ENTRIES_MIN);
        if wanted <= self.entries.len() {
            return;
        }
        // The window of an entry is not known from the entry alone; a table that doubles starts
        // empty. It happens only while the cache grows, when few pages are evicted.
        self.entries = vec![Entry::default(); wanted];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_is_remembered_for_as_many_evictions_as_the_capacity() {
        let mut ghosts = Ghosts::default();
        for page in 0..100 {
            ghosts.remember(page, 50);
        }
        assert!((0..50).all(|page| !ghosts.take(page)), "older than the capacity");
        let kept = (50..100).filter(|&page| ghosts.take(page)).count();
        assert!(kept >= 48, "only {kept} of 50 remembered");
        assert!(!ghosts.take(99), "taken once, forgotten");
    }
}
