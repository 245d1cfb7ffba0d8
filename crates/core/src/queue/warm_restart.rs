//! Blocks to read for a warm restart: in order, hottest first, and by position, so that a miss of a
//! client can include the listed neighbors of its page.

use std::collections::VecDeque;
use std::ops::Range;

/// Ranges of blocks to read.
#[derive(Debug, Default)]
pub(crate) struct WarmRestartList {
    order: VecDeque<Range<u64>>,
    /// All ranges sorted by position, kept until the last one is taken: a range that was read
    /// already is resident, so it costs nothing.
    by_position: Vec<Range<u64>>,
    blocks: u64,
}

impl WarmRestartList {
    /// Appends ranges, which must not be empty.
    pub(crate) fn extend(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        for range in ranges {
            self.blocks += range.end - range.start;
            self.by_position.push(range.clone());
            self.order.push_back(range);
        }
        // Of ranges with the same start, a lookup finds the last one, which is the longest.
        self.by_position.sort_unstable_by_key(|range| (range.start, range.end));
    }

    /// Takes the next blocks in order, at most `blocks_max`.
    pub(crate) fn take(&mut self, blocks_max: u64) -> Option<Range<u64>> {
        let Some(range) = self.order.front_mut() else {
            self.by_position.clear();
            return None;
        };
        let next = range.start..range.end.min(range.start + blocks_max);
        range.start = next.end;
        if range.start == range.end {
            self.order.pop_front();
        }
        self.blocks -= next.end - next.start;
        Some(next)
    }

    /// Returns the range that contains `block`, if there is one.
    pub(crate) fn around(&self, block: u64) -> Option<Range<u64>> {
        let behind = self.by_position.partition_point(|range| range.start <= block);
        let found = &self.by_position[behind.checked_sub(1)?];
        found.contains(&block).then(|| found.clone())
    }

    /// Returns the number of blocks still to read.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn clear(&mut self) {
        *self = WarmRestartList::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_in_order_and_found_by_place() {
        let mut warm = WarmRestartList::default();
        warm.extend([100..110, 0..4].into_iter());
        assert_eq!((warm.blocks(), warm.around(109), warm.around(110)), (14, Some(100..110), None));
        assert_eq!(warm.take(8), Some(100..108));
        assert_eq!((warm.take(8), warm.blocks()), (Some(108..110), 4));
        assert_eq!(warm.around(3), Some(0..4));
        assert_eq!((warm.take(8), warm.take(8), warm.blocks()), (Some(0..4), None, 0));
        assert_eq!(warm.around(3), None, "all has been read");
    }

    #[test]
    fn the_longer_one_of_two_from_the_same_place_is_found() {
        let mut warm = WarmRestartList::default();
        warm.extend([5..9, 5..7].into_iter());
        assert_eq!(warm.around(8), Some(5..9));
        warm.clear();
        assert_eq!((warm.around(5), warm.blocks()), (None, 0));
    }
}
