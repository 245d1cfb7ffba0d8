//! Flushes of a part of a volume: for files that lie in one volume, where the fsync of one must not
//! write all the others.
//!
//! What became dirty in the range before it was asked for is written, writes of it that are under
//! way come to their end, and then, if that is asked for, the store flushes just this range. What
//! becomes dirty later is of a later epoch and is not waited for. A failed write in the range fails
//! it; it may be asked for again. What a failed flush of the store means for the next one is the
//! store's to say: one that lies over several files knows which of them is concerned.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::{Completion, VolumeHandle};
use crate::counters::Recorder;
use crate::frames::Frames;
use crate::mode::FlushMode;
use crate::queue::{Context, RangeFlush, WriteCause};
use crate::request::Status;
use crate::store::{StoreError, StoreOpKind};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::units::BLOCK_BYTES_U64;
use crate::volume::Volume;
use crate::writeback::Batch;
use std::ops::Range;

impl<F: Frames> Cache<F> {
    /// Writes what is dirty of `blocks`, and with `stable` has the store flush them: what was
    /// acknowledged there before is in the store, or on stable storage, when the completion with
    /// `token` says so. Where flushes are ignored, a stable one is done at once.
    ///
    /// # Panics
    /// If the range is empty or not inside the volume.
    #[expect(clippy::unused_self, reason = "an operation of the cache, as the others")]
    pub(crate) fn flush_range(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        blocks: Range<u64>,
        stable: bool,
        token: u64,
    ) -> Status {
        let volume = &handle.volume;
        volume.note_request(now);
        assert!(blocks.start < blocks.end && blocks.end <= volume.blocks, "{blocks:?}");
        if stable && volume.flush_mode() == FlushMode::Ignore {
            return Status::Done;
        }
        let mut queue = lock(&volume.queue);
        let epoch = volume.epoch.fetch_add(1, Ordering::AcqRel);
        let completions = Arc::clone(&handle.completions);
        let batch = Batch::default();
        queue.ranges.push(RangeFlush { completions, token, blocks, epoch, stable, batch });
        drop(queue);
        volume.notify.notify();
        Status::Pending
    }

    /// Moves flushes of ranges on.
    pub(super) fn advance_ranges(&self, volume: &Volume<F>, recorder: &Recorder, now: Nanos) {
        let mut index = 0;
        loop {
            let (blocks, epoch, mut batch) = {
                let mut queue = lock(&volume.queue);
                let Some(range) = queue.ranges.get_mut(index) else { return };
                (range.blocks.clone(), range.epoch, std::mem::take(&mut range.batch))
            };
            let is_written = self.write_range(volume, &mut batch, &blocks, epoch, recorder, now);
            // Only here are entries taken out, so this one is where it was.
            let mut queue = lock(&volume.queue);
            if !is_written {
                queue.ranges[index].batch = batch;
                index += 1;
                continue;
            }
            let range = queue.ranges.remove(index);
            if range.stable {
                let bytes = blocks.start * BLOCK_BYTES_U64
                    ..(blocks.end * BLOCK_BYTES_U64).min(volume.geometry().length);
                let context = Context::FlushRange(range);
                let op = queue.operation(StoreOpKind::Flush, bytes, Vec::new(), context, now);
                queue.forced.push_back(op);
            } else {
                drop(queue);
                self.range_flushed(range, None);
            }
        }
    }

    /// Starts rounds of pages of a range that became dirty at `epoch` or before, as many as the
    /// store may have; whether all of them are written.
    fn write_range(
        &self,
        volume: &Volume<F>,
        batch: &mut Batch,
        blocks: &Range<u64>,
        epoch: u64,
        recorder: &Recorder,
        now: Nanos,
    ) -> bool {
        let depth = usize::try_from(volume.tunables.get(Tunable::ForcedDepth)).expect("small");
        let mut gathered = false;
        loop {
            let queue = lock(&volume.queue);
            let started = queue.writes_started();
            let is_writing = queue.has_writes_in(blocks, epoch);
            drop(queue);
            if batch.is_empty() {
                // What is being written may have to be written again, so that it is looked for
                // after that is over.
                if gathered || is_writing {
                    return false;
                }
                gathered = true;
                *batch = self.gather_range(volume, blocks, epoch);
                if batch.is_empty() {
                    // A client's own write may have taken a page away in between.
                    return !lock(&volume.queue).has_writes_in(blocks, epoch);
                }
            }
            if started >= depth {
                return false;
            }
            let Some(block) = batch.next() else { return false };
            self.write_back_around(volume, block, WriteCause::Forced, recorder, now);
        }
    }

    /// The first blocks of pages of a range that became dirty at `epoch` or before, whether they
    /// can be written now or not.
    fn gather_range(&self, volume: &Volume<F>, blocks: &Range<u64>, epoch: u64) -> Batch {
        let dirty = volume.dirty.load(Ordering::Acquire);
        let mut pages = Vec::new();
        for index in 0..self.shards.len() {
            let mut shard = self.shard(index);
            let instance = shard.instance(volume.id);
            let wanted = |page: &crate::shard::Page| {
                let page_blocks = instance.paging.blocks_of(page.number);
                let overlaps = page_blocks.start < blocks.end && blocks.start < page_blocks.end;
                (overlaps && page.dirty > 0 && page.dirty_epoch <= epoch)
                    .then_some(page_blocks.start)
            };
            if dirty < blocks.end - blocks.start {
                let list = instance.dirty_pages();
                pages.extend(list.filter_map(|slot| wanted(instance.pages.get(slot))));
            } else {
                let slots = self.slots_in(instance, blocks);
                pages.extend(slots.into_iter().filter_map(|slot| wanted(instance.pages.get(slot))));
            }
        }
        Batch::sorted(pages)
    }

    /// A range is written and, if that was asked for, flushed, or not.
    pub(super) fn range_flushed(&self, range: RangeFlush<F>, error: Option<StoreError>) {
        let RangeFlush { completions, token, .. } = range;
        let result = error.map_or(Ok(()), Err);
        completions.deliver(&self.frames, Completion::Finished { token, result });
    }

    /// A write of `blocks` and of `epoch` failed: the flushes of ranges that cover it fail now.
    pub(super) fn fail_ranges(
        &self,
        volume: &Volume<F>,
        blocks: &Range<u64>,
        epoch: u64,
        error: &StoreError,
    ) {
        let is_covered = |range: &mut RangeFlush<F>| {
            let overlaps = range.blocks.start < blocks.end && blocks.start < range.blocks.end;
            overlaps && range.epoch >= epoch
        };
        let failed: Vec<_> = lock(&volume.queue).ranges.extract_if(.., is_covered).collect();
        for range in failed {
            self.range_flushed(range, Some(error.clone()));
        }
    }
}
