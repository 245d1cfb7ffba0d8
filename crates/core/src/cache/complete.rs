//! Completions of store operations.

use super::Cache;
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::counters::{Counter, Latency, Recorder};
use crate::frames::Frames;
use crate::input::Input;
use crate::mode::BypassReason;
use crate::queue::{Context, FillWaiter};
use crate::shard::{Fill, Instance};
use crate::store::{StoreCompletion, StoreError, StoreOp, StoreOpKind};
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::{BLOCK_BYTES_U64, blocks_touched};
use crate::volume::{Call, Volume};

impl<F: Frames> Cache<F> {
    /// Processes an operation that the store of `volume` has completed. `recorder` belongs to the
    /// caller.
    pub fn complete(
        &self,
        volume: &Volume<F>,
        recorder: &Recorder,
        now: Nanos,
        done: StoreCompletion<F>,
    ) {
        let _logged = self.log.add(|| Input::Complete {
            volume: volume.id,
            now,
            tag: done.op.tag,
            error: done.result.as_ref().err().cloned(),
            started_at: done.started_at,
            finished_at: done.finished_at,
        });
        let call = &Call { volume, recorder, now };
        record(recorder, &done);
        let StoreCompletion { op, result, .. } = done;
        let context = lock(&volume.queue).finish(&op);
        let error = result.err();
        match context {
            Context::Fill { page, .. } => self.filled(call, (op, page), error),
            Context::JoinedRead(parts) => {
                self.split_joined_read(call, (op, parts), error.as_ref());
            }
            Context::Bypass { waiter, overlays } => {
                self.bypassed(volume, op, waiter, overlays, error);
            }
            Context::WriteBack { pages, epoch, .. } => {
                let blocks = blocks_touched(&(op.offset..op.offset + op.len));
                self.written(call, op, (&pages, epoch), error.as_ref());
                self.after_write(volume, now, (epoch, blocks), error);
            }
            Context::Flush(waiters) => self.flushed(volume, waiters, error.as_ref()),
            Context::FlushRange(range) => self.range_flushed(range, error),
            Context::Exclusive { start } => {
                self.exclusive_done(call, start, error);
            }
        }
        self.unstall();
    }

    pub(super) fn filled(
        &self,
        call: &Call<'_, F>,
        (op, page): (StoreOp<F>, u64),
        error: Option<StoreError>,
    ) {
        let Call { volume, .. } = *call;
        let first = op.offset / BLOCK_BYTES_U64;
        let mut shard = self.shard_of(volume, first);
        self.filled_in(call, shard.instance(volume.id), (op, page), error);
    }

    /// As [`Cache::filled`]. The caller holds the shard's lock.
    pub(super) fn filled_in(
        &self,
        call: &Call<'_, F>,
        instance: &mut Instance<F>,
        (op, page): (StoreOp<F>, u64),
        error: Option<StoreError>,
    ) {
        let Call { recorder, .. } = *call;
        let first = op.offset / BLOCK_BYTES_U64;
        let fill = instance.fills.get(&page).expect("a page that is being filled");
        let (slot, ahead) = (fill.slot, fill.ahead);
        let write_pins = op.segments.into_iter().map(|segment| segment.buffer.into_owned());
        if let Some(error) = error {
            let failed_frames: Vec<_> = write_pins.collect();
            let fill = instance.fills.get_mut(&page).expect("looked up above");
            fill.failed_frames.extend(failed_frames);
            fill.error.get_or_insert(error);
        } else {
            for (block, write_pin) in (first..).zip(write_pins) {
                self.publish_filled(instance, slot, (block, write_pin), ahead);
                recorder.add(Counter::FilledBlocks, 1);
                recorder.add(Counter::ReadAheadBlocks, u64::from(ahead));
            }
        }
        let fill = instance.fills.get_mut(&page).expect("looked up above");
        fill.ops_left -= 1;
        if fill.ops_left == 0 {
            let fill = instance.fills.remove(&page).expect("looked up above");
            self.end_fill(call, instance, fill, page);
        }
    }

    fn end_fill(&self, call: &Call<'_, F>, instance: &mut Instance<F>, fill: Fill<F>, page: u64) {
        let Call { volume, recorder, now } = *call;
        let Fill { slot, error, mut failed_frames, waiters, .. } = fill;
        instance.pages.get_mut(slot).filling = false;
        let whole = instance.paging.blocks_of(page);
        if error.is_some() && volume.pinned.overlaps(&whole) {
            volume.pinned.rescan_after(now, volume.config.tunables.nanos(Tunable::RetryDelayMax));
        }
        // Without pins, clients that need frames could evict the page before the write continues,
        // again and again.
        let waits = error.is_none() && waiters.iter().any(|waiter| waiter.read.is_none());
        let mut page_pins = waits.then(|| self.pins_of(instance, &whole)).flatten();
        for waiter in waiters {
            let Some((blocks, part)) = waiter.read.clone() else {
                let token = waiter.token;
                let completion = match &error {
                    None => {
                        let pins = page_pins.take().unwrap_or_default();
                        Completion::Continue { token, pins }
                    }
                    Some(error) => Completion::Failed { token, parts: 0, error: error.clone() },
                };
                waiter.completions.deliver(&self.frames, completion);
                continue;
            };
            let token = waiter.token;
            if let Some(pins) = self.pins_of(instance, &blocks) {
                let filled = Completion::Filled { token, part, pins };
                waiter.completions.deliver(&self.frames, filled);
                continue;
            }
            let error = error.as_ref().expect("a fill without error leaves nothing out");
            let parts = u32::try_from(blocks.end - blocks.start).expect("a page");
            let mut spare = Vec::new();
            for write_pin in
                failed_frames.drain(failed_frames.len().saturating_sub(parts as usize)..)
            {
                spare.push(self.frames.write_pinned(&write_pin));
                self.frames.release_write_pin(write_pin);
            }
            let has_frames = self.pool.take(&self.frames, volume, parts as usize, &mut spare);
            if blocks == whole || !has_frames {
                self.pool.give_back(volume, spare);
                let failed = Completion::Failed { token, parts, error: error.clone() };
                waiter.completions.deliver(&self.frames, failed);
                continue;
            }
            // The store cannot read a part of the page, which may not be the part that this reader
            // needs.
            recorder.add(BypassReason::FillFailed.counter(), 1);
            let mut queue = lock(&volume.queue);
            self.start_bypass(volume, &mut queue, &blocks, &mut spare, waiter, now);
        }
        self.free_write_pinned(volume, failed_frames);
        if instance.pages.get(slot).resident == 0 {
            instance.remove(slot, false);
        } else {
            self.continue_page(call, instance, slot);
        }
    }

    /// Gives a reader the frames of a read that bypassed the cache.
    fn bypassed(
        &self,
        volume: &Volume<F>,
        op: StoreOp<F>,
        waiter: FillWaiter<F>,
        overlays: Vec<(u64, F::Pin, u8)>,
        error: Option<StoreError>,
    ) {
        let (_, part) = waiter.read.expect("only reads bypass");
        let first = op.offset / BLOCK_BYTES_U64;
        let mut write_pins: Vec<F::WritePin> =
            op.segments.into_iter().map(|segment| segment.buffer.into_owned()).collect();
        for (block, pin, valid) in overlays {
            // After an error there may be no frame for the merge.
            if error.is_none() {
                let write_pin = &mut write_pins[usize::try_from(block - first).expect("an index")];
                self.overlay(valid, &pin, write_pin);
            }
            self.frames.unpin(pin);
        }
        let token = waiter.token;
        if let Some(error) = error {
            let parts = u32::try_from(op.len.div_ceil(BLOCK_BYTES_U64)).expect("a page");
            self.free_write_pinned(volume, write_pins);
            waiter.completions.deliver(&self.frames, Completion::Failed { token, parts, error });
            return;
        }
        let pins: Vec<_> =
            write_pins.into_iter().map(|write_pin| self.frames.downgrade(write_pin)).collect();
        for pin in &pins {
            // The frame is free once the reader unpins it.
            self.pool.retire(volume.id, self.frames.pinned(pin));
        }
        waiter.completions.deliver(&self.frames, Completion::Filled { token, part, pins });
    }
}

fn record<F: Frames>(recorder: &Recorder, done: &StoreCompletion<F>) {
    let StoreCompletion { op, result, started_at, finished_at } = done;
    let queued = started_at.saturating_sub(op.queued_at);
    let served = finished_at.saturating_sub(*started_at);
    match op.kind {
        StoreOpKind::Read => {
            recorder.add(Counter::StoreReads, 1);
            recorder.add(Counter::StoreReadBytes, op.len);
            recorder.record(Latency::StoreReadQueue, queued);
            recorder.record(Latency::StoreReadService, served);
        }
        StoreOpKind::Write { .. } => {
            recorder.add(Counter::StoreWrites, 1);
            recorder.add(Counter::StoreWriteBytes, op.len);
            recorder.record(Latency::StoreWriteQueue, queued);
            recorder.record(Latency::StoreWriteService, served);
        }
        StoreOpKind::Flush => {
            recorder.add(Counter::StoreFlushes, 1);
            recorder.record(Latency::StoreFlushService, served);
        }
        StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
            recorder.add(Counter::StoreDiscards, 1);
        }
    }
    if result.is_err() {
        recorder.add(
            match op.kind {
                StoreOpKind::Read => Counter::StoreReadErrors,
                StoreOpKind::Write { .. } => Counter::StoreWriteErrors,
                _ => Counter::StoreFlushErrors,
            },
            1,
        );
    }
}
