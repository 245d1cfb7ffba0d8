//! Flushes: the promise.
//!
//! A flush ends an epoch of the volume: every page that became dirty in it or before must be
//! written, every write of such a page that is under way must have come to its end, and then the
//! store itself is flushed. A failed write fails every flush that covers it at once, and is
//! reported to the next flush of every lane. A failed flush of the store is final: what the store
//! lost is not known, so every later flush fails too, until the volume is opened anew. Only a store
//! that is away says that it has lost nothing: then those who waited are told, and no more.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::{Completion, VolumeHandle};
use crate::counters::Recorder;
use crate::frames::Frames;
use crate::mode::FlushMode;
use crate::policy::Slot;
use crate::queue::{Context, FlushWaiter, Queue};
use crate::request::{Status, WriteRequest};
use crate::shard::{Instance, Page};
use crate::store::{StoreError, StoreErrorKind, StoreOpKind};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::volume::Volume;
use crate::write_order::WriteOrder;
use crate::writeback::{Batch, Writer};

/// How many pages of a shard one batch gathers under its lock: enough for long sweeps over the
/// disk, few enough that a miss does not wait for a millisecond.
const GATHER_MAX: usize = 16_384;

impl<F: Frames> Cache<F> {
    /// Flushes the volume of `handle`: what was acknowledged before is on stable storage when the
    /// completion with `token` says so.
    pub(crate) fn flush(&self, handle: &mut VolumeHandle<F>, now: Nanos, token: u64) -> Status {
        handle.volume.note_request(now);
        if handle.volume.flush_mode() == FlushMode::Ignore {
            return Status::Done;
        }
        self.flush_always(handle, now, token)
    }

    /// The same, also where the flush mode says to ignore flushes: for stopping.
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
        let epoch = volume.epoch.fetch_add(1, Ordering::AcqRel);
        let completions = Arc::clone(&handle.completions);
        queue.flushes.push_back(FlushWaiter { completions, token, epoch });
        drop(queue);
        volume.notify.notify();
        Status::Pending
    }

    /// Flushes for a write that asked to be stable and could not be made so by itself.
    pub(super) fn flush_for(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
    ) -> Status {
        write.needs_flush = false;
        // Whether flushes are kept was found out when the write began.
        let status = self.flush_always(handle, now, write.token);
        write.waiting += 1;
        status
    }

    /// Moves flushes on: writes what they wait for, and flushes the store when that is done.
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

    /// Where clients' flushes are ignored, the store is flushed when all has been written and the
    /// volume is idle, and while it never is, every `age-max`: that bounds what a power failure
    /// loses. When to ask again, if no completion tells.
    pub(super) fn flush_in_ignore_mode(
        volume: &Volume<F>,
        writer: &mut Writer,
        now: Nanos,
    ) -> Option<Nanos> {
        let mut due = writer.unflushed_since? + volume.tunables.nanos(Tunable::AgeMax);
        let mut queue = lock(&volume.queue);
        if queue.flush_in_flight {
            // Its completion will say when to go on.
            return None;
        }
        if volume.unclean_blocks() == 0 && queue.writes_in_flight == 0 {
            due = due.min(volume.last_request() + volume.tunables.nanos(Tunable::IdleDelay));
        }
        if now < due {
            return Some(due);
        }
        writer.unflushed_since = None;
        Self::flush_store(volume, &mut queue, now);
        None
    }

    /// Flushes the store though no client waits for it.
    pub(super) fn flush_store(volume: &Volume<F>, queue: &mut Queue<F>, now: Nanos) {
        let context = Context::Flush(Vec::new());
        let op = queue.operation(StoreOpKind::Flush, 0..0, Vec::new(), context, now);
        queue.forced.push_back(op);
        queue.flush_in_flight = true;
        volume.write_order.with_any(WriteOrder::begin_flush);
    }

    /// Starts rounds of pages that became dirty at `epoch` or before, as many as the store may
    /// have.
    fn write_up_to(
        &self,
        volume: &Volume<F>,
        writer: &mut Writer,
        epoch: u64,
        recorder: &Recorder,
        now: Nanos,
    ) {
        let depth = usize::try_from(volume.tunables.get(Tunable::ForcedDepth)).expect("small");
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

    /// The first blocks of pages from the old end of the dirty lists as long as `wanted` says so,
    /// for about `blocks` blocks; those that are being written, discarded or zeroed are left out.
    pub(super) fn gather(
        &self,
        volume: &Volume<F>,
        wanted: impl Fn(&Page) -> bool,
        blocks: u64,
    ) -> Batch {
        self.gather_by_shard(volume, blocks, |instance, each, pages| {
            let list = instance.dirty_pages().take(GATHER_MAX);
            Self::gather_from(instance, list, &wanted, each, pages);
        })
    }

    /// Gathers pages for the lazy writer: about `blocks` blocks of those whose write has not
    /// failed, and with `retries` as many of those whose write has. So pages that cannot be written
    /// do not keep the others from the store, and each of them has its turn.
    pub(super) fn gather_lazily(
        &self,
        volume: &Volume<F>,
        wanted: impl Fn(&Page) -> bool,
        blocks: u64,
        retries: bool,
    ) -> Batch {
        self.gather_by_shard(volume, blocks, |instance, each, pages| {
            let untried = instance.dirty_untried().take(GATHER_MAX);
            Self::gather_from(instance, untried, &wanted, each, pages);
            if retries {
                // The list is in order of age, and this goes from the young to the old.
                let is_young = |slot: &Slot| !wanted(instance.pages.get(*slot));
                let failed = instance.dirty_failed().take(GATHER_MAX).skip_while(is_young);
                Self::gather_from(instance, failed, &wanted, each, pages);
            }
        })
    }

    /// Calls `gather` for each shard, with the number of blocks that it is to add there.
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

    /// Adds the first blocks of pages of `list`, as long as `wanted` says so, for about `left`
    /// blocks, to `pages`.
    fn gather_from(
        instance: &Instance<F>,
        list: impl Iterator<Item = Slot>,
        wanted: impl Fn(&Page) -> bool,
        mut left: u64,
        pages: &mut Vec<u64>,
    ) {
        let volume = &instance.volume;
        for slot in list {
            let page = instance.pages.get(slot);
            let blocks = instance.paging.blocks_of(page.number);
            if left == 0 || !wanted(page) {
                break;
            }
            if volume.write_order.expedite_if_held(&blocks) {
                continue;
            }
            left = left.saturating_sub(u64::from(page.dirty));
            let is_exclusive = || {
                volume.exclusives.load(Ordering::Acquire) > 0
                    && lock(&volume.queue).is_exclusive(&blocks)
            };
            if page.can_start_writeback() && !is_exclusive() {
                pages.push(blocks.start);
            }
        }
    }

    /// When, and at which epoch, the page became dirty that is so for the longest time.
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

    /// A flush of the store is done.
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
            volume.note_error(error);
            queue.flush_failed.get_or_insert_with(|| error.clone());
        }
        let failed = queue.flush_failed.clone().or(away_error.cloned());
        let end_flush =
            if failed.is_none() { WriteOrder::complete_flush } else { WriteOrder::fail_flush };
        volume.write_order.with_any(end_flush);
        drop(queue);
        for waiter in waiters {
            let unreported = volume.take_unreported_error(&waiter.completions);
            let result = failed.clone().or(unreported).map_or(Ok(()), Err);
            let token = waiter.token;
            waiter.completions.deliver(&self.frames, Completion::Finished { token, result });
        }
    }

    /// A write of `epoch` failed: the flushes that cover it fail now.
    pub(super) fn fail_flushes(&self, volume: &Volume<F>, epoch: u64, error: &StoreError) {
        let mut queue = lock(&volume.queue);
        let (failed, rest) =
            queue.flushes.drain(..).partition::<Vec<_>, _>(|flush| flush.epoch >= epoch);
        queue.flushes.extend(rest);
        drop(queue);
        for FlushWaiter { completions, token, .. } in failed {
            // This is the report of the error to this lane.
            let errors = volume.errors.load(Ordering::Acquire);
            completions.errors_seen.store(errors, Ordering::Release);
            let result = Err(error.clone());
            completions.deliver(&self.frames, Completion::Finished { token, result });
        }
    }
}
