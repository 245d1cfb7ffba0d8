//! Unwritten data: the blocks of a volume that a crash now would lose, and the ranges that cannot
//! be written.
//!
//! This code changes nothing. It locks one shard at a time, so its result is not a snapshot of one
//! moment.

use super::Cache;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::page::Paging;
use crate::shard::Page;
use crate::store::StoreError;
use crate::sync::lock;
use crate::volume::Volume;
use std::ops::Range;

/// Maximum number of pages of a shard's dirty list that are examined under its lock. Pages whose
/// write has failed are at the old end, so this finds them unless there are more.
const PAGES_SCAN_MAX: usize = 16_384;

/// Data of a volume that its store does not have yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtRisk {
    /// Number of blocks newer than the store, dirty or being written.
    pub blocks: u64,
    /// Number of those that are being written.
    pub writing_blocks: u64,
    /// Number of those whose last write has failed.
    pub failing_blocks: u64,
    /// Maximum of `blocks` with the present settings: the dirty limit, and the blocks beyond it
    /// that cannot be written. After the limit was lowered, at least `blocks`.
    pub blocks_max: u64,
    /// Time at which the oldest dirty page became dirty, on the clock of the calls.
    pub oldest: Option<Nanos>,
    /// Bytes of pages whose last write has failed: sorted, joined, at most as many ranges as
    /// requested.
    pub failing: Vec<Range<u64>>,
    /// The last error of a write or flush, while writes are failing.
    pub error: Option<StoreError>,
    /// The reason why the store can no longer be flushed, if so; the lost data is unknown.
    pub flush_failed: Option<StoreError>,
}

impl<F: Frames> Cache<F> {
    /// Returns the unwritten data of `volume`, with at most `ranges_max` failing ranges.
    #[must_use]
    pub fn at_risk(&self, volume: &Volume<F>, ranges_max: usize) -> AtRisk {
        let (mut under_writeback, flush_failed) = {
            let queue = lock(&volume.queue);
            (queue.pages_under_writeback(), queue.flush_failed.clone())
        };
        let mut oldest: Option<Nanos> = None;
        let mut failing = Vec::new();
        let is_broken = volume.broken().is_some();
        let mut failing_left = volume.dirty.failing();
        if is_broken {
            // No data of a broken volume can be written.
            failing_left = u64::MAX;
        }
        let pages_max = if is_broken { usize::MAX } else { PAGES_SCAN_MAX };
        let mut inspect = |page: &Page, paging: Paging| {
            oldest = Some(oldest.map_or(page.dirty_at, |oldest| oldest.min(page.dirty_at)));
            if page.failing > 0 || is_broken {
                failing.push(paging.blocks_of(page.number));
                failing_left = failing_left.saturating_sub(page.failing.into());
            }
            failing_left
        };
        for mut shard in self.shards.each() {
            // The volume may have been removed since the caller found it.
            let Some(instance) = shard.instance_of(volume) else { continue };
            for slot in instance.dirty.iter(&instance.pages).take(pages_max) {
                // The first page is the oldest.
                if inspect(instance.pages.get(slot), instance.paging) == 0 {
                    break;
                }
            }
        }
        // A writeback that began in the meantime may have removed its page from a list before the
        // list was examined.
        under_writeback.extend(lock(&volume.queue).pages_under_writeback());
        for page in under_writeback {
            // If the page size has changed since, this finds no page, or another one.
            let first = volume.paging().blocks_of(page).start.min(volume.blocks - 1);
            let mut shard = self.shard_of(volume, first);
            let Some(instance) = shard.instance_of(volume) else { continue };
            if let Some(slot) = instance.find(&self.table, page)
                && let page = instance.pages.get(slot)
                && page.writing + page.dirty > 0
            {
                inspect(page, instance.paging);
            }
        }
        let blocks = volume.unclean_blocks();
        AtRisk {
            blocks,
            writing_blocks: volume.dirty.writing(),
            failing_blocks: if is_broken { blocks } else { volume.dirty.failing() },
            blocks_max: volume.unclean_blocks_max().max(blocks),
            oldest,
            failing: joined(volume, failing, ranges_max),
            error: volume.broken().cloned().or_else(|| volume.failure()),
            flush_failed,
        }
    }
}

/// Returns the bytes of these blocks in as few ranges as possible.
pub(super) fn joined<F: Frames>(
    volume: &Volume<F>,
    mut pages: Vec<Range<u64>>,
    ranges_max: usize,
) -> Vec<Range<u64>> {
    pages.sort_unstable_by_key(|blocks| blocks.start);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for blocks in pages {
        let bytes = volume.bytes_of_range(&blocks);
        let is_adjacent = ranges.last().is_some_and(|last| last.end >= bytes.start);
        if let Some(last) = ranges.last_mut().filter(|_| is_adjacent) {
            last.end = last.end.max(bytes.end);
        } else if ranges.len() < ranges_max {
            ranges.push(bytes);
        } else {
            break;
        }
    }
    ranges
}
