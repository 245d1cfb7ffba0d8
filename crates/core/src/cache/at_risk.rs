//! What is at risk: what a crash now would lose of a volume, and which ranges cannot be written.
//!
//! Looks, and changes nothing. Locks one shard at a time, so what it tells was so within the call
//! and not all at one moment.

use super::Cache;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::page::{Key, Paging};
use crate::shard::Page;
use crate::store::StoreError;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::units::BLOCK_BYTES_U64;
use crate::volume::Volume;
use std::ops::Range;

/// How many pages of a shard's dirty list are looked at under its lock. Pages whose write failed
/// are at its old end, so this finds them unless there are more.
const PAGES_SCAN_MAX: usize = 16_384;

/// What of a volume its store does not have yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtRisk {
    /// Blocks newer than the store, being written or not.
    pub blocks: u64,
    /// Those of them that are being written.
    pub writing_blocks: u64,
    /// Those of them whose last write failed.
    pub failing_blocks: u64,
    /// At most so many blocks are at risk at any time, as long as the settings stay: those up to
    /// the dirty limit, and what can go beyond it because it cannot be written. After the limit was
    /// lowered, as many as are at risk now.
    pub blocks_max: u64,
    /// When the page became dirty that is so for the longest time, on the clock of the calls.
    pub oldest: Option<Nanos>,
    /// Bytes of pages whose last write failed: sorted, joined, at most as many as asked for.
    pub failing: Vec<Range<u64>>,
    /// The last error of a write or flush, while writes are failing.
    pub error: Option<StoreError>,
    /// Why the store cannot be flushed any more, if so: what it lost is not known.
    pub flush_failed: Option<StoreError>,
}

impl<F: Frames> Cache<F> {
    /// What of `volume` its store does not have yet, with at most `ranges_max` failing ranges.
    #[must_use]
    pub fn at_risk(&self, volume: &Volume<F>, ranges_max: usize) -> AtRisk {
        let (mut under_writeback, flush_failed) = {
            let queue = lock(&volume.queue);
            (queue.pages_under_writeback(), queue.flush_failed.clone())
        };
        let mut oldest: Option<Nanos> = None;
        let mut failing = Vec::new();
        let is_broken = volume.broken().is_some();
        let mut failing_left = volume.failing.load(Ordering::Acquire);
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
        for index in 0..self.shards.len() {
            let mut shard = self.shard(index);
            // A volume may have been taken away since the caller found it.
            let Some(Some(instance)) = shard.instances.get_mut(usize::from(volume.id)) else {
                continue;
            };
            for slot in instance.dirty_pages().take(pages_max) {
                // The first is the oldest.
                if inspect(instance.pages.get(slot), instance.paging) == 0 {
                    break;
                }
            }
        }
        // What began to be written meanwhile may have left a list before that was looked at.
        under_writeback.extend(lock(&volume.queue).pages_under_writeback());
        for page in under_writeback {
            // Should the page size have changed since, the page is not found, or is another one.
            let first =
                Key::new(volume.id, volume.paging().blocks_of(page).start.min(volume.blocks - 1));
            let mut shard = self.shard(self.table.shard(first));
            let Some(Some(instance)) = shard.instances.get_mut(usize::from(volume.id)) else {
                continue;
            };
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
            writing_blocks: volume.writing.load(Ordering::Acquire),
            failing_blocks: if is_broken { blocks } else { volume.failing.load(Ordering::Acquire) },
            blocks_max: volume.unclean_blocks_max().max(blocks),
            oldest,
            failing: joined(volume, failing, ranges_max),
            error: volume.broken().cloned().or_else(|| volume.failure()),
            flush_failed,
        }
    }
}

/// The bytes of these blocks, as few ranges as it takes.
fn joined<F: Frames>(
    volume: &Volume<F>,
    mut pages: Vec<Range<u64>>,
    ranges_max: usize,
) -> Vec<Range<u64>> {
    pages.sort_unstable_by_key(|blocks| blocks.start);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for blocks in pages {
        let end = (blocks.end * BLOCK_BYTES_U64).min(volume.geometry().length);
        let bytes = blocks.start * BLOCK_BYTES_U64..end;
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
