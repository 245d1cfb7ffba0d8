//! Mapping: a caller with a lane gets at the bytes of pages in place.
//!
//! To look at them, an [`crate::request::ReadRequest`] holds pins; here is the other half, mapping for
//! change. What is promised about it stands in [`crate::mapping`]. Invariants: the blocks that are
//! mapped for change are listed in the volume, no two mappings of a volume meet, and all of them
//! together hold at most a quarter of its memory, so that they cannot take the room of everybody
//! else. A mapping that waits for room holds none.

use super::Cache;
use super::fill::Missing;
use super::write::{Placed, count_placed};
use crate::clock::Nanos;
use crate::completion::{Completion, VolumeHandle};
use crate::counters::Counter;
use crate::frames::Frames;
use crate::mapping::{Access, Mapped, Mapping, State};
use crate::mode::{WriteMode, mode_with};
use crate::page::{FrameState, Key};
use crate::queue::FillWaiter;
use crate::request::Status;
use crate::shard::Instance;
use crate::store::{StoreError, StoreErrorKind};
use crate::sync::{Arc, lock};
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, SECTOR_BYTES};
use crate::volume::Volume;
use std::ops::Range;

impl<F: Frames> Cache<F> {
    /// Maps a range for change. [`Status::Done`]: it is the caller's, see [`Mapping::pieces`].
    /// [`Status::Pending`]: give completions with its token to [`Cache::map_completed`].
    /// [`Status::Stalled`]: there is no room, or another mapping holds a part of the range.
    ///
    /// Fails where the volume is read-only, where the store cannot read the range, and with
    /// [`StoreErrorKind::Busy`] where this lane has mapped a part of the range already, or mappings
    /// would get larger than they may: 1 MiB each, and a quarter of the volume's memory together.
    ///
    /// # Panics
    /// If the range is not inside the volume; or if it is to be overwritten and is not of whole
    /// sectors.
    pub(crate) fn map(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
    ) -> Status {
        let volume = Arc::clone(&lane.volume);
        if let Some(error) = volume.broken()
            && mapping.state == State::New
        {
            return Status::Failed(error.clone());
        }
        if mapping.state == State::New {
            match Self::claim_range(lane, mapping) {
                Ok(true) => {
                    mapping.state = State::Reading;
                    // A change of the modes meets the mappings that come after it.
                    mapping.task.modes = Some(volume.modes());
                }
                Ok(false) => {
                    self.stall(lane);
                    return Status::Stalled;
                }
                Err(error) => return Status::Failed(error),
            }
            if mapping.access == Access::Overwrite {
                lane.recorder.add(Counter::PinOverwrites, 1);
            }
        }
        assert_eq!(mapping.state, State::Reading, "a mapping is mapped once");
        volume.touch(now);
        if mapping.access == Access::Change {
            let status = self.read(lane, now, &mut mapping.read);
            if status != Status::Done {
                return self.not_mapped(&volume, mapping, status);
            }
        }
        let blocks = mapping.block_range();
        let count = usize::try_from(blocks.end - blocks.start).expect("at most 1 MiB");
        let recorder = Arc::clone(&lane.recorder);
        if !self.reserve(&volume, count, &mut lane.spare, &recorder, now) {
            self.return_spare(lane);
            // What it holds may be just the room that it waits for.
            mapping.read.release(&self.frames);
            mapping.read.cursor = 0;
            self.stall(lane);
            return Status::Stalled;
        }
        for i in 0..count {
            let frame = lane.spare.pop().expect("reserved above");
            let mut own = self.write_pin_fresh(frame);
            match mapping.access {
                Access::Change => {
                    let pin = mapping.read.parts[i].as_ref().expect("the read is done");
                    self.frames.copy(pin, &mut own, 0, BLOCK_BYTES);
                }
                Access::Overwrite => self.frames.zero(&mut own, 0, BLOCK_BYTES),
            }
            mapping.blocks.push(Mapped { own: Some(own), mark: 0 });
        }
        self.return_spare(lane);
        mapping.state = State::Mapped;
        Status::Done
    }

    /// Takes in a completion of a mapping that [`Cache::map`] left pending.
    pub(crate) fn map_completed(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        completion: Completion<F>,
    ) -> Status {
        match mapping.read.absorb(&self.frames, completion) {
            Status::Done | Status::Stalled => self.map(lane, now, mapping),
            status => {
                let volume = Arc::clone(&lane.volume);
                self.not_mapped(&volume, mapping, status)
            }
        }
    }

    fn not_mapped(&self, volume: &Volume<F>, mapping: &mut Mapping<F>, status: Status) -> Status {
        if matches!(status, Status::Failed(_)) {
            self.unmap(volume, mapping);
        }
        status
    }

    /// Makes the range the mapping's; false if another one has a part of it now.
    fn claim_range(lane: &VolumeHandle<F>, mapping: &Mapping<F>) -> Result<bool, StoreError> {
        let volume = &*lane.volume;
        let (bytes, blocks) = (mapping.bytes(), mapping.block_range());
        let length = volume.geometry().length;
        assert!(bytes.end <= length, "a mapping past the end of the volume");
        let is_border = |at: u64| at.is_multiple_of(SECTOR_BYTES as u64) || at == length;
        let borders = is_border(bytes.start) && is_border(bytes.end);
        assert!(mapping.access == Access::Change || borders, "{bytes:?} are not whole sectors");
        let name = volume.name();
        if volume.write_mode() == WriteMode::ReadOnly {
            let message = format!("map a part of {name} for change: it is read-only");
            return Err(StoreError::new(StoreErrorKind::ReadOnly, message));
        }
        let mut maps = lock(&volume.maps);
        let is_own = |mailbox: &Arc<_>| Arc::ptr_eq(mailbox, &lane.mailbox);
        let meets = |other: &Range<u64>| other.start < blocks.end && blocks.start < other.end;
        if let Some((other, holder)) = maps.iter().find(|(other, _)| meets(other)) {
            if !is_own(holder) {
                return Ok(false);
            }
            let message = format!("map {bytes:?} of {name}: blocks {other:?} are mapped already");
            return Err(StoreError::new(StoreErrorKind::Busy, message));
        }
        let each = blocks.end - blocks.start;
        let mapped = |own: bool| {
            let counted = maps.iter().filter(|(_, holder)| !own || is_own(holder));
            counted.map(|(other, _)| other.end - other.start).sum::<u64>()
        };
        let most = (volume.capacity() / 4).max(1);
        if each > u64::from(PAGE_BLOCKS_MAX) || mapped(true) + each > most {
            let message = format!(
                "map {bytes:?} of {name}: {} KiB are mapped, {} KiB may be, 1 MiB at a time",
                mapped(true) * 4,
                most * 4,
            );
            return Err(StoreError::new(StoreErrorKind::Busy, message));
        }
        if mapped(false) + each > most {
            return Ok(false);
        }
        maps.push((blocks, Arc::clone(&lane.mailbox)));
        Ok(true)
    }

    /// Abandons a mapping. None of its changes take effect, except those that a failed unpin has
    /// already put into the cache. If its range is still being read, close its session first.
    pub fn unmap(&self, volume: &Volume<F>, mapping: &mut Mapping<F>) {
        mapping.read.abandon(&self.frames);
        let owned: Vec<_> = mapping.blocks.iter_mut().filter_map(|b| b.own.take()).collect();
        self.free_write_pinned(volume, owned);
        if !matches!(mapping.state, State::New | State::Ended) {
            let blocks = mapping.block_range();
            lock(&volume.maps).retain(|(other, _)| *other != blocks);
            self.unstall();
        }
        mapping.state = State::Ended;
    }

    /// Ends a mapping: what was marked dirty is in the cache when this is done, page by page, and
    /// is a write from then on. As with [`Cache::write`], call it again after
    /// [`Completion::Continue`] and when it was stalled, and give other completions to
    /// [`Cache::unpin_completed`].
    ///
    /// If it fails before all of it is in the cache ([`Mapping::is_held`]), it can be tried again
    /// or given up with [`Cache::unmap`].
    pub(crate) fn unpin(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
    ) -> Status {
        let volume = Arc::clone(&lane.volume);
        if mapping.state == State::Mapped {
            mapping.read.release(&self.frames);
            mapping.state = State::Unpinning;
        }
        let (mode, _) = *mapping.task.modes.get_or_insert_with(|| volume.modes());
        let mode = mode_with(volume.effective(mode), volume.hint());
        let before = mapping.task.done;
        if mapping.state == State::Unpinning {
            volume.touch(now);
            if mapping.blocks.iter().all(|block| block.mark == 0) {
                self.unmap(&volume, mapping);
                return Status::Done;
            }
            while mapping.task.done < mapping.task.len {
                let at = mapping.task.offset + u64::from(mapping.task.done);
                let page = volume.paging().around(at / BLOCK_BYTES_U64);
                match self.unpin_page(lane, now, mapping, &page, mode) {
                    None => continue,
                    Some(Status::Done) => {}
                    Some(status) => return status,
                }
                let end = (page.end * BLOCK_BYTES_U64).min(mapping.bytes().end);
                mapping.task.done = u32::try_from(end - mapping.task.offset).expect("in range");
            }
            self.unmap(&volume, mapping);
        }
        self.finish_write(&volume, lane, now, &mut mapping.task, (mode, before))
    }

    /// Takes in a completion of a mapping that [`Cache::unpin`] left pending.
    pub(crate) fn unpin_completed(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        completion: Completion<F>,
    ) -> Status {
        self.write_completed(lane, now, &mut mapping.task, completion)
    }

    /// Puts what is marked of one page into the cache; none if the page is another one now.
    fn unpin_page(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        page: &Range<u64>,
        mode: WriteMode,
    ) -> Option<Status> {
        let first = mapping.block_range().start;
        let marked: Vec<_> = (first..)
            .zip(&mapping.blocks)
            // A page that has grown since may have blocks that are in the cache already.
            .filter(|(_, mapped)| mapped.mark != 0 && mapped.own.is_some())
            .filter(|(block, _)| page.contains(block))
            .map(|(block, mapped)| (block, dirtied(&lane.volume, block, mapped.mark)))
            .collect();
        if marked.is_empty() {
            return Some(Status::Done);
        }
        if lane.volume.is_at_dirty_limit() {
            return Some(self.at_limit(lane));
        }
        let status = match self.place_mapped(lane, now, mapping, &marked, mode) {
            Placed::Recut => return None,
            Placed::NoRoom => self.without_room(lane),
            Placed::Filling => {
                mapping.task.filled = true;
                Status::Pending
            }
            placed => {
                count_placed(lane, placed, mode, &mut mapping.task);
                Status::Done
            }
        };
        Some(status)
    }

    fn place_mapped(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        marked: &[(u64, Dirtied)],
        mode: WriteMode,
    ) -> Placed {
        let volume = Arc::clone(&lane.volume);
        let first = marked[0].0;
        loop {
            let mut shard = self.shard(self.table.shard(Key::new(volume.id, first)));
            let last = marked[marked.len() - 1].0;
            if volume.is_regrouping() || lock(&volume.queue).is_exclusive(&(first..last + 1)) {
                return Placed::NoRoom;
            }
            let paging = shard.instance(volume.id).paging;
            if last >= paging.around(first).end {
                return Placed::Recut;
            }
            let lacks = |&&(block, dirtied): &&(u64, Dirtied)| {
                dirtied.needs_rest && self.count_absent(volume.id, &(block..block + 1)) > 0
            };
            if let Some(&(block, _)) = marked.iter().find(lacks) {
                drop(shard);
                let (mailbox, token) = (Arc::clone(&lane.mailbox), mapping.task.token);
                let waiter = FillWaiter { mailbox, token, read: None };
                match self.fetch(lane, now, waiter, &(block..block + 1), None) {
                    Missing::Present => continue,
                    Missing::Filling | Missing::Coming => return Placed::Filling,
                    Missing::Bypassed(_) | Missing::NoRoom => return Placed::NoRoom,
                    Missing::Recut => return Placed::Recut,
                }
            }
            let blocks = marked.iter().map(|&(block, _)| block);
            if !Self::join_group(lane, paging, mapping.task.group, first, blocks) {
                return Placed::NoRoom;
            }
            // Hits noted before came before this reference.
            shard.drain(now);
            let instance = shard.instance(volume.id);
            return self.put_mapped(instance, now, mapping, marked, mode);
        }
    }

    /// Publishes marked frames of one page, in the place of those that are there.
    fn put_mapped(
        &self,
        instance: &mut Instance<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        marked: &[(u64, Dirtied)],
        mode: WriteMode,
    ) -> Placed {
        let volume = Arc::clone(&instance.volume);
        let page = instance.paging.page_of(marked[0].0);
        let past = Self::passes(&volume, mode);
        let slot = instance.find_or_insert(&self.table, page, past.is_none(), now);
        let base = mapping.block_range().start;
        let mut new_dirty = 0;
        for &(block, Dirtied { mark, dirties, .. }) in marked {
            let mapped = &mut mapping.blocks[usize::try_from(block - base).expect("an index")];
            let mut own = mapped.own.take().expect("a block is put into the cache once");
            let key = Key::new(volume.id, block);
            let state = if let Some(old) = self.table.find(key) {
                let pin = self.pin_published(old);
                let before = self.table.state(old);
                self.overlay(before.valid & !mark, &pin, &mut own);
                // Unfindable first: else a write that takes no lock could go into it meanwhile.
                self.table.retract(old);
                self.frames.unpin(pin);
                self.pool.retire(volume.id, old);
                before
            } else {
                instance.pages.get_mut(slot).resident += 1;
                FrameState::default()
            };
            new_dirty += u16::from(state.dirty == 0);
            let frame = self.frames.write_pinned(&own);
            self.frames.release_write_pin(own);
            self.table.publish(frame, key, slot, state.with_dirty(dirties));
        }
        Self::note_placed(&volume, instance, slot, (new_dirty, past), now)
    }
}

/// What a marked block makes dirty.
#[derive(Clone, Copy, Debug)]
struct Dirtied {
    /// Sectors whose content is the mapping's.
    mark: u8,
    /// Sectors that become dirty: more, where the store writes whole blocks.
    dirties: u8,
    /// Whether the others must be there before.
    needs_rest: bool,
}

fn dirtied<F: Frames>(volume: &Volume<F>, block: u64, mark: u8) -> Dirtied {
    // What lies behind the end of the volume is nobody's and is as good as written.
    let sectors = volume.bytes_of(block).div_ceil(u32::try_from(SECTOR_BYTES).expect("512"));
    let mark = mark | 0xff_u8.checked_shl(sectors).unwrap_or(0);
    let whole_granule = volume.geometry().granule as usize == BLOCK_BYTES;
    let dirties = if whole_granule { 0xff } else { mark };
    Dirtied { mark, dirties, needs_rest: dirties != mark }
}
