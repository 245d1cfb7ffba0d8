//! Flushes of a volume.
//!
//! A flush ends an epoch of the volume. All pages that became dirty in this epoch or before must be
//! written, all writes of such pages in progress must have ended, and then the store is flushed. A
//! failed write fails every flush that covers it immediately, and the next flush of every handle
//! reports it. A failed flush of the store is final: the lost data is unknown, so every later flush
//! fails too, until the volume is opened again. The exception is an unreachable store
//! ([`StoreErrorKind::Away`]): it has lost nothing, so only the waiting flushes fail.

use crate::cache::Cache;
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::frames::Frames;
use crate::mode::FlushMode;
use crate::queue::{Context, FlushWaiter, Queue};
use crate::read_write::{Status, WriteRequest};
use crate::store::{StoreError, StoreErrorKind, StoreOpKind};
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::volume::{Call, Volume, VolumeHandle, Writer};
use crate::write_order::WriteOrder;

impl<F: Frames> Cache<F> {
    /// Flushes the volume of `handle`. Data that was acknowledged before is on stable storage when
    /// the completion with `token` reports success. If flushes are ignored, it completes
    /// immediately, unless `always` is true: for a stop.
    #[expect(clippy::unused_self, reason = "an operation of the cache, as the others")]
    pub(crate) fn flush(
        &self,
        handle: &VolumeHandle<F>,
        now: Nanos,
        token: u64,
        always: bool,
    ) -> Status {
        let volume = &handle.volume;
        volume.note_request(now);
        if !always && volume.flush_mode() == FlushMode::Ignore {
            return Status::Done;
        }
        let mut queue = lock(&volume.queue);
        let epoch = volume.dirty.end_epoch();
        let completions = Arc::clone(&handle.completions);
        queue.flushes.push_back(FlushWaiter { completions, token, epoch });
        drop(queue);
        volume.waker.wake();
        Status::Pending
    }

    /// Flushes for a write that needs stable storage and did not get it from its own writeback.
    pub(in crate::cache) fn flush_for(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
    ) -> Status {
        write.needs_flush = false;
        // The flush mode was checked at the start of the write.
        let status = self.flush(handle, now, write.token, true);
        write.waiting += 1;
        status
    }

    /// Advances flushes: writes the pages for which they wait, then flushes the store.
    pub(in crate::cache) fn advance_flushes(&self, call: &Call<'_, F>, writer: &mut Writer) {
        let Call { volume, now, .. } = *call;
        let Some(epoch) = lock(&volume.queue).flushes.back().map(|flush| flush.epoch) else {
            return;
        };
        self.write_up_to(call, writer, epoch);
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
    pub(in crate::cache) fn flush_in_ignore_mode(
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
    pub(in crate::cache) fn flush_store(volume: &Volume<F>, queue: &mut Queue<F>, now: Nanos) {
        let context = Context::Flush(Vec::new());
        let op = queue.operation(StoreOpKind::Flush, 0..0, Vec::new(), context, now);
        queue.forced.push_back(op);
        queue.flush_in_flight = true;
        volume.write_order.with_any(WriteOrder::begin_flush);
    }

    /// Starts the writeback of pages that became dirty at `epoch` or before, up to the depth of
    /// forced writes.
    fn write_up_to(&self, call: &Call<'_, F>, writer: &mut Writer, epoch: u64) {
        let Call { volume, .. } = *call;
        let depth = volume.config.tunables.count(Tunable::ForcedDepth);
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
            self.write_back_around(call, block, cause);
        }
    }

    pub(in crate::cache) fn flushed(
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
