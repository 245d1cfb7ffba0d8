//! Warm restart: what is resident now, by heat, and reading that back into another cache later.
//!
//! A list of blocks is all that is kept; contents always come from the store, so a wrong list costs
//! reads and nothing else. It is read back by the means of read-ahead, after everything else that
//! is read: one small read at a time while clients are there, whether or not they wait for the
//! store just now, since the next of them would wait behind what was begun meanwhile; and only into
//! memory that holds nothing.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::Recorder;
use crate::frames::Frames;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::PAGE_BLOCKS_MAX;
use crate::volume::Volume;
use std::ops::Range;

/// Pages are ordered by the heat of their regions, in so many parts, and by place inside a part:
/// then they can be read back hottest first and all the same in large reads. In the order of their
/// own heat, pages that are asked for at random among their neighbours would be read one by one.
const PARTS: usize = 8;
/// Blocks of a region: those of the largest read.
const REGION_BLOCKS: u64 = PAGE_BLOCKS_MAX as u64;
/// Pages that are looked at under one hold of a shard's lock.
const SLOTS_AT_ONCE: u32 = 4096;
/// Blocks of a read while clients are there.
const SMALL_BLOCKS: u64 = 16;

impl<F: Frames> Cache<F> {
    /// The blocks of the pages of `volume` that are resident, the hottest part first, in order of
    /// place within a part; of at most `most` pages, the hottest ones. Pages of the same MiB stay
    /// together, as hot as they are on average. While it runs it takes 16 bytes for each page that
    /// it gathers, up to a quarter more than `most`.
    #[must_use]
    pub fn residents(&self, volume: &Volume<F>, now: Nanos, most: usize) -> Vec<Range<u64>> {
        let mut found: Vec<(Nanos, u64)> = Vec::new();
        let hottest_first = |page: &(Nanos, u64)| (Nanos::MAX - page.0, page.1);
        for index in 0..self.shards.len() {
            let mut first = 0;
            loop {
                let mut shard = self.shard(index);
                shard.drain(now);
                // Whoever asks may be late: then nothing of the volume is left.
                let Some(instance) = shard.instance_of(volume) else { return Vec::new() };
                if first >= instance.pages.end() {
                    break;
                }
                for slot in instance.pages.slots_in(first..first + SLOTS_AT_ONCE) {
                    let page = instance.pages.get(slot);
                    if page.resident > 0 {
                        let block = instance.paging.blocks_of(page.number).start;
                        found.push((instance.touched_at(slot), block));
                    }
                }
                drop(shard);
                first += SLOTS_AT_ONCE;
                if found.len() > most + most / 4 {
                    found.select_nth_unstable_by_key(most, hottest_first);
                    found.truncate(most);
                }
            }
        }
        if found.len() > most {
            found.select_nth_unstable_by_key(most, hottest_first);
            found.truncate(most);
        }
        // From here on a page is as hot as its region.
        found.sort_unstable_by_key(|page| page.1);
        for region in found.chunk_by_mut(|a, b| a.1 / REGION_BLOCKS == b.1 / REGION_BLOCKS) {
            let sum: u128 = region.iter().map(|page| u128::from(page.0)).sum();
            let mean = sum / region.len() as u128;
            let mean = Nanos::try_from(mean).expect("no more than the largest of them");
            for page in region {
                page.0 = mean;
            }
        }
        found.sort_unstable_by_key(hottest_first);
        // If the page size changes meanwhile, the ranges are of one size or the other: both are
        // read back, and what is read already is not read again.
        let paging = volume.paging();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let region_pages = usize::try_from(REGION_BLOCKS / u64::from(paging.page_blocks));
        let region_pages = region_pages.expect("at most 256");
        let part_pages = found.len().div_ceil(PARTS).max(region_pages);
        for part in found.chunks_mut(part_pages) {
            part.sort_unstable_by_key(|page| page.1);
            let begin = ranges.len();
            for &(_, block) in &*part {
                let blocks = paging.around(block);
                match ranges[begin..].last_mut() {
                    Some(last) if last.end == blocks.start => last.end = blocks.end,
                    _ => ranges.push(blocks),
                }
            }
        }
        ranges
    }

    /// Has `blocks` read when nothing else is to be read, in this order, as long as there is memory
    /// that holds nothing. What lies beyond the volume is left out.
    pub fn warm(&self, volume: &Volume<F>, blocks: impl IntoIterator<Item = Range<u64>>) {
        let inside = |range: Range<u64>| range.start..range.end.min(volume.blocks);
        let ranges = blocks.into_iter().map(inside).filter(|range| range.start < range.end);
        let mut queue = lock(&volume.queue);
        let before = queue.warm.len();
        queue.warm.extend(ranges);
        let more: u64 = queue.warm.range(before..).map(|range| range.end - range.start).sum();
        queue.warm_blocks += more;
        volume.has_warm.store(true, Ordering::Release);
        drop(queue);
        volume.notify.notify();
    }

    /// Whether blocks of [`Cache::warm`] are still to be read.
    #[must_use]
    pub fn is_warming(&self, volume: &Volume<F>) -> bool {
        volume.has_warm.load(Ordering::Acquire)
    }

    /// Begins reads of what is to be warm, if nothing else is to be read.
    pub(super) fn read_warm(&self, volume: &Volume<F>, recorder: &Recorder, now: Nanos) {
        if !volume.has_warm.load(Ordering::Acquire)
            || volume.has_wishes.load(Ordering::Relaxed)
            || volume.is_frozen()
        {
            return;
        }
        let (begun, depth, blocks) = {
            let queue = lock(&volume.queue);
            if !queue.ahead.is_empty() {
                return;
            }
            let last = volume.last_request();
            let is_idle = last == 0 || now >= last + volume.tunables.nanos(Tunable::IdleDelay);
            let (depth, blocks) = if queue.clients_wait() || !is_idle {
                (1, SMALL_BLOCKS)
            } else {
                (volume.tunables.get(Tunable::ReadAheadDepth), u64::from(PAGE_BLOCKS_MAX))
            };
            (queue.ahead_in_flight() as u64, depth, blocks)
        };
        for _ in begun..depth {
            let mut queue = lock(&volume.queue);
            let page_blocks = u64::from(volume.page_blocks());
            let most = Self::ahead_pages_max(volume, &queue) * page_blocks;
            let most = most.min(blocks).max(page_blocks);
            let Some(range) = queue.warm.front_mut() else {
                volume.has_warm.store(false, Ordering::Release);
                return;
            };
            let next = range.start..range.end.min(range.start + most);
            range.start = next.end;
            if range.start == range.end {
                queue.warm.pop_front();
            }
            queue.warm_blocks -= next.end - next.start;
            drop(queue);
            if volume.is_stopping() || !self.ahead(volume, (recorder, now), next, false) {
                let mut queue = lock(&volume.queue);
                queue.warm.clear();
                queue.warm_blocks = 0;
                volume.has_warm.store(false, Ordering::Release);
                return;
            }
        }
    }
}
