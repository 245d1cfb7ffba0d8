//! Lists of the cached pages of a volume: all of them for displays, and the hottest ones for a warm
//! restart.

use super::Cache;
use super::fill::range_len;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::input::{Input, Query};
use crate::shard::Instance;
use crate::units::{PAGE_BLOCKS_MAX, regions};
use crate::volume::Volume;
use std::ops::Range;

/// Number of classes by heat. Pages are sorted by the heat class of their region, and by position
/// inside a class. So they are read back hottest first, and still in large reads. If they were
/// sorted by their own heat, pages with random references among their neighbors would be read one
/// by one.
const HEAT_CLASSES: usize = 8;
/// Blocks of a region: those of the largest read.
const REGION_BLOCKS: u64 = PAGE_BLOCKS_MAX as u64;

/// A page with resident blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCensus {
    /// Its first block.
    pub block: u64,
    /// Number of its resident blocks.
    pub resident: u64,
    /// Number of these that the store does not have yet, dirty or being written.
    pub unclean: u64,
}

impl<F: Frames> Cache<F> {
    /// Calls `visit` for each page of `volume` with resident blocks, in no particular order. Pages
    /// that enter or leave in the meantime may be missing.
    pub fn census(&self, volume: &Volume<F>, mut visit: impl FnMut(PageCensus)) {
        let census = |instance: &Instance<F>, slot| {
            let page = instance.pages.get(slot);
            PageCensus {
                block: instance.paging.blocks_of(page.number).start,
                resident: page.resident.into(),
                unclean: u64::from(page.dirty) + u64::from(page.writing),
            }
        };
        self.shards
            .visit_pages(volume, None, census, |pages| pages.into_iter().for_each(&mut visit));
    }

    /// Returns the number of `blocks` of a volume that are completely valid in the cache.
    #[must_use]
    pub fn count_resident(&self, volume: &Volume<F>, blocks: Range<u64>) -> u64 {
        let count = |region: Range<u64>| {
            let _shard = self.shard_of(volume, region.start);
            (range_len(&region) - self.count_absent(volume.id, &region)) as u64
        };
        regions(blocks).map(count).sum()
    }

    /// Returns the blocks of the resident pages of `volume`, the hottest class first, in order of
    /// position inside a class; of at most `pages_max` pages, the hottest ones. Pages of the same
    /// MiB stay together, with their average heat. The call needs 16 bytes for each page that it
    /// collects, up to a quarter more than `pages_max`.
    #[must_use]
    pub fn residents(&self, volume: &Volume<F>, now: Nanos, pages_max: usize) -> Vec<Range<u64>> {
        let query = || Input::Query { volume: volume.id, query: Query::Residents(pages_max), now };
        let _logged = self.log.add(query);
        let mut found: Vec<(Nanos, u64)> = Vec::new();
        let hottest_first = |page: &(Nanos, u64)| (Nanos::MAX - page.0, page.1);
        let keep_hottest = |found: &mut Vec<(Nanos, u64)>, limit: usize| {
            if found.len() > limit {
                found.select_nth_unstable_by_key(pages_max, hottest_first);
                found.truncate(pages_max);
            }
        };
        let heat = |instance: &Instance<F>, slot| {
            let block = instance.paging.blocks_of(instance.pages.get(slot).number).start;
            (instance.references.last_at(slot), block)
        };
        let is_there = self.shards.visit_pages(volume, Some(now), heat, |pages| {
            found.extend(pages);
            keep_hottest(&mut found, pages_max.saturating_add(pages_max / 4));
        });
        if !is_there {
            return Vec::new();
        }
        keep_hottest(&mut found, pages_max);
        // From here on each page has the heat of its region.
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
        // If the page size changes in the meantime, the ranges have either size: both are read
        // back, and resident blocks are not read again.
        let paging = volume.paging();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let region_pages = usize::try_from(REGION_BLOCKS / u64::from(paging.page_blocks));
        let region_pages = region_pages.expect("at most 256");
        let class_pages = found.len().div_ceil(HEAT_CLASSES).max(region_pages);
        for class in found.chunks_mut(class_pages) {
            class.sort_unstable_by_key(|page| page.1);
            let begin = ranges.len();
            for &(_, block) in &*class {
                let blocks = paging.around(block);
                match ranges[begin..].last_mut() {
                    Some(last) if last.end == blocks.start => last.end = blocks.end,
                    _ => ranges.push(blocks),
                }
            }
        }
        ranges
    }
}
