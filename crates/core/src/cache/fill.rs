//! Fills: reads of missing blocks from the store.
//!
//! A fill reads all blocks of a page that are not completely valid into frames outside of the
//! table, and publishes them when the read completes. Sectors that were written in the meantime are
//! newer and are kept. Without frames for the whole page, only the requested blocks are read,
//! bypassing the cache.

use super::Cache;
use crate::clock::Nanos;
use crate::frames::{FrameId, Frames};
use crate::hint::Hint;
use crate::mode::BypassReason;
use crate::page::{BlockKey, FrameState};
use crate::policy::Slot;
use crate::queue::{Context, FillWaiter, Queue};
use crate::read_write::ReadRequest;
use crate::shard::{Admission, Fill, Instance};
use crate::store::{Buffer, Segment, StoreOp, StoreOpKind};
use crate::sync::{Arc, lock};
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, SECTOR_BYTES};
use crate::volume::{Call, Volume, VolumeHandle};
use std::ops::Range;

pub(super) fn range_len(blocks: &Range<u64>) -> usize {
    usize::try_from(blocks.end - blocks.start).expect("at most a page")
}

/// Outcome of a request for blocks that a lookup did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// The blocks are resident now; a read has pinned them.
    Present,
    /// The page is being filled.
    Filling,
    /// Read-ahead has already started to fill the page.
    ReadAheadPending,
    /// The blocks are being read for this reader only.
    Bypassed(BypassReason),
    /// The request must stall: there are no frames, the range is being discarded, or the page size
    /// is changing.
    NoRoom,
    /// The page size has changed: the blocks are in several pages now.
    PageSizeChanged,
}

impl FetchOutcome {
    /// Returns true if a completion follows.
    pub(super) fn is_pending(self) -> bool {
        matches!(
            self,
            FetchOutcome::Filling | FetchOutcome::ReadAheadPending | FetchOutcome::Bypassed(_)
        )
    }
}

/// The reason for a fill.
pub(super) enum FillCause<F: Frames> {
    /// A client waits for the page.
    Client(FillWaiter<F>),
    /// The page is pinned; no client waits for it yet.
    Pinned,
    /// Read-ahead or a warm restart; no client waits for the page yet.
    Ahead,
    /// A warm restart, next to a page that a client waits for.
    WarmNeighbor,
}

/// Listed blocks around a missed page, and frames for them.
#[derive(Debug, Default)]
pub(super) struct WarmRange {
    pub(super) blocks: Range<u64>,
    pub(super) frames: Vec<FrameId>,
}

impl<F: Frames> Cache<F> {
    /// Requests `blocks` (of one page) for a read.
    pub(super) fn miss(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        read: &mut ReadRequest<F>,
        blocks: &Range<u64>,
    ) -> FetchOutcome {
        let waiter = FillWaiter {
            completions: Arc::clone(&handle.completions),
            token: read.token,
            read: Some((blocks.clone(), read.cursor)),
        };
        let unbuffered =
            read.hint.unwrap_or_else(|| handle.volume.config.hint.get()) == Hint::NoBuffering;
        let bypass_reason = unbuffered.then_some(BypassReason::NoBuffering);
        let outcome = self.fetch(handle, now, waiter, blocks, bypass_reason);
        match outcome {
            FetchOutcome::Present => {
                // The blocks were found under the lock. They are pinned now, unless the page was
                // evicted again: then the request is repeated.
                return self.pin_present(handle, now, read, blocks);
            }
            FetchOutcome::Filling | FetchOutcome::ReadAheadPending | FetchOutcome::Bypassed(_) => {
                read.missing += u32::try_from(blocks.end - blocks.start).expect("a page");
            }
            FetchOutcome::NoRoom | FetchOutcome::PageSizeChanged => {}
        }
        outcome
    }

    fn pin_present(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        read: &mut ReadRequest<F>,
        blocks: &Range<u64>,
    ) -> FetchOutcome {
        let volume = Arc::clone(&handle.volume);
        let mut shard = self.shard_of(&volume, blocks.start);
        let instance = shard.instance(volume.id);
        let pins = self.pins_of(instance, blocks);
        let Some(pins) = pins else {
            drop(shard);
            return self.miss(handle, now, read, blocks);
        };
        if let Some(slot) = instance.find(&self.table, instance.paging.page_of(blocks.start)) {
            instance.reference(slot, now);
        }
        for (i, pin) in pins.into_iter().enumerate() {
            read.parts[read.cursor as usize + i] = Some(pin);
        }
        FetchOutcome::Present
    }

    /// Returns pins of all `blocks` if each is completely valid. The caller holds the shard's lock.
    pub(super) fn pins_of(
        &self,
        instance: &Instance<F>,
        blocks: &Range<u64>,
    ) -> Option<Vec<F::Pin>> {
        let frames: Option<Vec<FrameId>> = blocks
            .clone()
            .map(|block| {
                let frame = self.table.find(BlockKey::new(instance.volume.id, block))?;
                self.table.state(frame).covers(0xff).then_some(frame)
            })
            .collect();
        Some(frames?.into_iter().map(|frame| self.pin_published(frame)).collect())
    }

    /// Ensures that `blocks` (of one page) will be resident and that the waiter gets a completion.
    /// With a bypass reason, a reader gets the blocks without caching them. If the outcome is
    /// pending, the caller wakes the volume's store thread after the last page of the request: the
    /// operations of all pages are then in the queue, and adjacent ones become one.
    pub(super) fn fetch(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        waiter: FillWaiter<F>,
        blocks: &Range<u64>,
        bypass_reason: Option<BypassReason>,
    ) -> FetchOutcome {
        let volume = Arc::clone(&handle.volume);
        // A read of a frozen volume does not change the contents of the cache.
        let frozen = volume.is_frozen() && waiter.read.is_some();
        let bypass_reason = bypass_reason.or(frozen.then_some(BypassReason::Frozen));
        let mut wanted = range_len(blocks);
        if bypass_reason.is_none() {
            wanted = self.count_absent(volume.id, &volume.paging().around(blocks.start));
            self.note_miss(&volume, blocks.start, now);
        }
        let mut warm = WarmRange::default();
        let outcome = loop {
            let (spare, recorder) = (&mut handle.spare, &*handle.recorder);
            let has_frames = self.reserve(&Call { volume: &volume, recorder, now }, wanted, spare);
            if has_frames && bypass_reason.is_none() {
                self.reserve_warm_range(&volume, blocks.start, &mut warm);
            }
            let mut shard = self.shard_of(&volume, blocks.start);
            let instance = shard.instance(volume.id);
            let page = instance.paging.page_of(blocks.start);
            let whole = instance.paging.blocks_of(page);
            let mut queue = lock(&volume.queue);
            let outcome = if self.count_absent(volume.id, blocks) == 0 {
                FetchOutcome::Present
            } else if let Some(fill) = instance.fills.get_mut(&page)
                && blocks.end <= whole.end
            {
                let ahead = std::mem::take(&mut fill.ahead);
                fill.waiters.push(waiter);
                let slot = fill.slot;
                instance.reference(slot, now);
                if ahead {
                    self.overtake_ahead(&volume, &mut queue, &whole);
                    FetchOutcome::ReadAheadPending
                } else {
                    FetchOutcome::Filling
                }
            } else if volume.is_regrouping() || queue.is_exclusive(&whole) {
                FetchOutcome::NoRoom
            } else if blocks.end > whole.end {
                FetchOutcome::PageSizeChanged
            } else {
                let absent = self.count_absent(volume.id, &whole);
                if has_frames && bypass_reason.is_none() && absent > handle.spare.len() {
                    // More blocks were evicted while no lock was held.
                    wanted = absent;
                    continue;
                }
                if bypass_reason.is_none() && absent <= handle.spare.len() {
                    let spare = &mut handle.spare;
                    self.fill_around(instance, &mut queue, page, (spare, &mut warm), waiter, now);
                    FetchOutcome::Filling
                } else if waiter.read.is_some() && range_len(blocks) <= handle.spare.len() {
                    self.start_bypass(&volume, &mut queue, blocks, &mut handle.spare, waiter, now);
                    FetchOutcome::Bypassed(bypass_reason.unwrap_or(BypassReason::Pressure))
                } else {
                    FetchOutcome::NoRoom
                }
            };
            drop(queue);
            drop(shard);
            self.return_spare(handle);
            break outcome;
        };
        if !warm.frames.is_empty() {
            self.pool.give_back(&volume, warm.frames);
        }
        outcome
    }

    /// Returns unused frames of a request to the pool.
    pub(super) fn return_spare(&self, handle: &mut VolumeHandle<F>) {
        if !handle.spare.is_empty() {
            self.pool.give_back(&handle.volume, handle.spare.drain(..));
        }
    }

    /// Returns the number of `blocks` that are not completely valid.
    pub(super) fn count_absent(&self, volume: u16, blocks: &Range<u64>) -> usize {
        let is_absent = |&block: &u64| {
            let frame = self.table.find(BlockKey::new(volume, block));
            !frame.is_some_and(|frame| self.table.state(frame).covers(0xff))
        };
        blocks.clone().filter(is_absent).count()
    }

    pub(super) fn start_fill(
        &self,
        instance: &mut Instance<F>,
        queue: &mut Queue<F>,
        page: u64,
        spare: &mut Vec<FrameId>,
        cause: FillCause<F>,
        now: Nanos,
    ) {
        let ahead = matches!(cause, FillCause::Ahead | FillCause::WarmNeighbor);
        let admission = if ahead { Admission::ReadAhead } else { Admission::Reference };
        let slot = instance.find_or_insert(&self.table, page, admission, now);
        let volume = Arc::clone(&instance.volume);
        let mut ops_left = 0;
        let paging = instance.paging;
        for run in self.absent_runs(volume.id, paging.blocks_of(page)) {
            let context = Context::Fill { page, paging };
            let op = self.read_op(&volume, queue, run, spare, context, now);
            queue.push_read(op, matches!(cause, FillCause::Ahead));
            ops_left += 1;
        }
        instance.pages.get_mut(slot).filling = true;
        let waiters = match cause {
            FillCause::Client(waiter) => vec![waiter],
            FillCause::Pinned | FillCause::Ahead | FillCause::WarmNeighbor => Vec::new(),
        };
        let fill = Fill { slot, ops_left, error: None, failed_frames: Vec::new(), waiters, ahead };
        let before = instance.fills.insert(page, fill);
        assert!(before.is_none() && ops_left > 0, "a fill of a page that is being filled or whole");
    }

    /// Returns the runs of blocks that are not completely valid.
    fn absent_runs(&self, volume: u16, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            if self.count_absent(volume, &(block..block + 1)) == 0 {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }

    /// Returns an operation that reads `blocks` into frames of `spare`.
    fn read_op(
        &self,
        volume: &Volume<F>,
        queue: &mut Queue<F>,
        blocks: Range<u64>,
        spare: &mut Vec<FrameId>,
        context: Context<F>,
        now: Nanos,
    ) -> StoreOp<F> {
        let write_pins = blocks.clone().map(|_| {
            let frame = spare.pop().expect("frames were reserved for every block");
            self.write_pin_fresh(frame)
        });
        let write_pins: Vec<_> = write_pins.collect();
        let segments = self.read_segments(volume, &blocks, write_pins);
        let start = blocks.start * BLOCK_BYTES_U64;
        let len: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
        queue.operation(StoreOpKind::Read, start..start + len, segments, context, now)
    }

    pub(super) fn read_segments(
        &self,
        volume: &Volume<F>,
        blocks: &Range<u64>,
        write_pins: Vec<F::WritePin>,
    ) -> Vec<Segment<F>> {
        let segment = |(block, mut write_pin): (u64, F::WritePin)| {
            let len = volume.bytes_of(block);
            if (len as usize) < BLOCK_BYTES {
                self.frames.zero(&mut write_pin, len as usize, BLOCK_BYTES - len as usize);
            }
            Segment { buffer: Buffer::Owned(write_pin), offset: 0, len }
        };
        blocks.clone().zip(write_pins).map(segment).collect()
    }

    /// Reads `blocks` for one reader. Blocks that are resident now are pinned and copied over the
    /// result, since the store may not have their data yet.
    pub(super) fn start_bypass(
        &self,
        volume: &Volume<F>,
        queue: &mut Queue<F>,
        blocks: &Range<u64>,
        spare: &mut Vec<FrameId>,
        waiter: FillWaiter<F>,
        now: Nanos,
    ) {
        let resident = |block| {
            let frame = self.table.find(BlockKey::new(volume.id, block))?;
            let pin = self.pin_published(frame);
            Some((block, pin, self.table.state(frame).valid))
        };
        let overlays = blocks.clone().filter_map(resident).collect();
        let context = Context::Bypass { waiter, overlays };
        let op = self.read_op(volume, queue, blocks.clone(), spare, context, now);
        queue.push_read(op, false);
    }

    /// Publishes a block that was read from the store, with the read-ahead flag if `ahead`. Sectors
    /// that are already resident are newer and are kept.
    pub(super) fn publish_filled(
        &self,
        instance: &mut Instance<F>,
        slot: Slot,
        (block, mut write_pin): (u64, F::WritePin),
        ahead: bool,
    ) {
        let key = BlockKey::new(instance.volume.id, block);
        let mut state = FrameState { valid: 0xff, dirty: 0, writing: 0, ahead };
        let old = self.table.find(key);
        if let Some(old) = old {
            let before = self.supersede(old, |pin, before| {
                self.overlay(before.valid, pin, &mut write_pin);
            });
            state = FrameState { valid: 0xff, ..before };
        } else {
            instance.pages.get_mut(slot).resident += 1;
        }
        self.publish(write_pin, key, slot, state);
        if let Some(old) = old {
            self.pool.retire(instance.volume.id, old);
        }
    }

    /// Takes a frame out of the table after `merge` has copied from it to the frame that replaces
    /// it. Returns its state. The caller publishes the new frame first, so that the block is absent
    /// as briefly as possible, and then retires the old one.
    pub(super) fn supersede(
        &self,
        frame: FrameId,
        merge: impl FnOnce(&F::Pin, FrameState),
    ) -> FrameState {
        let pin = self.pin_published(frame);
        let state = self.table.state(frame);
        merge(&pin, state);
        // Before the release of the pin: otherwise a write without the lock could change it in the
        // meantime.
        self.table.retract(frame);
        self.frames.unpin(pin);
        state
    }

    /// Puts a frame into the table, and releases its write pin.
    pub(super) fn publish(
        &self,
        write_pin: F::WritePin,
        key: BlockKey,
        slot: Slot,
        state: FrameState,
    ) {
        let frame = self.frames.write_pinned(&write_pin);
        self.frames.release_write_pin(write_pin);
        self.table.publish(frame, key, slot, state);
    }

    /// Copies the sectors of `mask`.
    pub(super) fn overlay(&self, mask: u8, from: &F::Pin, to: &mut F::WritePin) {
        for sector in (0..8).filter(|sector| mask & (1 << sector) != 0) {
            self.frames.copy(from, to, sector * SECTOR_BYTES, SECTOR_BYTES);
        }
    }
}
