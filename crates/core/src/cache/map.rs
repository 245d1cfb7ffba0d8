//! Mapping: access of a caller to the bytes of pages in place.
//!
//! For reading, a [`crate::read_write::ReadRequest`] holds pins. This module implements mapping for
//! change, whose guarantees [`crate::mapping`] describes. Invariants: the volume lists the blocks
//! that are mapped for change; no two mappings of a volume overlap; and all of them together hold
//! at most a quarter of its memory, so that they do not take the frames of other requests. A
//! mapping that waits for frames holds none.

use super::Cache;
use super::write::{PlaceOutcome, count_placed};
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::mapping::{Access, MappedBlock, Mapping, MappingState};
use crate::mode::{WriteMode, mode_with};
use crate::page::{BlockKey, FrameState};
use crate::read_write::Status;
use crate::shard::{Admission, Instance};
use crate::store::{StoreError, StoreErrorKind};
use crate::sync::{Arc, lock};
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, SECTOR_BYTES, overlap};
use crate::volume::{Call, Volume, VolumeHandle};
use std::ops::Range;

impl<F: Frames> Cache<F> {
    /// Maps a range for change. [`Status::Done`]: the caller may change it, see
    /// [`Mapping::pieces`]. [`Status::Pending`]: pass completions with its token to
    /// [`Cache::map_completed`]. [`Status::Stalled`]: there are not enough frames, a mapping of
    /// another handle overlaps the range, or the mappings of all handles would exceed a quarter of
    /// the volume's memory.
    ///
    /// Fails if the volume is read-only or the store cannot read the range; and with
    /// [`StoreErrorKind::Busy`] if this handle has already mapped a part of the range, the range
    /// exceeds 1 MiB, or the mappings of this handle would exceed a quarter of the volume's memory.
    ///
    /// # Panics
    /// If the range is not inside the volume; or if the mapping is an overwrite and the range is
    /// not of whole sectors.
    pub(crate) fn map(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
    ) -> Status {
        let volume = Arc::clone(&handle.volume);
        if let Some(error) = volume.broken()
            && mapping.state == MappingState::New
        {
            return Status::Failed(error.clone());
        }
        if mapping.state == MappingState::New {
            match Self::claim_range(handle, mapping) {
                Ok(true) => {
                    mapping.state = MappingState::Reading;
                    // A change of the modes applies to later mappings only.
                    mapping.write.modes = Some(volume.config.modes());
                }
                Ok(false) => {
                    self.stall(handle);
                    return Status::Stalled;
                }
                Err(error) => return Status::Failed(error),
            }
            if mapping.access == Access::Overwrite {
                handle.recorder.add(Counter::PinOverwrites, 1);
            }
        }
        assert_eq!(mapping.state, MappingState::Reading, "a mapping is mapped once");
        volume.note_request(now);
        if mapping.access == Access::Change {
            let status = self.read(handle, now, &mut mapping.read);
            if status != Status::Done {
                return self.not_mapped(&volume, mapping, status);
            }
        }
        let blocks = mapping.block_range();
        let count = usize::try_from(blocks.end - blocks.start).expect("at most 1 MiB");
        let recorder = Arc::clone(&handle.recorder);
        if !self.reserve(
            &Call { volume: &volume, recorder: &recorder, now },
            count,
            &mut handle.spare,
        ) {
            self.return_spare(handle);
            // Its pins may hold the very frames for which it waits.
            mapping.read.release(&self.frames);
            mapping.read.cursor = 0;
            self.stall(handle);
            return Status::Stalled;
        }
        for i in 0..count {
            let frame = handle.spare.pop().expect("reserved above");
            let mut write_pin = self.write_pin_fresh(frame);
            match mapping.access {
                Access::Change => {
                    let pin = mapping.read.parts[i].as_ref().expect("the read is done");
                    self.frames.copy(pin, &mut write_pin, 0, BLOCK_BYTES);
                }
                Access::Overwrite => self.frames.zero(&mut write_pin, 0, BLOCK_BYTES),
            }
            mapping.blocks.push(MappedBlock { write_pin: Some(write_pin), mark: 0 });
        }
        self.return_spare(handle);
        mapping.state = MappingState::Mapped;
        Status::Done
    }

    /// Processes a completion of a mapping for which [`Cache::map`] has returned pending.
    pub(crate) fn map_completed(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        completion: Completion<F>,
    ) -> Status {
        match mapping.read.apply_completion(&self.frames, completion) {
            Status::Done | Status::Stalled => self.map(handle, now, mapping),
            status => {
                let volume = Arc::clone(&handle.volume);
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

    /// Claims the range for the mapping. Returns false if another mapping has a part of it.
    fn claim_range(handle: &VolumeHandle<F>, mapping: &Mapping<F>) -> Result<bool, StoreError> {
        let volume = &*handle.volume;
        let (bytes, blocks) = (mapping.bytes(), mapping.block_range());
        let length = volume.geometry().length;
        assert!(bytes.end <= length, "a mapping past the end of the volume");
        let is_boundary = |at: u64| at.is_multiple_of(SECTOR_BYTES as u64) || at == length;
        let is_aligned = is_boundary(bytes.start) && is_boundary(bytes.end);
        assert!(mapping.access == Access::Change || is_aligned, "{bytes:?} are not whole sectors");
        let name = volume.name();
        if volume.write_mode() == WriteMode::ReadOnly {
            let message = format!("map a part of {name} for change: it is read-only");
            return Err(StoreError::new(StoreErrorKind::ReadOnly, message));
        }
        let mut maps = lock(&volume.maps);
        let is_of_handle = |completions: &Arc<_>| Arc::ptr_eq(completions, &handle.completions);
        if let Some((other, holder)) = maps.iter().find(|(other, _)| overlap(other, &blocks)) {
            if !is_of_handle(holder) {
                return Ok(false);
            }
            let message = format!("map {bytes:?} of {name}: blocks {other:?} are mapped already");
            return Err(StoreError::new(StoreErrorKind::Busy, message));
        }
        let each = blocks.end - blocks.start;
        let mapped = |of_handle: bool| {
            let counted = maps.iter().filter(|(_, holder)| !of_handle || is_of_handle(holder));
            counted.map(|(other, _)| other.end - other.start).sum::<u64>()
        };
        let blocks_max = (volume.config.capacity() / 4).max(1);
        if each > u64::from(PAGE_BLOCKS_MAX) || mapped(true) + each > blocks_max {
            let message = format!(
                "map {bytes:?} of {name}: {} KiB are mapped; the limit is {} KiB, 1 MiB at a time",
                mapped(true) * 4,
                blocks_max * 4,
            );
            return Err(StoreError::new(StoreErrorKind::Busy, message));
        }
        if mapped(false) + each > blocks_max {
            return Ok(false);
        }
        maps.push((blocks, Arc::clone(&handle.completions)));
        Ok(true)
    }

    /// Abandons a mapping. None of its changes take effect, except those that a failed unpin has
    /// already put into the cache. If its range is still being read, close its session first.
    pub fn unmap(&self, volume: &Volume<F>, mapping: &mut Mapping<F>) {
        mapping.read.abandon(&self.frames);
        let write_pins: Vec<_> =
            mapping.blocks.iter_mut().filter_map(|b| b.write_pin.take()).collect();
        self.free_write_pinned(volume, write_pins);
        if !matches!(mapping.state, MappingState::New | MappingState::Ended) {
            let blocks = mapping.block_range();
            lock(&volume.maps).retain(|(other, _)| *other != blocks);
            self.unstall();
        }
        mapping.state = MappingState::Ended;
    }

    /// Ends a mapping: puts the bytes that were marked dirty into the cache page by page; from then
    /// on they are a write. As with [`Cache::write`], call it again after [`Completion::Continue`]
    /// and after a stall, and pass other completions to [`Cache::write_completed`].
    ///
    /// If it fails before all bytes are in the cache ([`Mapping::is_held`]), the caller may retry
    /// it or abandon the mapping with [`Cache::unmap`].
    pub(crate) fn unpin(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
    ) -> Status {
        let volume = Arc::clone(&handle.volume);
        if mapping.state == MappingState::Mapped {
            mapping.read.release(&self.frames);
            mapping.state = MappingState::Unpinning;
        }
        let (mode, _) = *mapping.write.modes.get_or_insert_with(|| volume.config.modes());
        let mode = mode_with(volume.effective(mode), volume.config.hint.get());
        let before = mapping.write.done;
        if mapping.state == MappingState::Unpinning {
            volume.note_request(now);
            if mapping.blocks.iter().all(|block| block.mark == 0) {
                self.unmap(&volume, mapping);
                return Status::Done;
            }
            while mapping.write.done < mapping.write.len {
                let at = mapping.write.offset + u64::from(mapping.write.done);
                let page = volume.paging().around(at / BLOCK_BYTES_U64);
                match self.unpin_page(handle, now, mapping, &page, mode) {
                    None => continue,
                    Some(Status::Done) => {}
                    Some(status) => return status,
                }
                let end = (page.end * BLOCK_BYTES_U64).min(mapping.bytes().end);
                mapping.write.done = u32::try_from(end - mapping.write.offset).expect("in range");
            }
            self.unmap(&volume, mapping);
        }
        self.finish_write(&volume, handle, now, &mut mapping.write, (mode, before))
    }

    /// Puts the marked blocks of one page into the cache. Returns `None` if the page size has
    /// changed.
    fn unpin_page(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        page: &Range<u64>,
        mode: WriteMode,
    ) -> Option<Status> {
        let first = mapping.block_range().start;
        let marked: Vec<_> = (first..)
            .zip(&mapping.blocks)
            // If the page has grown since, some of its blocks may already be in the cache.
            .filter(|(_, mapped)| mapped.mark != 0 && mapped.write_pin.is_some())
            .filter(|(block, _)| page.contains(block))
            .map(|(block, mapped)| (block, dirtied_sectors(&handle.volume, block, mapped.mark)))
            .collect();
        if marked.is_empty() {
            return Some(Status::Done);
        }
        if handle.volume.is_at_dirty_limit() {
            return Some(self.at_limit(handle));
        }
        let status = match self.place_mapped(handle, now, mapping, &marked, mode) {
            PlaceOutcome::PageSizeChanged => return None,
            PlaceOutcome::NoRoom => self.without_room(handle),
            PlaceOutcome::Filling => {
                mapping.write.filled = true;
                Status::Pending
            }
            placed => {
                count_placed(handle, placed, mode, &mut mapping.write);
                Status::Done
            }
        };
        Some(status)
    }

    fn place_mapped(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        marked: &[(u64, DirtiedSectors)],
        mode: WriteMode,
    ) -> PlaceOutcome {
        let volume = Arc::clone(&handle.volume);
        let first = marked[0].0;
        loop {
            let mut shard = self.shard_of(&volume, first);
            let last = marked[marked.len() - 1].0;
            if volume.is_regrouping() || volume.is_exclusive(&(first..last + 1)) {
                return PlaceOutcome::NoRoom;
            }
            let paging = shard.instance(volume.id).paging;
            if last >= paging.around(first).end {
                return PlaceOutcome::PageSizeChanged;
            }
            let lacks_sectors = |&&(block, dirtied_sectors): &&(u64, DirtiedSectors)| {
                dirtied_sectors.needs_other_sectors
                    && self.count_absent(volume.id, &(block..block + 1)) > 0
            };
            if let Some(&(block, _)) = marked.iter().find(lacks_sectors) {
                drop(shard);
                match self.fill_first(handle, now, &mapping.write, block) {
                    None => continue,
                    Some(outcome) => return outcome,
                }
            }
            let blocks = marked.iter().map(|&(block, _)| block);
            if !Self::join_group(handle, paging, mapping.write.group, first, blocks) {
                return PlaceOutcome::NoRoom;
            }
            // Hits that were recorded before precede this reference.
            shard.drain(now);
            let instance = shard.instance(volume.id);
            return self.publish_mapped(instance, now, mapping, marked, mode);
        }
    }

    /// Publishes the marked frames of one page, and replaces resident ones.
    fn publish_mapped(
        &self,
        instance: &mut Instance<F>,
        now: Nanos,
        mapping: &mut Mapping<F>,
        marked: &[(u64, DirtiedSectors)],
        mode: WriteMode,
    ) -> PlaceOutcome {
        let volume = Arc::clone(&instance.volume);
        let page = instance.paging.page_of(marked[0].0);
        let bypass_reason = Self::bypass_reason_of(&volume, mode);
        let slot = instance.find_or_insert(
            &self.table,
            page,
            Admission::unless_bypassed(bypass_reason),
            now,
        );
        let base = mapping.block_range().start;
        let mut new_dirty = 0;
        for &(block, DirtiedSectors { mark, dirties, .. }) in marked {
            let mapped = &mut mapping.blocks[usize::try_from(block - base).expect("an index")];
            let mut write_pin =
                mapped.write_pin.take().expect("a block is put into the cache once");
            let key = BlockKey::new(volume.id, block);
            let old = self.table.find(key);
            let state = if let Some(old) = old {
                self.supersede(old, |pin, before| {
                    self.overlay(before.valid & !mark, pin, &mut write_pin);
                })
            } else {
                instance.pages.get_mut(slot).resident += 1;
                FrameState::default()
            };
            new_dirty += u16::from(state.dirty == 0);
            self.publish(write_pin, key, slot, state.with_dirty(dirties));
            if let Some(old) = old {
                self.pool.retire(volume.id, old);
            }
        }
        Self::note_placed(&volume, instance, slot, (new_dirty, bypass_reason), now)
    }
}

/// The sectors of a marked block that become dirty.
#[derive(Clone, Copy, Debug)]
struct DirtiedSectors {
    /// Sectors with the contents of the mapping.
    mark: u8,
    /// Sectors that become dirty: all of them if the store writes whole blocks.
    dirties: u8,
    /// True if the other sectors must be valid before.
    needs_other_sectors: bool,
}

fn dirtied_sectors<F: Frames>(volume: &Volume<F>, block: u64, mark: u8) -> DirtiedSectors {
    // Bytes past the end of the volume count as written: no request can access them.
    let sectors = volume.bytes_of(block).div_ceil(u32::try_from(SECTOR_BYTES).expect("512"));
    let mark = mark | 0xff_u8.checked_shl(sectors).unwrap_or(0);
    let whole_granule = volume.geometry().granule as usize == BLOCK_BYTES;
    let dirties = if whole_granule { 0xff } else { mark };
    DirtiedSectors { mark, dirties, needs_other_sectors: dirties != mark }
}
