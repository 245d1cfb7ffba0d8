//! Pinned ranges: parts of a volume that an administrator keeps in the cache.
//!
//! They are kept as ranges of blocks, so they survive every change of policy and page size, and
//! they apply to pages that are not resident yet. The policy does not know a page that overlaps a
//! pinned range, so it never selects that page as a victim and need not skip it.

use crate::clock::Nanos;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use std::collections::BTreeMap;
use std::ops::Range;

/// The reason why a range is not pinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The range is empty or not inside the volume.
    #[error("pin bytes {bytes:?} of {volume}: it has {length}")]
    Range {
        /// The volume.
        volume: String,
        /// The requested range.
        bytes: Range<u64>,
        /// Length of the volume.
        length: u64,
    },
    /// Too little memory would remain for unpinned pages.
    #[error(
        "pin {} KiB of {volume}: {} KiB would be pinned; the limit is {} KiB, half of the memory \
         that it can have and of the memory of all volumes",
        asked_bytes >> 10, wanted_bytes >> 10, most_bytes >> 10
    )]
    TooMuch {
        /// The volume.
        volume: String,
        /// Size of the requested range.
        asked_bytes: u64,
        /// The amount that would be pinned, of this volume or of all volumes.
        wanted_bytes: u64,
        /// The maximum amount.
        most_bytes: u64,
    },
    /// The volume already has the maximum number of separate ranges.
    #[error("pin one more range of {volume}: it has {RANGES_MAX}")]
    TooMany {
        /// The volume.
        volume: String,
    },
}

/// Maximum number of pinned ranges of a volume.
pub(crate) const RANGES_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Ranges {
    /// First block and end of each range; ranges neither overlap nor touch.
    list: BTreeMap<u64, u64>,
    /// The next block to check for residency; `None` after the last one.
    next: Option<u64>,
    /// True if the scan restarts after the current lookup.
    is_restarted: bool,
    /// True if the scan has found blocks that cannot be read now.
    has_unread: bool,
    /// Earliest time of the next scan.
    next_scan_at: Nanos,
}

/// The pinned ranges of one volume, and the position of the scan that reads them in.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges {
    ranges: Mutex<Ranges>,
    /// Number of pinned blocks.
    blocks: AtomicU64,
}

/// Returns the ranges with `blocks` added or removed.
fn with_change(ranges: &BTreeMap<u64, u64>, blocks: &Range<u64>, add: bool) -> BTreeMap<u64, u64> {
    let (mut result, mut merged) = (BTreeMap::new(), blocks.clone());
    for (&start, &end) in ranges {
        let is_apart = end < blocks.start || blocks.end < start;
        if is_apart {
            result.insert(start, end);
        } else if add {
            merged = merged.start.min(start)..merged.end.max(end);
        } else {
            let parts = [start..end.min(blocks.start), start.max(blocks.end)..end];
            result.extend(parts.into_iter().filter(|p| !p.is_empty()).map(|p| (p.start, p.end)));
        }
    }
    if add {
        result.insert(merged.start, merged.end);
    }
    result
}

impl PinnedRanges {
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Returns true if a part of `page` is pinned.
    pub(crate) fn overlaps(&self, page: &Range<u64>) -> bool {
        self.blocks() > 0 && {
            let ranges = lock(&self.ranges);
            let before_end = ranges.list.range(..page.end).next_back();
            before_end.is_some_and(|(_, &end)| end > page.start)
        }
    }

    pub(crate) fn list(&self) -> Vec<Range<u64>> {
        lock(&self.ranges).list.iter().map(|(&start, &end)| start..end).collect()
    }

    /// Adds or removes a range if `check` accepts the resulting number of ranges and blocks.
    pub(crate) fn change<E>(
        &self,
        blocks: &Range<u64>,
        add: bool,
        check: impl FnOnce(usize, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut ranges = lock(&self.ranges);
        let after = with_change(&ranges.list, blocks, add);
        let count = after.iter().map(|(start, end)| end - start).sum();
        check(after.len(), count)?;
        ranges.list = after;
        if add {
            (ranges.next, ranges.next_scan_at, ranges.is_restarted) = (Some(0), 0, true);
        }
        self.blocks.store(count, Ordering::Release);
        Ok(())
    }

    /// Returns the next pinned block of the scan; or as an error the time of the next scan, if
    /// there is one.
    pub(crate) fn next(&self, now: Nanos, pause: Nanos) -> Result<u64, Option<Nanos>> {
        let mut ranges = lock(&self.ranges);
        if now < ranges.next_scan_at {
            return Err(Some(ranges.next_scan_at));
        }
        let Some(from) = ranges.next else { return Err(None) };
        ranges.is_restarted = false;
        let first = ranges.list.iter().find(|&(_, &end)| end > from);
        if let Some((&start, _)) = first {
            return Ok(start.max(from));
        }
        ranges.next = None;
        if std::mem::take(&mut ranges.has_unread) {
            (ranges.next, ranges.next_scan_at) = (Some(0), now + pause);
            return Err(Some(ranges.next_scan_at));
        }
        Err(None)
    }

    /// Records that the scan has passed all blocks before `block`; `has_unread` is true if one of
    /// them cannot be read now.
    pub(crate) fn note_lookup(&self, block: u64, has_unread: bool) {
        let mut ranges = lock(&self.ranges);
        ranges.has_unread |= has_unread;
        if !ranges.is_restarted {
            ranges.next = Some(block);
        }
    }

    /// Restarts the scan after `pause`: a pinned block was dropped or could not be read.
    pub(crate) fn rescan_after(&self, now: Nanos, pause: Nanos) {
        let mut ranges = lock(&self.ranges);
        if ranges.next.is_none() {
            (ranges.next, ranges.next_scan_at) = (Some(0), now + pause);
        } else {
            ranges.has_unread = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_cut_as_a_set_of_blocks_is() {
        let mut state = 7;
        let mut below = |n: u64| {
            state = crate::page::mix(state + 1);
            state % n
        };
        let (mut ranges, mut model) = (BTreeMap::new(), std::collections::BTreeSet::new());
        for _ in 0..5000 {
            let start = below(60);
            let blocks = start..start + 1 + below(12);
            let add = below(2) == 0;
            ranges = with_change(&ranges, &blocks, add);
            for block in blocks {
                if add {
                    model.insert(block)
                } else {
                    model.remove(&block)
                };
            }
            let listed: Vec<_> = ranges.iter().flat_map(|(&start, &end)| start..end).collect();
            assert!(listed.iter().eq(&model), "{ranges:?}");
            let ends = ranges.iter().zip(ranges.iter().skip(1));
            assert!(ends.into_iter().all(|(a, b)| a.1 < b.0), "two ranges touch: {ranges:?}");
        }
    }

    #[test]
    fn a_lost_block_is_looked_up_again_exactly_after_the_pause() {
        let pinned = PinnedRanges::default();
        pinned.change(&(3..5), true, |_, _| Ok::<_, ()>(())).unwrap();
        assert_eq!(pinned.next(10, 100), Ok(3));
        pinned.note_lookup(5, false);
        assert_eq!(pinned.next(10, 100), Err(None), "all were looked up");
        pinned.rescan_after(10, 100);
        assert_eq!(pinned.next(109, 100), Err(Some(110)));
        assert_eq!(pinned.next(110, 100), Ok(3));
    }

    #[test]
    fn an_unreadable_block_is_looked_up_again_after_all_others() {
        let pinned = PinnedRanges::default();
        pinned.change(&(3..6), true, |_, _| Ok::<_, ()>(())).unwrap();
        assert_eq!(pinned.next(10, 100), Ok(3));
        pinned.note_lookup(4, true);
        assert_eq!(pinned.next(10, 100), Ok(4), "the others first");
        pinned.note_lookup(6, false);
        assert_eq!(pinned.next(10, 100), Err(Some(110)));
        assert_eq!(pinned.next(110, 100), Ok(3));
    }
}
