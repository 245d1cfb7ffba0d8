//! Ranges of a volume that are being discarded or zeroed.
//!
//! A poll visits only ranges that have become ready, and a lookup takes logarithmic time in the
//! number of ranges. Two invariants make that possible; [`super::Queue::check`] verifies them:
//!
//! * The ranges are disjoint. An operation whose range overlaps another one stalls, and its session
//!   retries it.
//! * No fill and no write-back begins in a page that overlaps a range. Those in progress when the
//!   range is added are counted then, and each is subtracted when it ends. At 0 the range is ready
//!   for the store, and stays ready.

use crate::completion::CompletionQueue;
use crate::frames::Frames;
use crate::store::StoreOpKind;
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::ops::Range;

/// A range that is being discarded or zeroed. No block of it is filled, written back or written to
/// until the store has completed the operation, and resident blocks stay until then.
#[derive(Debug)]
pub(crate) struct ExclusiveRange<F: Frames> {
    pub(crate) blocks: Range<u64>,
    pub(crate) kind: StoreOpKind,
    pub(crate) epoch: u64,
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) token: u64,
}

/// The exclusive ranges of one volume, by first block.
#[derive(Debug)]
pub(crate) struct ExclusiveRanges<F: Frames> {
    /// The ranges with their numbers of fills and write-backs in progress.
    by_start: BTreeMap<u64, (ExclusiveRange<F>, usize)>,
    /// First blocks of ranges that can be submitted to the store.
    ready: Vec<u64>,
}

impl<F: Frames> ExclusiveRanges<F> {
    pub(super) fn new() -> Self {
        ExclusiveRanges { by_start: BTreeMap::new(), ready: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Returns whether a range overlaps `blocks`.
    pub(super) fn overlaps(&self, blocks: &Range<u64>) -> bool {
        // Of disjoint ranges, the last that starts before the end of `blocks` ends last.
        let last = self.by_start.range(..blocks.end).next_back();
        last.is_some_and(|(_, (range, _))| blocks.start < range.blocks.end)
    }

    /// Adds a range that overlaps no other and has this many outstanding fills and write-backs.
    pub(super) fn insert(&mut self, range: ExclusiveRange<F>, outstanding: usize) {
        debug_assert!(!self.overlaps(&range.blocks), "{:?} overlaps another", range.blocks);
        let start = range.blocks.start;
        if outstanding == 0 {
            self.ready.push(start);
        }
        self.by_start.insert(start, (range, outstanding));
    }

    /// Subtracts a fill or a write-back of `blocks` from the ranges in which it was counted.
    pub(super) fn end_operation(&mut self, blocks: &Range<u64>) {
        let before = self.by_start.range_mut(..blocks.end).rev();
        let overlapping = before.take_while(|(_, (range, _))| blocks.start < range.blocks.end);
        for (&start, (_, outstanding)) in overlapping {
            *outstanding = outstanding.checked_sub(1).expect("an operation that has been counted");
            if *outstanding == 0 {
                self.ready.push(start);
            }
        }
    }

    /// Takes the first blocks of the ranges that have become ready since the last call.
    pub(crate) fn take_ready(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn get(&self, start: u64) -> &ExclusiveRange<F> {
        &self.by_start.get(&start).expect("an exclusive range").0
    }

    pub(super) fn remove(&mut self, start: u64) -> ExclusiveRange<F> {
        self.by_start.remove(&start).expect("an exclusive range").0
    }

    /// Asserts the invariants. `count` returns the number of operations in progress in a range;
    /// `submitted` are the first blocks of the ranges that the store has.
    pub(super) fn check(&self, count: impl Fn(&Range<u64>) -> usize, submitted: &[u64]) {
        let mut end = 0;
        let mut complete = Vec::new();
        for (&start, (range, outstanding)) in &self.by_start {
            let blocks = &range.blocks;
            assert!(start == blocks.start && end <= start, "{blocks:?} overlaps another range");
            end = blocks.end;
            assert_eq!(*outstanding, count(blocks), "operations under way in {blocks:?}");
            if *outstanding == 0 {
                complete.push(start);
            }
        }
        let mut known = [&self.ready, submitted].concat();
        known.sort_unstable();
        assert_eq!(known, complete, "ranges that are ready, and ranges that the store has");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::NoWaker;
    use crate::frames::PlainFrames;

    fn range(blocks: Range<u64>) -> ExclusiveRange<PlainFrames> {
        let completions = Arc::new(CompletionQueue::new(Box::new(NoWaker), 0));
        ExclusiveRange { blocks, kind: StoreOpKind::Discard, epoch: 1, completions, token: 0 }
    }

    #[test]
    fn a_look_up_finds_each_range_that_overlaps() {
        let mut ranges = ExclusiveRanges::new();
        let added = [8..9, 1..2, 20..30, 4..8];
        for blocks in added.clone() {
            assert!(!ranges.overlaps(&blocks));
            ranges.insert(range(blocks), 0);
        }
        for (start, end) in (0..34).flat_map(|start| (start + 1..35).map(move |end| (start, end))) {
            let expected = added.iter().any(|range| range.start < end && start < range.end);
            assert_eq!(ranges.overlaps(&(start..end)), expected, "{start}..{end}");
        }
        ranges.remove(20);
        assert!(!ranges.overlaps(&(9..35)) && ranges.overlaps(&(8..35)));
    }

    #[test]
    fn a_range_is_ready_once_when_its_last_operation_has_ended() {
        let mut ranges = ExclusiveRanges::new();
        ranges.insert(range(0..2), 0);
        ranges.insert(range(3..5), 1);
        ranges.insert(range(6..9), 2);
        assert_eq!(ranges.take_ready(), [0]);
        ranges.end_operation(&(4..8));
        assert_eq!(ranges.take_ready(), [3]);
        ranges.end_operation(&(5..6));
        ranges.end_operation(&(9..12));
        assert_eq!(ranges.take_ready(), [], "nothing of these operations is in a range");
        ranges.end_operation(&(8..12));
        assert_eq!(ranges.take_ready(), [6]);
        assert_eq!(ranges.take_ready(), []);
    }

    #[test]
    #[should_panic(expected = "an operation that has been counted")]
    fn an_operation_that_began_in_a_range_is_an_error() {
        let mut ranges = ExclusiveRanges::new();
        ranges.insert(range(0..2), 0);
        ranges.end_operation(&(1..2));
    }
}
