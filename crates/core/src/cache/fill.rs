//! Fills: reading what is missing from the store.
//!
//! A fill reads all blocks of a page that are not wholly valid into frames that nobody can find,
//! and publishes them when they have come. Sectors that were written meanwhile are newer and win.
//! Where there is no room for the whole page, exactly the blocks asked for are read past the cache.

use super::Cache;
use super::warm::WarmRange;
use crate::clock::Nanos;
use crate::completion::VolumeHandle;
use crate::frames::{FrameId, Frames};
use crate::hint::Hint;
use crate::mode::BypassReason;
use crate::page::{FrameState, Key};
use crate::policy::Slot;
use crate::queue::{Context, FillWaiter, Queue};
use crate::request::ReadRequest;
use crate::shard::{Fill, Instance};
use crate::store::{Buffer, Segment, StoreOp, StoreOpKind};
use crate::sync::{Arc, lock};
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, SECTOR_BYTES};
use crate::volume::Volume;
use std::ops::Range;

pub(super) fn range_len(blocks: &Range<u64>) -> usize {
    usize::try_from(blocks.end - blocks.start).expect("at most a page")
}

/// What became of blocks that were not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// They are there now, pinned into the assembly.
    Present,
    /// They are coming, with the whole page.
    Filling,
    /// The same, and read-ahead had begun it.
    Coming,
    /// They are coming, for this reader only.
    Bypassed(BypassReason),
    /// Neither can be: no frames, the range is being discarded, or the page size is changing.
    NoRoom,
    /// The page size has changed: they are of several pages now.
    Recut,
}

/// Why a page is filled.
pub(super) enum FillCause<F: Frames> {
    /// A client waits for it.
    Client(FillWaiter<F>),
    /// It is pinned; nobody waits for it yet.
    Pinned,
    /// Read-ahead, or a warm restart: nobody waits for it yet.
    Ahead,
    /// The same, beside a page that a client waits for.
    Along,
}

impl<F: Frames> Cache<F> {
    /// Gets `blocks` (of one page) for a read.
    pub(super) fn miss(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        assembly: &mut ReadRequest<F>,
        blocks: &Range<u64>,
    ) -> Missing {
        let waiter = FillWaiter {
            mailbox: Arc::clone(&lane.mailbox),
            token: assembly.token,
            read: Some((blocks.clone(), assembly.cursor)),
        };
        let unbuffered = assembly.hint_in(&lane.volume) == Hint::NoBuffering;
        let past = unbuffered.then_some(BypassReason::NoBuffering);
        let outcome = self.fetch(lane, now, waiter, blocks, past);
        match outcome {
            Missing::Present => {
                // Found under the lock; pinned now, unless it was evicted again: then once more.
                return self.pin_present(lane, now, assembly, blocks);
            }
            Missing::Filling | Missing::Coming | Missing::Bypassed(_) => {
                assembly.missing += u32::try_from(blocks.end - blocks.start).expect("a page");
            }
            Missing::NoRoom | Missing::Recut => {}
        }
        outcome
    }

    fn pin_present(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        assembly: &mut ReadRequest<F>,
        blocks: &Range<u64>,
    ) -> Missing {
        let volume = Arc::clone(&lane.volume);
        let index = self.table.shard(Key::new(volume.id, blocks.start));
        let mut shard = self.shard(index);
        let instance = shard.instance(volume.id);
        let pins = self.pins_of(instance, blocks);
        let Some(pins) = pins else {
            drop(shard);
            return self.miss(lane, now, assembly, blocks);
        };
        if let Some(slot) = instance.find(&self.table, instance.paging.page_of(blocks.start)) {
            instance.reference(slot, now);
        }
        for (i, pin) in pins.into_iter().enumerate() {
            assembly.parts[assembly.cursor as usize + i] = Some(pin);
        }
        Missing::Present
    }

    /// Pins of all `blocks` if each is wholly valid, under the shard's lock.
    pub(super) fn pins_of(
        &self,
        instance: &Instance<F>,
        blocks: &Range<u64>,
    ) -> Option<Vec<F::Pin>> {
        let frames: Option<Vec<FrameId>> = blocks
            .clone()
            .map(|block| {
                let frame = self.table.find(Key::new(instance.volume.id, block))?;
                self.table.state(frame).covers(0xff).then_some(frame)
            })
            .collect();
        Some(frames?.into_iter().map(|frame| self.pin_published(frame)).collect())
    }

    /// Sees to it that `blocks` (of one page) come, and the waiter is told. With a reason for that,
    /// a reader gets them past the cache.
    pub(super) fn fetch(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        waiter: FillWaiter<F>,
        blocks: &Range<u64>,
        past: Option<BypassReason>,
    ) -> Missing {
        let volume = Arc::clone(&lane.volume);
        // What a frozen volume reads leaves no trace.
        let frozen = volume.is_frozen() && waiter.read.is_some();
        let past = past.or(frozen.then_some(BypassReason::Frozen));
        let mut wanted = range_len(blocks);
        if past.is_none() {
            wanted = self.count_absent(volume.id, &volume.paging().around(blocks.start));
            self.note_miss(&volume, blocks.start, now);
        }
        let mut along = WarmRange::default();
        let outcome = loop {
            let (spare, recorder) = (&mut lane.spare, &*lane.recorder);
            let room = self.reserve(&volume, wanted, spare, recorder, now);
            if room && past.is_none() {
                self.room_along(&volume, blocks.start, &mut along);
            }
            let index = self.table.shard(Key::new(volume.id, blocks.start));
            let mut shard = self.shard(index);
            let instance = shard.instance(volume.id);
            let page = instance.paging.page_of(blocks.start);
            let whole = instance.paging.blocks_of(page);
            let mut queue = lock(&volume.queue);
            let outcome = if self.count_absent(volume.id, blocks) == 0 {
                Missing::Present
            } else if let Some(fill) = instance.fills.get_mut(&page)
                && blocks.end <= whole.end
            {
                let ahead = std::mem::take(&mut fill.ahead);
                fill.waiters.push(waiter);
                let slot = fill.slot;
                if ahead {
                    self.overtake_ahead(&volume, &mut queue, &whole);
                    Missing::Coming
                } else {
                    instance.reference(slot, now);
                    Missing::Filling
                }
            } else if volume.is_regrouping() || queue.is_exclusive(&whole) {
                Missing::NoRoom
            } else if blocks.end > whole.end {
                Missing::Recut
            } else {
                let absent = self.count_absent(volume.id, &whole);
                if room && past.is_none() && absent > lane.spare.len() {
                    // More went while no lock was held.
                    wanted = absent;
                    continue;
                }
                if past.is_none() && absent <= lane.spare.len() {
                    let spare = &mut lane.spare;
                    self.fill_along(instance, &mut queue, page, (spare, &mut along), waiter, now);
                    Missing::Filling
                } else if waiter.read.is_some() && range_len(blocks) <= lane.spare.len() {
                    self.start_bypass(&volume, &mut queue, blocks, &mut lane.spare, waiter, now);
                    Missing::Bypassed(past.unwrap_or(BypassReason::Pressure))
                } else {
                    Missing::NoRoom
                }
            };
            drop(queue);
            drop(shard);
            self.return_spare(lane);
            if matches!(outcome, Missing::Filling | Missing::Coming | Missing::Bypassed(_)) {
                volume.notify.notify();
            }
            break outcome;
        };
        if !along.frames.is_empty() {
            self.pool.give_back(&volume, along.frames);
        }
        outcome
    }

    /// Gives back what a request did not use.
    pub(super) fn return_spare(&self, lane: &mut VolumeHandle<F>) {
        if !lane.spare.is_empty() {
            self.pool.give_back(&lane.volume, lane.spare.drain(..));
        }
    }

    /// How many of `blocks` are not wholly valid.
    pub(super) fn count_absent(&self, volume: u16, blocks: &Range<u64>) -> usize {
        let is_absent = |&block: &u64| {
            let frame = self.table.find(Key::new(volume, block));
            !frame.is_some_and(|frame| self.table.state(frame).covers(0xff))
        };
        blocks.clone().filter(is_absent).count()
    }

    /// Begins to fill a page.
    pub(super) fn start_fill(
        &self,
        instance: &mut Instance<F>,
        queue: &mut Queue<F>,
        page: u64,
        spare: &mut Vec<FrameId>,
        cause: FillCause<F>,
        now: Nanos,
    ) {
        let slot = instance.find_or_insert(&self.table, page, true, now);
        let volume = Arc::clone(&instance.volume);
        let mut ops_left = 0;
        let paging = instance.paging;
        let ahead = matches!(cause, FillCause::Ahead | FillCause::Along);
        for run in self.absent_runs(volume.id, paging.blocks_of(page)) {
            let context = Context::Fill { page, paging };
            let op = self.read_op(&volume, queue, run, spare, context, now);
            queue.push_read(op, matches!(cause, FillCause::Ahead));
            ops_left += 1;
        }
        instance.pages.get_mut(slot).filling = true;
        let waiters = match cause {
            FillCause::Client(waiter) => vec![waiter],
            FillCause::Pinned | FillCause::Ahead | FillCause::Along => Vec::new(),
        };
        let fill = Fill { slot, ops_left, error: None, salvage: Vec::new(), waiters, ahead };
        let before = instance.fills.insert(page, fill);
        assert!(before.is_none() && ops_left > 0, "a fill of a page that is being filled or whole");
    }

    /// Runs of blocks that are not wholly valid.
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

    /// A read of `blocks` into frames of `spare`.
    fn read_op(
        &self,
        volume: &Volume<F>,
        queue: &mut Queue<F>,
        blocks: Range<u64>,
        spare: &mut Vec<FrameId>,
        context: Context<F>,
        now: Nanos,
    ) -> StoreOp<F> {
        let owned = blocks.clone().map(|_| {
            let frame = spare.pop().expect("frames were reserved for every block");
            self.write_pin_fresh(frame)
        });
        let owned: Vec<_> = owned.collect();
        let segments = self.read_segments(volume, &blocks, owned);
        let start = blocks.start * BLOCK_BYTES_U64;
        let len: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
        queue.operation(StoreOpKind::Read, start..start + len, segments, context, now)
    }

    pub(super) fn read_segments(
        &self,
        volume: &Volume<F>,
        blocks: &Range<u64>,
        owned: Vec<F::WritePin>,
    ) -> Vec<Segment<F>> {
        let segment = |(block, mut own): (u64, F::WritePin)| {
            let len = volume.bytes_of(block);
            if (len as usize) < BLOCK_BYTES {
                self.frames.zero(&mut own, len as usize, BLOCK_BYTES - len as usize);
            }
            Segment { buffer: Buffer::Owned(own), offset: 0, len }
        };
        blocks.clone().zip(owned).map(segment).collect()
    }

    /// Reads `blocks` for one reader. What is resident of them now is held until they come, and
    /// laid over: the store may not have it yet.
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
            let frame = self.table.find(Key::new(volume.id, block))?;
            let pin = self.pin_published(frame);
            Some((block, pin, self.table.state(frame).valid))
        };
        let overlays = blocks.clone().filter_map(resident).collect();
        let context = Context::Bypass { waiter, overlays };
        let op = self.read_op(volume, queue, blocks.clone(), spare, context, now);
        queue.push_read(op, false);
    }

    /// Publishes a block that has come from the store, marked if it was read ahead. Sectors that
    /// are resident already are newer.
    pub(super) fn publish_filled(
        &self,
        instance: &mut Instance<F>,
        slot: Slot,
        (block, mut own): (u64, F::WritePin),
        ahead: bool,
    ) {
        let key = Key::new(instance.volume.id, block);
        let mut state = FrameState { valid: 0xff, dirty: 0, writing: 0, ahead };
        if let Some(old) = self.table.find(key) {
            let pin = self.pin_published(old);
            let before = self.table.state(old);
            self.overlay(before.valid, &pin, &mut own);
            state = FrameState { valid: 0xff, ..before };
            // Unfindable first: else a write that takes no lock could go into it meanwhile.
            self.table.retract(old);
            self.frames.unpin(pin);
            self.pool.retire(instance.volume.id, old);
        } else {
            instance.pages.get_mut(slot).resident += 1;
        }
        let frame = self.frames.write_pinned(&own);
        self.frames.release_write_pin(own);
        self.table.publish(frame, key, slot, state);
    }

    /// Copies the sectors of `mask`.
    pub(super) fn overlay(&self, mask: u8, from: &F::Pin, to: &mut F::WritePin) {
        for sector in (0..8).filter(|sector| mask & (1 << sector) != 0) {
            self.frames.copy(from, to, sector * SECTOR_BYTES, SECTOR_BYTES);
        }
    }
}
