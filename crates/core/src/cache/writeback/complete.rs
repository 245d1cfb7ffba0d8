//! The end of a writeback: the pages of a completed write become clean, or dirty again after an
//! error.

use super::write::WritebackOps;
use crate::cache::Cache;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::page::BlockKey;
use crate::policy::Slot;
use crate::queue::WriteCause;
use crate::shard::Instance;
use crate::store::{Buffer, Segment, StoreError, StoreOp};
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::units::BLOCK_BYTES_U64;
use crate::volume::{Call, Volume};
use std::ops::Range;

impl<F: Frames> Cache<F> {
    pub(in crate::cache) fn written(
        &self,
        call: &Call<'_, F>,
        op: StoreOp<F>,
        (pages, epoch): (&[(u64, Slot)], u64),
        error: Option<&StoreError>,
    ) {
        let Call { volume, .. } = *call;
        let first = op.offset / BLOCK_BYTES_U64;
        let mut shard = self.shard_of(volume, first);
        let instance = shard.instance(volume.id);
        for Segment { buffer, .. } in op.segments {
            match buffer {
                Buffer::Pinned(pin) => self.frames.unpin(pin),
                Buffer::Owned(_) => unreachable!("a write pins its frames"),
            }
        }
        if let Some(error) = error {
            volume.dirty.note_error(error);
        }
        for &(number, slot) in pages {
            let page = instance.pages.get_mut(slot);
            assert_eq!(page.number, number, "a page was replaced while it was written");
            page.ops -= 1;
            page.writeback_failed |= error.is_some();
            if page.ops == 0 {
                let failed = std::mem::take(&mut page.writeback_failed);
                // The error of an earlier operation of the same writeback, if this operation
                // succeeded.
                let earlier =
                    (failed && error.is_none()).then(|| volume.dirty.last_error()).flatten();
                let error = error.or(earlier.as_ref());
                self.end_page_writeback(call, instance, slot, (error, epoch));
            }
        }
    }

    /// Ends the writeback, of `epoch`, of a page whose last operation has completed.
    pub(super) fn end_page_writeback(
        &self,
        call: &Call<'_, F>,
        instance: &mut Instance<F>,
        slot: Slot,
        (error, epoch): (Option<&StoreError>, u64),
    ) {
        let Call { volume, .. } = *call;
        let number = instance.pages.get(slot).number;
        let mut back = 0;
        for block in instance.paging.blocks_of(number) {
            let Some(frame) = self.table.find(BlockKey::new(volume.id, block)) else { continue };
            let mut state = self.table.state(frame);
            if state.writing == 0 {
                continue;
            }
            if error.is_some() {
                back += u16::from(state.dirty == 0);
                state.dirty |= state.writing;
            }
            state.writing = 0;
            self.table.set_state(frame, state);
        }
        instance.pages_under_writeback -= 1;
        let page = instance.pages.get_mut(slot);
        let was_clean = page.dirty == 0;
        let written = std::mem::take(&mut page.writing);
        page.dirty += back;
        let failing = if error.is_some() { page.dirty } else { 0 };
        let failed_before = std::mem::replace(&mut page.failing, failing);
        volume.dirty.change_failing(failing.into(), failed_before.into());
        volume.dirty.end_write(written.into(), back.into());
        if error.is_some() {
            if !was_clean {
                instance.dirty.remove(&mut instance.pages, slot);
            }
            instance.dirty.push_failed(&mut instance.pages, slot, epoch);
        }
        let blocks = instance.paging.blocks_of(number);
        volume.write_order.with_any(|groups| groups.end_write(&blocks, error.is_none()));
        // A page that was held back was not written with FUA, whatever its waiters need.
        let stable = volume.write_order.is_empty();
        self.complete_syncs(instance, slot, error, stable);
        self.continue_page(call, instance, slot);
    }

    /// Updates the volume after a write whose pages have been processed: speed of the store,
    /// back-off, and flushes that fail now.
    pub(in crate::cache) fn after_write(
        &self,
        volume: &Volume<F>,
        now: Nanos,
        (epoch, blocks): (u64, Range<u64>),
        error: Option<StoreError>,
    ) {
        lock(&volume.queue).end_change(epoch);
        let mut writer = lock(&volume.writer);
        let Some(error) = error else {
            writer.retry_delay = 0;
            writer.unflushed_since.get_or_insert(now);
            writer.pace.wrote(now, blocks.end - blocks.start);
            return;
        };
        let shortest = volume.config.tunables.nanos(Tunable::RetryDelay);
        let longest = volume.config.tunables.nanos(Tunable::RetryDelayMax);
        if now >= writer.retry_at {
            writer.retry_delay = (writer.retry_delay * 2).clamp(shortest, longest.max(shortest));
            writer.retry_at = now + writer.retry_delay;
        }
        drop(writer);
        // A flush may wait for changes that the failed write holds back, whatever its epoch.
        let held = volume.write_order.with(|groups| groups.held_blocks());
        if held == 0 {
            self.fail_flushes(volume, epoch, &error);
            self.fail_ranges(volume, &blocks, epoch, &error);
        } else {
            let message = format!("{error}; {held} blocks are held back until it is written");
            let error = StoreError::new(error.kind, message);
            self.fail_flushes(volume, 0, &error);
            self.fail_ranges(volume, &(0..volume.blocks), 0, &error);
        }
    }

    /// Continues with a page whose operations have ended: starts the next writeback if a write
    /// waits for it, or drops the page if it must not stay.
    pub(in crate::cache) fn continue_page(
        &self,
        call: &Call<'_, F>,
        instance: &mut Instance<F>,
        slot: Slot,
    ) {
        let Call { volume, recorder, now } = *call;
        let page = instance.pages.get(slot);
        if page.can_start_writeback() {
            let Some(waiters) = instance.syncs.get(&slot) else { return };
            let fua = waiters.iter().any(|waiter| waiter.fua);
            let mut queue = lock(&volume.queue);
            let blocks = instance.paging.blocks_of(page.number);
            if !queue.is_exclusive(&blocks) && !volume.write_order.expedite_if_held(&blocks) {
                let mut writeback = WritebackOps::new(WriteCause::Forced, fua);
                self.start_page_writeback(instance, slot, &mut writeback);
                writeback.finish(instance, &mut queue, recorder, now);
            }
            return;
        }
        if page.is_clean_and_idle() && !instance.is_retained(slot) {
            self.drop_page(instance, slot);
        }
    }

    /// Drops a page without data that the store does not have.
    pub(in crate::cache) fn drop_page(&self, instance: &mut Instance<F>, slot: Slot) {
        let volume = Arc::clone(&instance.volume);
        let number = instance.pages.get(slot).number;
        let mut free = Vec::new();
        for block in instance.paging.blocks_of(number) {
            let Some(frame) = self.table.find(BlockKey::new(volume.id, block)) else { continue };
            self.table.retract(frame);
            match self.frames.try_write_pin(frame) {
                Some(write_pin) => {
                    self.frames.release_write_pin(write_pin);
                    free.push(frame);
                }
                None => self.pool.retire(volume.id, frame),
            }
        }
        self.pool.give_back(&volume, free);
        instance.pages.get_mut(slot).resident = 0;
        instance.remove(slot, false);
    }
}
