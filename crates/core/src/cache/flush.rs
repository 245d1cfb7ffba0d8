//! Flushes of a volume.
//!
//! A flush ends an epoch of the volume. All pages that became dirty in this epoch or before must be
//! written, all writes of such pages in progress must have ended, and then the store is flushed. A
//! failed write fails every flush that covers it immediately, and the next flush of every handle
//! reports it. A failed flush of the store is final: the lost data is unknown, so every later flush
//! fails too, until the volume is opened again. The exception is an unreachable store
//! ([`StoreErrorKind::Away`]): it has lost nothing, so only the waiting flushes fail.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::counters::Recorder;
use crate::frames::Frames;
use crate::mode::FlushMode;
use crate::policy::Slot;
use crate::queue::{Context, FlushWaiter, Queue};
use crate::read_write::{Status, WriteRequest};
use crate::shard::{Instance, Page};
use crate::store::{StoreError, StoreErrorKind, StoreOpKind};
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::volume::Volume;
use crate::volume::VolumeHandle;
use crate::write_order::WriteOrder;
use crate::writeback::{Batch, Writer};

/// Maximum number of pages of a shard that one batch collects under its lock: enough for long
/// sweeps over the disk, few enough to delay a miss by less than a millisecond.
const GATHER_MAX: usize = 16_384;

impl<F: Frames> Cache<F> {
    /// Flushes the volume of `handle`. Data that was acknowledged before is on stable storage when
    /// the completion with `token` reports success.
    pub(crate) fn flush(&self, handle: &mut VolumeHandle<F>, now: Nanos, token: u64) -> Status {
        handle.volume.note_request(now);
        if handle.volume.flush_mode() == FlushMode::Ignore {
            return Status::Done;
        }
        self.flush_always(handle, now, token)
    }

    /// Flushes the volume even if its flush mode ignores flushes; for a stop.
    #[expect(clippy::unused_self, reason = "an operation of the cache, as the others")]
    pub(crate) fn flush_always(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        token: u64,
    ) -> Status {
        handle.volume.note_request(now);
        let volume = &handle.volume;
        let mut queue = lock(&volume.queue);
        let epoch = volume.dirty.end_epoch();
        let completions = Arc::clone(&handle.completions);
        queue.flushes.push_back(FlushWaiter { completions, token, epoch });
        drop(queue);
        volume.notify.notify();
        Status::Pending
    }

    /// Flushes for a write that needs stable storage and did not get it from its own writeback.
    pub(super) fn flush_for(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
    ) -> Status {
        write.needs_flush = false;
        // The flush mode was checked at the start of the write.
        let status = self.flush_always(handle, now, write.token);
        write.waiting += 1;
        status
    }

    /// Advances flushes: writes the pages for which they wait, then flushes the store.
    pub(super) fn advance_flushes(
        &self,
        volume: &Volume<F>,
        writer: &mut Writer,
        recorder: &Recorder,
        now: Nanos,
    ) {
        let Some(epoch) = lock(&volume.queue).flushes.back().map(|flush| flush.epoch) else {
            return;
        };
        self.write_up_to(volume, writer, epoch, recorder, now);
        let oldest = self.oldest_dirty(volume).map(|(_, epoch)| epoch);
        let mut queue = lock(&volume.queue);
        if queue.flush_in_flight {
            return;
        }
        let ready = queue.flushes.iter().take_while(|flush| {
            oldest.is_none_or(|oldest| oldest > flush.epoch)
                && !queue.has_changes_up_to(flush.epoch)
        });
        let ready = ready.count();
        if ready == 0 {
            return;
        }
        let waiters = queue.flushes.drain(..ready).collect();
        let op =
            queue.operation(StoreOpKind::Flush, 0..0, Vec::new(), Context::Flush(waiters), now);
        queue.forced.push_back(op);
        queue.flush_in_flight = true;
        volume.write_order.with_any(WriteOrder::begin_flush);
    }

    /// Flushes the store in flush mode `ignore`: when all data is written and the volume is idle,
    /// and otherwise every `age-max`. That limits the loss in a power failure. Returns the time of
    /// the next call, if no completion triggers it.
    pub(super) fn flush_in_ignore_mode(
        volume: &Volume<F>,
        writer: &mut Writer,
        now: Nanos,
    ) -> Option<Nanos> {
        let mut due = writer.unflushed_since? + volume.config.tunables.nanos(Tunable::AgeMax);
        let mut queue = lock(&volume.queue);
        if queue.flush_in_flight {
            // Its completion triggers the next poll.
            return None;
        }
        if volume.unclean_blocks() == 0 && queue.writes_in_flight == 0 {
            due = due.min(volume.last_request() + volume.config.tunables.nanos(Tunable::IdleDelay));
        }
        if now < due {
            return Some(due);
        }
        writer.unflushed_since = None;
        Self::flush_store(volume, &mut queue, now);
        None
    }

    /// Flushes the store without a waiting client.
    pub(super) fn flush_store(volume: &Volume<F>, queue: &mut Queue<F>, now: Nanos) {
        let context = Context::Flush(Vec::new());
        let op = queue.operation(StoreOpKind::Flush, 0..0, Vec::new(), context, now);
        queue.forced.push_back(op);
        queue.flush_in_flight = true;
        volume.write_order.with_any(WriteOrder::begin_flush);
    }

    /// Starts the writeback of pages that became dirty at `epoch` or before, up to the depth of
    /// forced writes.
    fn write_up_to(
        &self,
        volume: &Volume<F>,
        writer: &mut Writer,
        epoch: u64,
        recorder: &Recorder,
        now: Nanos,
    ) {
        let depth =
            usize::try_from(volume.config.tunables.get(Tunable::ForcedDepth)).expect("small");
        let mut gathered = false;
        loop {
            if lock(&volume.queue).writes_started() >= depth {
                return;
            }
            if writer.forced.is_empty() {
                if gathered {
                    return;
                }
                gathered = true;
                writer.forced = self.gather(volume, |page| page.dirty_epoch <= epoch, u64::MAX);
            }
            let Some(block) = writer.forced.next() else { return };
            let cause = crate::queue::WriteCause::Forced;
            self.write_back_around(volume, block, cause, recorder, now);
        }
    }

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
            let list = instance.dirty_pages().take(GATHER_MAX);
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
            let untried = instance.dirty_untried().take(GATHER_MAX);
            Self::gather_from(instance, untried, &is_selected, each, pages);
            if retries {
                // The list is sorted by age, and this iterates from young to old.
                let is_young = |slot: &Slot| !is_selected(instance.pages.get(*slot));
                let failed = instance.dirty_failed().take(GATHER_MAX).skip_while(is_young);
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
        for index in 0..self.shards.len() {
            let mut shard = self.shard(index);
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

    /// Returns the time and the epoch at which the oldest dirty page became dirty.
    pub(super) fn oldest_dirty(&self, volume: &Volume<F>) -> Option<(Nanos, u64)> {
        let mut oldest: Option<(Nanos, u64)> = None;
        for index in 0..self.shards.len() {
            let mut shard = self.shard(index);
            let instance = shard.instance(volume.id);
            let Some(slot) = instance.dirty_oldest() else { continue };
            let page = instance.pages.get(slot);
            let (at, epoch) = oldest.unwrap_or((Nanos::MAX, u64::MAX));
            oldest = Some((at.min(page.dirty_at), epoch.min(page.dirty_epoch)));
        }
        oldest
    }

    /// Completes a flush of the store.
    pub(super) fn flushed(
        &self,
        volume: &Volume<F>,
        waiters: Vec<FlushWaiter<F>>,
        error: Option<&StoreError>,
    ) {
        let mut queue = lock(&volume.queue);
        queue.flush_in_flight = false;
        let away_error = error.filter(|error| error.kind == StoreErrorKind::Away);
        if let Some(error) = error.filter(|_| away_error.is_none()) {
            volume.dirty.note_error(error);
            queue.flush_failed.get_or_insert_with(|| error.clone());
        }
        let failed = queue.flush_failed.clone().or(away_error.cloned());
        let end_flush =
            if failed.is_none() { WriteOrder::complete_flush } else { WriteOrder::fail_flush };
        volume.write_order.with_any(end_flush);
        drop(queue);
        for waiter in waiters {
            let unreported = volume.dirty.take_unreported_error(&waiter.completions.errors_seen);
            let result = failed.clone().or(unreported).map_or(Ok(()), Err);
            let token = waiter.token;
            waiter.completions.deliver(&self.frames, Completion::Finished { token, result });
        }
    }

    /// Fails the flushes that cover a failed write of `epoch`.
    pub(super) fn fail_flushes(&self, volume: &Volume<F>, epoch: u64, error: &StoreError) {
        let mut queue = lock(&volume.queue);
        let (failed, rest) =
            queue.flushes.drain(..).partition::<Vec<_>, _>(|flush| flush.epoch >= epoch);
        queue.flushes.extend(rest);
        drop(queue);
        for FlushWaiter { completions, token, .. } in failed {
            // This reports the error to the handle.
            volume.dirty.mark_reported(&completions.errors_seen);
            let result = Err(error.clone());
            completions.deliver(&self.frames, Completion::Finished { token, result });
        }
    }
}
