//! Flushes of a range of a volume: if several files are in one volume, the fsync of one need not
//! write the others.
//!
//! Pages of the range that became dirty before the request are written, writes of them in progress
//! end, and then, if requested, the store flushes only this range. Pages that become dirty later
//! are of a later epoch and do not delay the flush. A failed write in the range fails the flush;
//! the client may repeat it. The store decides if a failed flush affects later ones: a store of
//! several files knows the files concerned.

use crate::cache::Cache;
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::frames::Frames;
use crate::mode::FlushMode;
use crate::queue::{Batch, Context, RangeFlush, WriteCause};
use crate::read_write::Status;
use crate::store::{StoreError, StoreOpKind};
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::units::overlap;
use crate::volume::{Call, Volume, VolumeHandle};
use std::ops::Range;

impl<F: Frames> Cache<F> {
    /// Writes the dirty blocks of `blocks`, and with `stable` flushes them in the store. Data that
    /// was acknowledged before is in the store, or on stable storage, when the completion with
    /// `token` reports success. If flushes are ignored, a stable flush completes immediately.
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
        let epoch = volume.dirty.end_epoch();
        let completions = Arc::clone(&handle.completions);
        let batch = Batch::default();
        queue.ranges.push(RangeFlush { completions, token, blocks, epoch, stable, batch });
        drop(queue);
        volume.waker.wake();
        Status::Pending
    }

    pub(in crate::cache) fn advance_ranges(&self, call: &Call<'_, F>) {
        let Call { volume, now, .. } = *call;
        let mut index = 0;
        loop {
            let (blocks, epoch, mut batch) = {
                let mut queue = lock(&volume.queue);
                let Some(range) = queue.ranges.get_mut(index) else { return };
                (range.blocks.clone(), range.epoch, std::mem::take(&mut range.batch))
            };
            let is_written = self.write_range(call, &mut batch, &blocks, epoch);
            // Only this function removes entries, so the index is still valid.
            let mut queue = lock(&volume.queue);
            if !is_written {
                queue.ranges[index].batch = batch;
                index += 1;
                continue;
            }
            let range = queue.ranges.remove(index);
            if range.stable {
                let bytes = volume.bytes_of_range(&blocks);
                let context = Context::FlushRange(range);
                let op = queue.operation(StoreOpKind::Flush, bytes, Vec::new(), context, now);
                queue.forced.push_back(op);
            } else {
                drop(queue);
                self.range_flushed(range, None);
            }
        }
    }

    /// Starts the writeback of pages of a range that became dirty at `epoch` or before, up to the
    /// depth of forced writes. Returns true if all of them are written.
    fn write_range(
        &self,
        call: &Call<'_, F>,
        batch: &mut Batch,
        blocks: &Range<u64>,
        epoch: u64,
    ) -> bool {
        let Call { volume, .. } = *call;
        let depth = volume.config.tunables.count(Tunable::ForcedDepth);
        let mut gathered = false;
        loop {
            let queue = lock(&volume.queue);
            let started = queue.writes_started();
            let is_writing = queue.has_writes_in(blocks, epoch);
            drop(queue);
            if batch.is_empty() {
                // Pages that are being written may have to be written again, so the search is
                // repeated after that.
                if gathered || is_writing {
                    return false;
                }
                gathered = true;
                *batch = self.gather_range(volume, blocks, epoch);
                if batch.is_empty() {
                    // A forced write of a client may have taken a page in between.
                    return !lock(&volume.queue).has_writes_in(blocks, epoch);
                }
            }
            if started >= depth {
                return false;
            }
            let Some(block) = batch.next() else { return false };
            self.write_back_around(call, block, WriteCause::Forced);
        }
    }

    pub(in crate::cache) fn range_flushed(&self, range: RangeFlush<F>, error: Option<StoreError>) {
        let RangeFlush { completions, token, .. } = range;
        let result = error.map_or(Ok(()), Err);
        completions.deliver(&self.frames, Completion::Finished { token, result });
    }

    /// Fails the flushes of ranges that cover a failed write of `blocks` and of `epoch`.
    pub(super) fn fail_ranges(
        &self,
        volume: &Volume<F>,
        blocks: &Range<u64>,
        epoch: u64,
        error: &StoreError,
    ) {
        let is_covered =
            |range: &mut RangeFlush<F>| overlap(&range.blocks, blocks) && range.epoch >= epoch;
        let failed: Vec<_> = lock(&volume.queue).ranges.extract_if(.., is_covered).collect();
        for range in failed {
            self.range_flushed(range, Some(error.clone()));
        }
    }
}
