//! The dirty pages to write next, from the dirty lists of the shards.

use crate::cache::Cache;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::policy::Slot;
use crate::queue::Batch;
use crate::shard::{Instance, Page};
use crate::units::overlap;
use crate::volume::Volume;
use std::ops::Range;

/// Maximum number of pages of a shard that one batch collects under its lock: enough for long
/// sweeps over the disk, few enough to delay a miss by less than a millisecond.
const GATHER_MAX: usize = 16_384;

impl<F: Frames> Cache<F> {
    /// Collects the first blocks of pages from the old end of the dirty lists while `is_selected`
    /// accepts them, for about `blocks` blocks. Skips pages that are being written, discarded or
    /// zeroed.
    pub(super) fn gather(
        &self,
        volume: &Volume<F>,
        is_selected: impl Fn(&Page) -> bool,
        blocks: u64,
    ) -> Batch {
        self.gather_by_shard(volume, blocks, |instance, each, pages| {
            let list = instance.dirty.iter(&instance.pages).take(GATHER_MAX);
            Self::gather_from(instance, list, &is_selected, each, pages);
        })
    }

    /// Collects pages for the lazy writer: about `blocks` blocks of pages whose writeback has not
    /// failed, and with `retries` as many of those whose writeback has. So pages that cannot be
    /// written do not block the others, and each of them is retried in turn.
    pub(super) fn gather_lazily(
        &self,
        volume: &Volume<F>,
        is_selected: impl Fn(&Page) -> bool,
        blocks: u64,
        retries: bool,
    ) -> Batch {
        self.gather_by_shard(volume, blocks, |instance, each, pages| {
            let untried = instance.dirty.untried(&instance.pages).take(GATHER_MAX);
            Self::gather_from(instance, untried, &is_selected, each, pages);
            if retries {
                // The list is sorted by age, and this iterates from young to old.
                let is_young = |slot: &Slot| !is_selected(instance.pages.get(*slot));
                let failed =
                    instance.dirty.failed(&instance.pages).take(GATHER_MAX).skip_while(is_young);
                Self::gather_from(instance, failed, &is_selected, each, pages);
            }
        })
    }

    /// Calls `gather` for each shard, with the number of blocks that it may add.
    fn gather_by_shard(
        &self,
        volume: &Volume<F>,
        blocks: u64,
        gather: impl Fn(&Instance<F>, u64, &mut Vec<u64>),
    ) -> Batch {
        let mut pages = Vec::new();
        let each = blocks.div_ceil(self.shards.len() as u64);
        for mut shard in self.shards.each() {
            gather(shard.instance(volume.id), each, &mut pages);
        }
        Batch::sorted(pages)
    }

    /// Adds the first blocks of pages of `list` to `pages`, while `is_selected` accepts them, for
    /// about `left` blocks.
    fn gather_from(
        instance: &Instance<F>,
        list: impl Iterator<Item = Slot>,
        is_selected: impl Fn(&Page) -> bool,
        mut left: u64,
        pages: &mut Vec<u64>,
    ) {
        let volume = &instance.volume;
        for slot in list {
            let page = instance.pages.get(slot);
            let blocks = instance.paging.blocks_of(page.number);
            if left == 0 || !is_selected(page) {
                break;
            }
            if volume.write_order.expedite_if_held(&blocks) {
                continue;
            }
            left = left.saturating_sub(u64::from(page.dirty));
            if page.can_start_writeback() && !volume.is_exclusive(&blocks) {
                pages.push(blocks.start);
            }
        }
    }

    /// Returns the first blocks of pages of a range that became dirty at `epoch` or before,
    /// including those that cannot be written now.
    pub(super) fn gather_range(
        &self,
        volume: &Volume<F>,
        blocks: &Range<u64>,
        epoch: u64,
    ) -> Batch {
        let dirty = volume.dirty.dirty();
        let mut pages = Vec::new();
        for mut shard in self.shards.each() {
            let instance = shard.instance(volume.id);
            let is_selected = |page: &crate::shard::Page| {
                let page_blocks = instance.paging.blocks_of(page.number);
                let is_due = page.dirty > 0 && page.dirty_epoch <= epoch;
                (is_due && overlap(&page_blocks, blocks)).then_some(page_blocks.start)
            };
            let add = |slot| pages.extend(is_selected(instance.pages.get(slot)));
            if dirty < blocks.end - blocks.start {
                instance.dirty.iter(&instance.pages).for_each(add);
            } else {
                self.slots_in(instance, blocks).into_iter().for_each(add);
            }
        }
        Batch::sorted(pages)
    }

    /// Returns the time and the epoch at which the oldest dirty page became dirty.
    pub(super) fn oldest_dirty(&self, volume: &Volume<F>) -> Option<(Nanos, u64)> {
        let mut oldest: Option<(Nanos, u64)> = None;
        for mut shard in self.shards.each() {
            let instance = shard.instance(volume.id);
            let Some(slot) = instance.dirty.oldest() else { continue };
            let page = instance.pages.get(slot);
            let (at, epoch) = oldest.unwrap_or((Nanos::MAX, u64::MAX));
            oldest = Some((at.min(page.dirty_at), epoch.min(page.dirty_epoch)));
        }
        oldest
    }
}
