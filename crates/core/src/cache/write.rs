//! Writes: into the cache, and from there to the store if the mode or the client requires it.
//!
//! Bytes go into the cache first in every mode, so the order of writes to a block is always that in
//! which they reached its frame. A block has at most one write to the store in progress, with the
//! contents of its frame at the start of that write.

use super::Cache;
use super::fill::FetchOutcome;
use crate::clock::Nanos;
use crate::counters::{Class, Counter};
use crate::frames::{FrameId, Frames};
use crate::mode::{BypassReason, WriteMode, mode_with};
use crate::page::{BlockKey, FrameState};
use crate::payload::Payload;
use crate::policy::Slot;
use crate::queue::FillWaiter;
use crate::read_write::{Status, WriteRequest};
use crate::shard::{Admission, Instance};
use crate::store::{StoreError, StoreErrorKind};
use crate::sync::{Arc, spin};
use crate::tunables::Tunable;
use crate::units::{
    BLOCK_BYTES, BLOCK_BYTES_U64, blocks_touched, sectors_covered, sectors_touched,
};
use crate::volume::{Call, Volume, VolumeHandle};
use std::ops::Range;

/// Number of attempts to write-pin a pinned frame before its block is copied to a new one. Readers
/// that copy release their pin within this many attempts; sockets and stores hold it longer.
const WRITE_PIN_TRIES: usize = 64;

/// A part of a write that lies in one block.
#[derive(Clone, Copy, Debug)]
struct Piece<'a, P: ?Sized> {
    block: u64,
    /// First byte in the block.
    offset: usize,
    payload: &'a P,
    /// First byte in the payload.
    at: usize,
    len: usize,
    /// Sectors that become dirty, and those that must be valid before the write.
    dirties: u8,
    needs: u8,
}

impl<P: Payload + ?Sized> Piece<'_, P> {
    /// Copies the bytes of the piece into a frame.
    fn write_to<F: Frames>(&self, frames: &F, write_pin: &mut F::WritePin) {
        let fill = |to: &mut [u8]| self.payload.copy_to(self.at, to);
        frames.write_with(write_pin, self.offset, self.len, fill);
    }
}

/// The part of a write that lies in one page.
struct PagePart<'a, F: Frames, P: ?Sized> {
    volume: &'a Volume<F>,
    payload: &'a P,
    /// Offset of the payload's first byte in the volume.
    base: u64,
    /// Byte range of the part in the volume.
    bytes: Range<u64>,
}

impl<'a, F: Frames, P: ?Sized> PagePart<'a, F, P> {
    fn blocks(&self) -> Range<u64> {
        blocks_touched(&self.bytes)
    }

    fn pieces(&self) -> impl Iterator<Item = Piece<'a, P>> + use<'a, F, P> {
        let (volume, payload, base) = (self.volume, self.payload, self.base);
        let bytes = self.bytes.clone();
        self.blocks().map(move |block| {
            let start = bytes.start.max(block * BLOCK_BYTES_U64);
            let end = bytes.end.min((block + 1) * BLOCK_BYTES_U64);
            let index = |offset: u64| usize::try_from(offset - base).expect("a u32");
            let offset = usize::try_from(start % BLOCK_BYTES_U64).expect("below a block");
            let (at, len) = (index(start), index(end) - index(start));
            let (dirties, needs) = sectors_of_piece(volume, block, offset, len);
            Piece { block, offset, payload, at, len, dirties, needs }
        })
    }
}

/// Returns the sectors of a piece that become dirty, and those that must be valid before the write.
fn sectors_of_piece<F: Frames>(
    volume: &Volume<F>,
    block: u64,
    offset: usize,
    len: usize,
) -> (u8, u8) {
    // Bytes past the end of the volume count as written: no request can access them.
    let reaches_end = offset + len == volume.bytes_of(block) as usize;
    let len_covered = if reaches_end { BLOCK_BYTES - offset } else { len };
    let covered = sectors_covered(offset, len_covered);
    let touched = sectors_touched(offset, len);
    let whole_granule = volume.geometry().granule as usize == BLOCK_BYTES;
    match (whole_granule, covered) {
        (false, _) => (touched | covered, touched & !covered),
        (true, 0xff) => (0xff, 0),
        (true, _) => (0xff, 0xff),
    }
}

/// Outcome of placing one page's part of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceOutcome {
    /// The part is in the cache; all its blocks were dirty before.
    Absorbed,
    /// The part is in the cache.
    New,
    /// The part is in the cache, in a page that is dropped after its writeback.
    Transient(BypassReason),
    /// A block must be filled first; a completion follows.
    Filling,
    /// The write must stall: there are no frames, the range is being discarded, or the page size is
    /// changing.
    NoRoom,
    /// The page size has changed: the part is in several pages now.
    PageSizeChanged,
}

impl<F: Frames> Cache<F> {
    /// Continues a write of the bytes in `payload`.
    ///
    /// [`Status::Pending`]: after [`crate::completion::Completion::Continue`] call this again; pass
    /// other completions with the token of the write to [`Cache::write_completed`].
    ///
    /// # Panics
    /// If the range is not inside the volume.
    pub(crate) fn write<P: Payload + ?Sized>(
        &self,
        volume: &Volume<F>,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
        payload: &P,
    ) -> Status {
        debug_assert_eq!(volume.id, handle.volume.id, "the volume of the handle");
        assert_eq!(payload.len(), write.len as usize, "the bytes of the whole task");
        assert!(
            write.offset + u64::from(write.len) <= volume.geometry().length,
            "within the volume"
        );
        volume.note_request(now);
        if let Some(error) = volume.broken() {
            return Status::Failed(error.clone());
        }
        let (mode, _) = *write.modes.get_or_insert_with(|| volume.config.modes());
        let hint = write.hint.unwrap_or_else(|| volume.config.hint.get());
        let mode = mode_with(volume.effective(mode), hint);
        if mode == WriteMode::ReadOnly {
            let message = format!("write to {}: it is read-only", volume.name());
            return Status::Failed(StoreError::new(StoreErrorKind::ReadOnly, message));
        }
        let before = write.done;
        while write.done < write.len {
            let part = Self::next_page_part(volume, write, payload);
            let placed = if volume.is_at_dirty_limit() {
                if volume.is_regrouping() || !self.absorb_for(handle, now, write, &part) {
                    return self.at_limit(handle);
                }
                PlaceOutcome::Absorbed
            } else {
                self.place(handle, now, write, &part, mode)
            };
            match placed {
                PlaceOutcome::NoRoom => return self.without_room(handle),
                PlaceOutcome::PageSizeChanged => continue,
                PlaceOutcome::Filling => {
                    write.filled = true;
                    return Status::Pending;
                }
                placed => count_placed(handle, placed, mode, write),
            }
            write.done = u32::try_from(part.bytes.end - write.offset).expect("a u32");
        }
        self.finish_write(volume, handle, now, write, (mode, before))
    }

    /// Continues a write whose bytes are all in the cache; `before` of them were already at the
    /// start of the call.
    pub(super) fn finish_write(
        &self,
        volume: &Volume<F>,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
        (mode, before): (WriteMode, u32),
    ) -> Status {
        let fua = write.is_stable();
        // The mode is read again after the last block was placed: a stop writes the data that was
        // placed before it began; data that was placed after it is written through.
        let mode = volume.effective(mode);
        if (mode != WriteMode::Back || fua) && !write.synced {
            write.synced = true;
            self.sync(handle, now, write, fua);
        }
        if write.waiting > 0 {
            return Status::Pending;
        }
        if write.needs_flush {
            return self.flush_for(handle, now, write);
        }
        Self::acknowledge(volume, now, u64::from(write.len - before))
    }

    /// Ends or stalls a write at the dirty limit. It waits for the lazy writer. If the store has
    /// failed to write nearly all dirty blocks, no space can be expected, so the write fails.
    pub(super) fn at_limit(&self, handle: &VolumeHandle<F>) -> Status {
        if let Some(error) = handle.volume.failure_at_limit() {
            return Status::Failed(error);
        }
        self.stall(handle);
        Status::Stalled
    }

    /// Ends or stalls a write without frames. It fails if the store of its volume fails, and nearly
    /// all of the memory holds blocks of any volumes that could not be written.
    pub(super) fn without_room(&self, handle: &VolumeHandle<F>) -> Status {
        if let Some(error) = handle.volume.failure() {
            let volumes = self.volumes();
            let failing: u64 = volumes.iter().map(|it| it.dirty.failing()).sum();
            let unclean: u64 = volumes.iter().map(|it| it.unclean_blocks()).sum();
            let frames = u64::from(self.pool.size());
            if failing >= frames - frames / 4 && failing >= unclean - unclean / 8 {
                return Status::Failed(error);
            }
        }
        self.stall(handle);
        Status::Stalled
    }

    /// Returns the status of a complete write of `bytes`: the time of its acknowledgement depends
    /// on the unclean blocks.
    fn acknowledge(volume: &Volume<F>, now: Nanos, bytes: u64) -> Status {
        let (unclean, limit) = (volume.unclean_blocks(), volume.dirty_limit_blocks());
        let threshold = volume.config.share_of_capacity(Tunable::DirtyThreshold);
        let setpoint = threshold.midpoint(limit).min(limit - 1);
        if unclean <= setpoint {
            return Status::Done;
        }
        let unclean = volume.limited_blocks(unclean, limit);
        if unclean <= setpoint {
            return Status::Done;
        }
        let blocks = bytes.div_ceil(BLOCK_BYTES_U64);
        // The driver thread holds this lock while it searches for work; then this write is not
        // delayed.
        let Ok(mut writer) = volume.writer.try_lock() else { return Status::Done };
        match writer.pace.acknowledge_at(now, blocks, unclean, setpoint, limit) {
            Some(at) => Status::DoneAt(at),
            None => Status::Done,
        }
    }

    fn next_page_part<'a, P: ?Sized>(
        volume: &'a Volume<F>,
        write: &WriteRequest,
        payload: &'a P,
    ) -> PagePart<'a, F, P> {
        let start = write.offset + u64::from(write.done);
        let page_end = volume.paging().around(start / BLOCK_BYTES_U64).end * BLOCK_BYTES_U64;
        let end = page_end.min(write.offset + u64::from(write.len));
        PagePart { volume, payload, base: write.offset, bytes: start..end }
    }

    fn place<P: Payload + ?Sized>(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &WriteRequest,
        part: &PagePart<'_, F, P>,
        mode: WriteMode,
    ) -> PlaceOutcome {
        let (volume, blocks) = (part.volume, part.blocks());
        if volume.is_regrouping() {
            return PlaceOutcome::NoRoom;
        }
        if self.absorb_for(handle, now, write, part) {
            return PlaceOutcome::Absorbed;
        }
        let is_absent = |&block: &u64| self.table.find(BlockKey::new(volume.id, block)).is_none();
        // Not more than needed: an eviction could hit the page that was filled for this write.
        let mut wanted = blocks.clone().filter(is_absent).count();
        let bypass = Self::bypass_reason_of(volume, mode);
        if wanted > 0 && bypass.is_none() {
            self.note_miss(volume, blocks.start, now);
        }
        let placed = loop {
            if wanted > 0
                && !self.reserve(
                    &Call { volume, recorder: &handle.recorder, now },
                    wanted,
                    &mut handle.spare,
                )
            {
                break PlaceOutcome::NoRoom;
            }
            let mut shard = self.shard_of(volume, blocks.start);
            if volume.is_regrouping() || volume.is_exclusive(&blocks) {
                break PlaceOutcome::NoRoom;
            }
            let page = shard.instance(volume.id).paging.around(blocks.start);
            if blocks.end > page.end {
                break PlaceOutcome::PageSizeChanged;
            }
            if let Some(piece) = part.pieces().find(|piece| !self.is_placeable(volume, piece)) {
                drop(shard);
                return self
                    .fill_first(handle, now, write, piece.block)
                    .unwrap_or_else(|| self.place(handle, now, write, part, mode));
            }
            let write_pins = self.write_pin_resident(volume, blocks.clone());
            wanted = write_pins.iter().filter(|write_pin| write_pin.is_none()).count();
            let has_frames = wanted <= handle.spare.len();
            let paging = shard.instance(volume.id).paging;
            let group = write.group;
            if has_frames && Self::join_group(handle, paging, group, blocks.start, blocks.clone()) {
                // Hits that were recorded before precede this reference.
                shard.drain(now);
                let instance = shard.instance(volume.id);
                break self.place_locked(instance, now, (part, write_pins), mode, handle);
            }
            for write_pin in write_pins.into_iter().flatten() {
                self.frames.release_write_pin(write_pin);
            }
            if has_frames {
                break PlaceOutcome::NoRoom;
            }
        };
        self.return_spare(handle);
        placed
    }

    /// Write-pins the frames of blocks. A block that is absent, or whose frame is pinned, gets
    /// `None`: it needs a new frame.
    fn write_pin_resident(
        &self,
        volume: &Volume<F>,
        blocks: Range<u64>,
    ) -> Vec<Option<F::WritePin>> {
        let write_pin = |block: u64| {
            let frame = self.table.find(BlockKey::new(volume.id, block))?;
            (0..WRITE_PIN_TRIES).find_map(|_| {
                let write_pin = self.frames.try_write_pin(frame);
                if write_pin.is_none() {
                    spin();
                }
                write_pin
            })
        };
        blocks.map(write_pin).collect()
    }

    fn is_placeable<P: ?Sized>(&self, volume: &Volume<F>, piece: &Piece<'_, P>) -> bool {
        piece.needs == 0
            || self
                .table
                .find(BlockKey::new(volume.id, piece.block))
                .is_some_and(|frame| self.table.state(frame).covers(piece.needs))
    }

    /// Fills the page of a block that a write covers only in part. Returns `None` if the block is
    /// resident now.
    pub(super) fn fill_first(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &WriteRequest,
        block: u64,
    ) -> Option<PlaceOutcome> {
        let completions = Arc::clone(&handle.completions);
        let waiter = FillWaiter { completions, token: write.token, read: None };
        let outcome = self.fetch(handle, now, waiter, &(block..block + 1), None);
        if outcome.is_pending() {
            handle.volume.waker.wake();
        }
        match outcome {
            FetchOutcome::Present => None,
            FetchOutcome::Filling | FetchOutcome::ReadAheadPending => Some(PlaceOutcome::Filling),
            FetchOutcome::Bypassed(_) | FetchOutcome::NoRoom => Some(PlaceOutcome::NoRoom),
            FetchOutcome::PageSizeChanged => Some(PlaceOutcome::PageSizeChanged),
        }
    }

    /// Writes a part of `write` into frames that are already dirty, and records the reference.
    /// Returns false if one of its blocks is not dirty, or the write belongs to a group.
    fn absorb_for<P: Payload + ?Sized>(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        write: &WriteRequest,
        part: &PagePart<'_, F, P>,
    ) -> bool {
        if write.group.is_some() {
            return false;
        }
        let Some(slot) = self.absorb(part) else { return false };
        self.note_hit(handle, BlockKey::new(part.volume.id, part.blocks().start), slot, now);
        true
    }

    /// Writes into frames that are already dirty, without a lock. Returns the slot of their page;
    /// `None` if one of them is not dirty: then the caller places all pieces again, which does no
    /// harm.
    fn absorb<P: Payload + ?Sized>(&self, part: &PagePart<'_, F, P>) -> Option<Slot> {
        let mut slot = None;
        for piece in part.pieces() {
            let key = BlockKey::new(part.volume.id, piece.block);
            let (mut write_pin, state) = self.table.try_write_pin(&self.frames, key)?;
            let dirty = state.dirty != 0 && state.writing == 0;
            if !dirty || !state.covers(piece.needs) {
                self.frames.release_write_pin(write_pin);
                return None;
            }
            piece.write_to(&self.frames, &mut write_pin);
            let frame = self.frames.write_pinned(&write_pin);
            self.table.set_state(frame, state.with_dirty(piece.dirties));
            slot = Some(self.table.slot(frame));
            self.frames.release_write_pin(write_pin);
        }
        slot
    }

    fn place_locked<P: Payload + ?Sized>(
        &self,
        instance: &mut Instance<F>,
        now: Nanos,
        (part, write_pins): (&PagePart<'_, F, P>, Vec<Option<F::WritePin>>),
        mode: WriteMode,
        handle: &mut VolumeHandle<F>,
    ) -> PlaceOutcome {
        let volume = part.volume;
        let page = instance.paging.page_of(part.blocks().start);
        let bypass = Self::bypass_reason_of(volume, mode);
        let admission = Admission::unless_bypassed(bypass);
        let slot = instance.find_or_insert(&self.table, page, admission, now);
        let mut new_dirty = 0;
        for (piece, write_pin) in part.pieces().zip(write_pins) {
            let found = self.table.find(BlockKey::new(volume.id, piece.block));
            let was_dirty = match (found, write_pin) {
                (Some(_), Some(write_pin)) => self.write_in_place(write_pin, &piece),
                (Some(frame), None) => self.replace(volume, frame, slot, &piece, handle),
                (None, _) => {
                    self.write_absent(volume, slot, &piece, &mut handle.spare);
                    instance.pages.get_mut(slot).resident += 1;
                    false
                }
            };
            new_dirty += u16::from(!was_dirty);
        }
        Self::note_placed(volume, instance, slot, (new_dirty, bypass), now)
    }

    /// Counts blocks of a page that have become dirty. With a bypass reason, the page is dropped
    /// after its writeback.
    pub(super) fn note_placed(
        volume: &Volume<F>,
        instance: &mut Instance<F>,
        slot: Slot,
        (new_dirty, bypass): (u16, Option<BypassReason>),
        now: Nanos,
    ) -> PlaceOutcome {
        let page = instance.pages.get_mut(slot);
        let was_clean = page.dirty == 0;
        page.dirty += new_dirty;
        if was_clean && new_dirty > 0 {
            instance.dirty.push(&mut instance.pages, slot, now, volume.dirty.epoch());
        }
        Self::note_dirty(volume, u64::from(new_dirty));
        match (bypass, new_dirty) {
            (Some(reason), _) if !instance.is_retained(slot) => PlaceOutcome::Transient(reason),
            (_, 0) => PlaceOutcome::Absorbed,
            (_, _) => PlaceOutcome::New,
        }
    }

    /// Returns the reason why a write of blocks that are not resident bypasses the cache, if it
    /// does.
    pub(super) fn bypass_reason_of(volume: &Volume<F>, mode: WriteMode) -> Option<BypassReason> {
        match mode {
            // The hint of the request caused write-around mode.
            WriteMode::Around if volume.write_mode() != mode => Some(BypassReason::NoBuffering),
            WriteMode::Around => Some(BypassReason::WriteAround),
            _ => volume.is_frozen().then_some(BypassReason::Frozen),
        }
    }

    /// Counts new dirty blocks. Wakes the driver when the plan of the lazy writer changes: at the
    /// first dirty block, and at the threshold.
    fn note_dirty(volume: &Volume<F>, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let before = volume.dirty.add(blocks);
        let threshold = volume.config.share_of_capacity(Tunable::DirtyThreshold);
        if before == 0 || (before < threshold && before + blocks >= threshold) {
            volume.waker.wake();
        }
    }

    /// Writes a piece of an absent block into a new frame.
    fn write_absent<P: Payload + ?Sized>(
        &self,
        volume: &Volume<F>,
        slot: Slot,
        piece: &Piece<'_, P>,
        spare: &mut Vec<FrameId>,
    ) {
        let frame = spare.pop().expect("a frame was reserved for every such piece");
        let mut write_pin = self.write_pin_fresh(frame);
        let end = piece.offset + piece.len;
        if volume.bytes_of(piece.block) as usize == end {
            self.frames.zero(&mut write_pin, end, BLOCK_BYTES - end);
        }
        piece.write_to(&self.frames, &mut write_pin);
        let state = FrameState::default().with_dirty(piece.dirties);
        self.publish(write_pin, BlockKey::new(volume.id, piece.block), slot, state);
    }

    /// Writes a piece into the frame of its block. Returns true if the block was dirty before.
    fn write_in_place<P: Payload + ?Sized>(
        &self,
        mut write_pin: F::WritePin,
        piece: &Piece<'_, P>,
    ) -> bool {
        let frame = self.frames.write_pinned(&write_pin);
        // The page may be under writeback by another operation; the one of this block has
        // completed.
        let state = self.table.state(frame);
        piece.write_to(&self.frames, &mut write_pin);
        self.table.set_state(frame, state.with_dirty(piece.dirties));
        self.frames.release_write_pin(write_pin);
        state.dirty != 0
    }

    /// Writes a piece into a copy that replaces a pinned frame. Returns true if the block was dirty
    /// before.
    fn replace<P: Payload + ?Sized>(
        &self,
        volume: &Volume<F>,
        frame: FrameId,
        slot: Slot,
        piece: &Piece<'_, P>,
        handle: &mut VolumeHandle<F>,
    ) -> bool {
        handle.recorder.add(Counter::ReplacedBlocks, 1);
        let copy = handle.spare.pop().expect("a frame was reserved for every such piece");
        let mut write_pin = self.write_pin_fresh(copy);
        let state = self.supersede(frame, |pin, _| {
            self.frames.copy(pin, &mut write_pin, 0, BLOCK_BYTES);
            piece.write_to(&self.frames, &mut write_pin);
        });
        let key = BlockKey::new(volume.id, piece.block);
        self.publish(write_pin, key, slot, state.with_dirty(piece.dirties));
        self.pool.retire(volume.id, frame);
        state.dirty != 0
    }
}

/// Counts a page of a write.
pub(super) fn count_placed<F: Frames>(
    handle: &VolumeHandle<F>,
    placed: PlaceOutcome,
    mode: WriteMode,
    write: &mut WriteRequest,
) {
    let filled = std::mem::take(&mut write.filled);
    let class = match placed {
        PlaceOutcome::Transient(reason) => {
            handle.recorder.add(reason.counter(), 1);
            Class::WriteBypass
        }
        _ if mode != WriteMode::Back || write.fua => Class::WriteThrough,
        _ if filled => Class::WritePartial,
        PlaceOutcome::Absorbed => Class::WriteAbsorbed,
        _ => Class::WriteNewDirty,
    };
    write.classes.count(&handle.recorder, class);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::NoWaker;
    use crate::frames::PlainFrames;
    use crate::request::{Request, RequestOp, Session, SessionLimit, Submitted};
    use crate::store::{Geometry, StoreCompletion, StoreOp};
    use crate::volume::VolumeOptions;

    fn done(op: StoreOp<PlainFrames>) -> StoreCompletion<PlainFrames> {
        StoreCompletion { op, result: Ok(()), started_at: 0, finished_at: 0 }
    }

    #[test]
    fn only_a_dirty_block_of_no_round_is_written_to_without_the_shard_lock() {
        let cache = Cache::new(PlainFrames::new(16), 1);
        let geometry = Geometry { length: 16 * BLOCK_BYTES_U64, granule: 512, read_only: false };
        let options = VolumeOptions { page_blocks: 4, ..VolumeOptions::new("v", geometry) };
        let volume = cache.add_volume(options, Box::new(NoWaker));
        let recorder = cache.recorder(&volume);
        let limit = SessionLimit::Own(u64::MAX);
        let mut session: Session<_, Vec<u8>, ()> =
            Session::open(&cache, &volume, Box::new(NoWaker), limit).unwrap();
        let data = [7; BLOCK_BYTES];
        let mut write = |block: u64| {
            let range = block * BLOCK_BYTES_U64..(block + 1) * BLOCK_BYTES_U64;
            let request = Request::new(RequestOp::Write, range);
            let submitted = session.submit(&cache, 1, request, &data[..], || ());
            assert!(matches!(submitted, Submitted::Done(_)));
        };
        let absorbs = || {
            let len = u32::try_from(BLOCK_BYTES).unwrap();
            let write = WriteRequest::new(9, 0, len, false);
            cache.absorb(&Cache::next_page_part(&volume, &write, &data[..])).is_some()
        };
        assert!(!absorbs(), "block 0 is absent");
        write(0);
        write(2);
        assert!(absorbs(), "block 0 is dirty");
        // Blocks 0 and 2 are of one page and not adjacent: one writeback with two operations.
        let mut ops = Vec::new();
        assert!(cache.write_back_around(
            &Call { volume: &volume, recorder: &recorder, now: 2 },
            0,
            crate::queue::WriteCause::Forced
        ));
        cache.poll(&volume, &recorder, 2, 8, &mut ops);
        assert_eq!(ops.len(), 2);
        assert!(!absorbs(), "block 0 is pinned by its operation");
        cache.complete(&volume, &recorder, 3, done(ops.remove(0)));
        assert!(!absorbs(), "block 0 is clean, and its round is not over");
        write(0);
        assert!(!absorbs(), "block 0 is dirty again, but its round is not over");
        cache.complete(&volume, &recorder, 4, done(ops.remove(0)));
        assert!(absorbs(), "the round is over");
        cache.check(5);
        assert_eq!(cache.shard_of(&volume, 0).instance(volume.id).pages_under_writeback, 0);
    }
}
