//! Changes that the server may still lose: everything that it has answered since the last flush,
//! with its data.
//!
//! A server that was restarted behind a broken connection may have lost any of them, and the
//! protocol does not report that. So the store sends all of them again, in their order, before
//! anything else. Invariants: an entry stays until a flush that was sent after its reply has
//! succeeded; the bytes of all entries are bounded by the room that the caller checks before it
//! sends.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of an entry besides its data.
const ENTRY_BYTES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Write(Vec<u8>),
    Zero { keep_allocated: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) range: Range<u64>,
    pub(super) change: Change,
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match &self.change {
                Change::Write(data) => data.len(),
                Change::Zero { .. } => 0,
            }
    }
}

/// Changes that were answered and not flushed, in the order of the replies.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Number of entries that were dropped, which is the number of the first remaining one.
    first: u64,
}

impl Journal {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, range: Range<u64>, change: Change) {
        let entry = Entry { range, change };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
    }

    /// Returns the number after the last entry, up to which a flush that is sent now covers.
    pub(super) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(super) fn start(&self) -> u64 {
        self.first
    }

    /// Drops the entries before `end`, which are stable. Returns the buffer of one of them for
    /// reuse.
    pub(super) fn drop_flushed(&mut self, end: u64) -> Option<Vec<u8>> {
        let mut spare = None;
        while self.first < end
            && let Some(entry) = self.entries.pop_front()
        {
            self.first += 1;
            self.bytes -= entry.bytes();
            if let Change::Write(data) = entry.change {
                spare = Some(data);
            }
        }
        spare
    }

    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_drops_what_was_there_when_it_was_sent() {
        let mut journal = Journal::default();
        for block in 0..5u64 {
            journal.push(block * 10..block * 10 + 10, Change::Write(vec![1; 10]));
        }
        let covered = journal.end();
        journal.push(0..10, Change::Write(vec![2; 10]));
        journal.push(20..30, Change::Zero { keep_allocated: true });
        assert_eq!(journal.bytes(), 60 + 7 * ENTRY_BYTES);
        assert_eq!(journal.drop_flushed(covered), Some(vec![1; 10]));
        assert_eq!((journal.start(), journal.end()), (5, 7));
        let kept = Entry { range: 0..10, change: Change::Write(vec![2; 10]) };
        assert_eq!(journal.get(5), Some(&kept));
        assert_eq!((journal.get(4), journal.get(7)), (None, None));
        // An earlier flush that completes later covers nothing more.
        assert_eq!(journal.drop_flushed(3), None);
        assert_eq!(journal.bytes(), 10 + 2 * ENTRY_BYTES);
        journal.drop_flushed(7);
        assert!(journal.is_empty() && journal.bytes() == 0);
    }
}
