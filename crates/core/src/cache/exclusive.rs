//! Discard and zero operations: ranges that change in the store and not through the cache.
//!
//! Such a range waits until no block of it is being filled or written back, and blocks new fills
//! and writes. Resident blocks stay, even dirty ones, until the store has completed the operation:
//! if the store fails, no data is lost.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::page::BlockKey;
use crate::policy::Slot;
use crate::queue::{Context, ExclusiveRange};
use crate::read_write::Status;
use crate::shard::Instance;
use crate::store::{StoreError, StoreErrorKind, StoreOpKind};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};
use crate::units::BLOCK_BYTES_U64;
use crate::volume::{Call, Volume, VolumeHandle};
use std::ops::Range;

/// A range of bytes split at block boundaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCut {
    /// Bytes before the first whole block; a zero operation writes them as zeros, a discard ignores
    /// them.
    pub head: Range<u64>,
    /// Whole blocks.
    pub blocks: Range<u64>,
    /// Bytes after the last whole block.
    pub tail: Range<u64>,
}

/// Splits `bytes` of a volume of `length` bytes. A short last block counts as a whole one.
#[must_use]
pub fn cut(bytes: Range<u64>, length: u64) -> BlockCut {
    let first = bytes.start.div_ceil(BLOCK_BYTES_U64);
    let end = if bytes.end == length {
        bytes.end.div_ceil(BLOCK_BYTES_U64)
    } else {
        bytes.end / BLOCK_BYTES_U64
    };
    if first >= end {
        let nothing = bytes.end..bytes.end;
        return BlockCut { head: bytes, blocks: 0..0, tail: nothing };
    }
    let tail_start = (end * BLOCK_BYTES_U64).min(bytes.end);
    BlockCut {
        head: bytes.start..first * BLOCK_BYTES_U64,
        blocks: first..end,
        tail: tail_start..bytes.end,
    }
}

impl<F: Frames> Cache<F> {
    /// Discards or zeroes whole blocks, depending on `kind`; the completion carries `token`.
    ///
    /// # Panics
    /// If `kind` is another operation, or the range is empty or not inside the volume.
    pub(crate) fn discard_or_zero(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        kind: StoreOpKind,
        blocks: Range<u64>,
        token: u64,
    ) -> Status {
        let volume = &handle.volume;
        volume.note_request(now);
        assert!(matches!(kind, StoreOpKind::Discard | StoreOpKind::Zero { .. }), "{kind:?}");
        assert!(blocks.start < blocks.end && blocks.end <= volume.blocks, "{blocks:?}");
        let mut queue = lock(&volume.queue);
        if queue.is_exclusive(&blocks) {
            drop(queue);
            self.stall(handle);
            return Status::Stalled;
        }
        let epoch = volume.dirty.epoch();
        let completions = Arc::clone(&handle.completions);
        queue.add_exclusive(ExclusiveRange { blocks, kind, epoch, completions, token });
        volume.exclusives.fetch_add(1, Ordering::AcqRel);
        drop(queue);
        volume.waker.wake();
        Status::Pending
    }

    /// Queues the operations of the ranges that are ready.
    pub(super) fn submit_exclusives(volume: &Volume<F>, now: Nanos) {
        if volume.exclusives.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut queue = lock(&volume.queue);
        for start in queue.exclusives.take_ready() {
            let &ExclusiveRange { ref blocks, kind, .. } = queue.exclusives.get(start);
            let bytes = volume.bytes_of_range(blocks);
            let context = Context::Exclusive { start };
            let op = queue.operation(kind, bytes, Vec::new(), context, now);
            queue.forced.push_back(op);
        }
    }

    /// Ends the range that starts at `start`; the store has discarded or zeroed it, or failed to.
    pub(super) fn exclusive_done(&self, call: &Call<'_, F>, start: u64, error: Option<StoreError>) {
        let Call { volume, recorder, now } = *call;
        let blocks = lock(&volume.queue).exclusives.get(start).blocks.clone();
        if error.is_none() {
            self.drop_range(volume, &blocks);
        }
        let mut queue = lock(&volume.queue);
        let ExclusiveRange { kind, completions, token, .. } = queue.remove_exclusive(start);
        volume.exclusives.fetch_sub(1, Ordering::AcqRel);
        // From now on a front end may use the range for other data.
        let pages = volume.paging().pages_of(&blocks);
        recorder.add(Counter::ReadAheadDropped, queue.pending_windows.forget(&pages));
        drop(queue);
        self.settle_range(call, &blocks);
        if volume.pinned.overlaps(&blocks) {
            volume.pinned.rescan_after(now, 0);
        }
        // A discard is advisory, so a store without discards has not failed.
        let ignored = |error: &StoreError| {
            kind == StoreOpKind::Discard && error.kind == StoreErrorKind::Unsupported
        };
        let result = error.filter(|error| !ignored(error)).map_or(Ok(()), Err);
        completions.deliver(&self.frames, Completion::Finished { token, result });
    }

    /// Returns the slots of the pages of an instance that have blocks in `blocks`.
    pub(super) fn slots_in(&self, instance: &Instance<F>, blocks: &Range<u64>) -> Vec<Slot> {
        let (volume, paging) = (&instance.volume, instance.paging);
        let pages = paging.pages_of(blocks);
        if pages.end - pages.start <= u64::from(instance.pages.len()) {
            // Lookups also find pages of other shards, whose slots belong to another slab.
            let is_in_shard = |&page: &u64| {
                let key = BlockKey::new(volume.id, paging.blocks_of(page).start);
                self.table.shard(key) == instance.index
            };
            return pages
                .filter(is_in_shard)
                .filter_map(|p| instance.find(&self.table, p))
                .collect();
        }
        let inside = |&slot: &Slot| pages.contains(&instance.pages.get(slot).number);
        instance.pages.slots().filter(inside).collect()
    }

    /// Drops the resident blocks of a range that the store has discarded or zeroed.
    fn drop_range(&self, volume: &Volume<F>, blocks: &Range<u64>) {
        for mut shard in self.shards.each() {
            let instance = shard.instance(volume.id);
            for slot in self.slots_in(instance, blocks) {
                self.drop_blocks(instance, slot, blocks);
            }
        }
    }

    fn drop_blocks(&self, instance: &mut Instance<F>, slot: Slot, blocks: &Range<u64>) {
        let volume = Arc::clone(&instance.volume);
        let page_blocks = instance.paging.blocks_of(instance.pages.get(slot).number);
        let (mut removed, mut clean) = (0, 0);
        for block in page_blocks.start.max(blocks.start)..page_blocks.end.min(blocks.end) {
            let Some(frame) = self.table.find(BlockKey::new(volume.id, block)) else { continue };
            let state = self.table.state(frame);
            assert_eq!(state.writing, 0, "a block of an exclusive range is being written");
            clean += u16::from(state.dirty != 0);
            removed += 1;
            self.table.retract(frame);
            self.pool.retire(volume.id, frame);
        }
        volume.write_order.with_any(|groups| groups.discard_blocks(blocks));
        let page = instance.pages.get_mut(slot);
        page.resident -= removed;
        page.dirty -= clean;
        volume.dirty.discard(clean.into());
        if page.dirty == 0 {
            let failing = std::mem::take(&mut page.failing);
            volume.dirty.change_failing(0, failing.into());
        }
        if clean > 0 && page.dirty == 0 {
            instance.dirty.remove(&mut instance.pages, slot);
            // The store has overwritten the data for which these writers wait, but the result may
            // not be stable.
            self.complete_syncs(instance, slot, None, false);
        }
        if instance.pages.get(slot).resident == 0 {
            instance.remove(slot, false);
        }
    }

    /// Continues with pages of a range for which writers wait.
    fn settle_range(&self, call: &Call<'_, F>, blocks: &Range<u64>) {
        let Call { volume, .. } = *call;
        for mut shard in self.shards.each() {
            let instance = shard.instance(volume.id);
            for slot in self.slots_in(instance, blocks) {
                self.continue_page(call, instance, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_borders_of_blocks() {
        let cut_at = |start, end, length| {
            let BlockCut { head, blocks, tail } = cut(start..end, length);
            (head.end - head.start, blocks.end - blocks.start, tail.end - tail.start)
        };
        assert_eq!(cut_at(0, 8192, 1 << 20), (0, 2, 0));
        assert_eq!(cut_at(1, 8192, 1 << 20), (4095, 1, 0));
        assert_eq!(cut_at(1, 8193, 1 << 20), (4095, 1, 1));
        assert_eq!(cut_at(1, 4095, 1 << 20), (4094, 0, 0));
        assert_eq!(cut_at(0, 4608, 4608), (0, 2, 0), "a short last block is whole");
        assert_eq!(cut_at(4096, 4097, 4608), (1, 0, 0));
    }
}
