//! Handles: one thread's calls, each of which waits for its answer.
//!
//! Invariant: between two calls nothing is pending on the lane, so whatever arrives belongs to the
//! call at hand, or only says that there may be room.

use super::{CachedVolume, Change, EmbedError, View};
use crate::call::{Call, Flush, Mail, Write, wait};
use crate::engine::{ArenaCache, ArenaLane};
use crate::frames::ArenaFrames;
use crate::wake::Waker;
use larder_core::clock::Nanos;
use larder_core::counters::{Counter, Interface};
use larder_core::group::GroupId;
use larder_core::lane::Completion;
use larder_core::mapping::{Access, Mapping};
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::StoreError;
use larder_core::units::{PAGE_BLOCKS_MAX, SECTOR_BYTES};
use std::ops::Range;
use std::sync::Arc;

/// What is asked of the cache at a time.
const PIECE_BYTES: usize = PAGE_BLOCKS_MAX as usize * larder_core::units::BLOCK_BYTES;

/// One thread's way to a volume.
#[derive(Debug)]
pub struct Handle {
    volume: CachedVolume,
    /// Taken out only to be closed.
    lane: Option<ArenaLane>,
    waker: Waker,
}

struct Map<'a>(&'a mut Mapping<ArenaFrames>);

impl Call for Map<'_> {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.map(lane, now, self.0)
    }

    fn tell(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos, mail: Mail) -> Status {
        cache.map_completed(lane, now, self.0, mail)
    }
}

struct Unpin<'a>(&'a mut Mapping<ArenaFrames>);

impl Call for Unpin<'_> {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.unpin(lane, now, self.0)
    }

    fn tell(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos, mail: Mail) -> Status {
        match mail {
            Completion::Continue { .. } => self.ask(cache, lane, now),
            mail => cache.unpin_completed(lane, now, self.0, mail),
        }
    }
}

impl Handle {
    pub(super) fn new(volume: CachedVolume) -> Result<Self, EmbedError> {
        let waker = Waker::new()?;
        let cache = volume.engine.cache();
        let lane = Some(cache.open_lane(&volume.volume, Box::new(waker.clone())));
        Ok(Handle { volume, lane, waker })
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &CachedVolume {
        &self.volume
    }

    fn count(&self, requests: Counter, bytes: Option<(Counter, usize)>) {
        let recorder = self.lane.as_ref().expect("there until the handle is dropped").recorder();
        recorder.add(requests, 1);
        if let Some((counter, bytes)) = bytes {
            recorder.add(counter, bytes as u64);
        }
    }

    fn range(&self, offset: u64, len: usize) -> Result<Range<u64>, EmbedError> {
        let length = self.volume.geometry().length;
        let bytes = offset..offset.saturating_add(len as u64);
        let is_inside = len > 0 && bytes.end <= length;
        if is_inside { Ok(bytes) } else { Err(EmbedError::Range { bytes, length }) }
    }

    /// Makes a call and waits for its end.
    fn call(&mut self, call: &mut impl Call) -> Result<(), EmbedError> {
        let engine = Arc::clone(&self.volume.engine);
        let lane = self.lane.as_mut().expect("there until the handle is dropped");
        let waited = wait(call, engine.cache(), lane, &self.waker, &|| engine.now());
        Ok(waited??)
    }

    /// Reads `to.len()` bytes at `offset`.
    ///
    /// # Errors
    /// If the range is not inside the volume, or the store fails.
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), EmbedError> {
        self.range(offset, to.len())?;
        self.count(Counter::ReadRequests, Some((Counter::ReadBytes, to.len())));
        let lane = self.lane.as_ref().expect("there until the handle is dropped");
        if self.volume.engine.cache().read_hit(lane, offset, to) {
            return Ok(());
        }
        let mut at = offset;
        for piece in to.chunks_mut(PIECE_BYTES) {
            let view = self.assemble(at, piece.len(), Interface::Copy)?;
            view.copy_to(piece);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn assemble(
        &mut self,
        offset: u64,
        len: usize,
        interface: Interface,
    ) -> Result<View, EmbedError> {
        let len = u32::try_from(len).expect("at most 1 MiB");
        let mut assembly = Assembly::new(0, offset, len).through(interface);
        if let Err(error) = self.call(&mut assembly) {
            assembly.abandon(self.volume.engine.cache().frames());
            return Err(error);
        }
        Ok(View::new(Arc::clone(&self.volume.engine), assembly))
    }

    /// Looks at `len` bytes (up to 1 MiB) at `offset` in place. While the view lives, its bytes do
    /// not change and their pages stay in the cache.
    ///
    /// # Errors
    /// As [`Handle::read`], and if it is more than 1 MiB.
    pub fn map(&mut self, offset: u64, len: usize) -> Result<View, EmbedError> {
        self.view(offset, len, Interface::Map)
    }

    /// The same for a socket or another writer: see [`View::io_slices`].
    ///
    /// # Errors
    /// As [`Handle::map`].
    pub fn gather(&mut self, offset: u64, len: usize) -> Result<View, EmbedError> {
        self.view(offset, len, Interface::Gather)
    }

    fn view(&mut self, offset: u64, len: usize, why: Interface) -> Result<View, EmbedError> {
        let bytes = self.range(offset, len)?;
        if len > PIECE_BYTES {
            return Err(EmbedError::Range { bytes, length: PIECE_BYTES as u64 });
        }
        self.count(Counter::ReadRequests, Some((Counter::ReadBytes, len)));
        self.assemble(offset, len, why)
    }

    /// Writes `bytes` at `offset`. They are in the cache then, and on stable storage after a flush.
    ///
    /// # Errors
    /// If the range is not inside the volume or the volume is read-only; in the modes that write
    /// through, and where too much is dirty already, if the store fails.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EmbedError> {
        self.write_as(offset, bytes, None, false)
    }

    /// The same as a part of `group`: see [`CachedVolume::order`].
    ///
    /// # Errors
    /// As [`Handle::write`].
    ///
    /// # Panics
    /// If the group is of another volume.
    pub fn write_in(
        &mut self,
        group: GroupId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), EmbedError> {
        self.write_as(offset, bytes, Some(group), false)
    }

    /// Writes `bytes` at `offset` so that these, and nothing else, are on stable storage then.
    ///
    /// # Errors
    /// As [`Handle::write`], and if the store fails.
    pub fn write_stable(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EmbedError> {
        self.write_as(offset, bytes, None, true)
    }

    fn write_as(
        &mut self,
        offset: u64,
        bytes: &[u8],
        group: Option<GroupId>,
        fua: bool,
    ) -> Result<(), EmbedError> {
        self.range(offset, bytes.len())?;
        self.count(Counter::WriteRequests, Some((Counter::WriteBytes, bytes.len())));
        let mut at = offset;
        for bytes in bytes.chunks(PIECE_BYTES) {
            let len = u32::try_from(bytes.len()).expect("at most 1 MiB");
            let mut task = WriteTask::new(0, at, len, fua);
            if let Some(group) = group {
                task = task.in_group(group);
            }
            self.call(&mut Write { task, bytes })?;
            at += u64::from(len);
        }
        Ok(())
    }

    /// Maps `len` bytes (up to 1 MiB) at `offset` for change, as `access` says. Nobody else sees
    /// what is changed before [`Handle::unpin`]. While another handle has mapped a part of it for
    /// change, this waits.
    ///
    /// # Errors
    /// As [`Handle::write`]; if the store cannot read the range; if it is mapped by this handle
    /// already, or too much is: a quarter of the memory.
    pub fn map_for_change(
        &mut self,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<Change, EmbedError> {
        let bytes = self.range(offset, len)?;
        let length = self.volume.geometry().length;
        let is_border = |at: u64| at.is_multiple_of(SECTOR_BYTES as u64) || at == length;
        if access == Access::Overwrite && !(is_border(bytes.start) && is_border(bytes.end)) {
            return Err(EmbedError::Unaligned { bytes });
        }
        if len > PIECE_BYTES {
            return Err(EmbedError::Range { bytes, length: PIECE_BYTES as u64 });
        }
        let len = u32::try_from(len).expect("at most 1 MiB");
        let mut mapping = Mapping::new(0, offset, len, access);
        self.call(&mut Map(&mut mapping))?;
        Ok(Change::new(self.volume.clone(), mapping))
    }

    /// Ends a mapping: what was marked dirty is a write from now on, in `group` if there is one.
    ///
    /// # Errors
    /// As [`Handle::write`]. Where the store fails in a mode that writes through, the change is in
    /// the cache; else it is given up, but for the pages that were put into the cache already.
    ///
    /// # Panics
    /// If the change or the group is of another volume.
    pub fn unpin(&mut self, change: Change, group: Option<GroupId>) -> Result<(), EmbedError> {
        let volume = &self.volume.volume;
        assert!(Arc::ptr_eq(volume, change.volume()), "a change of another volume");
        let (mut change, marked) = change.into_marked(group);
        self.count(Counter::WriteRequests, Some((Counter::WriteBytes, marked)));
        self.call(&mut Unpin(change.mapping_mut()))
    }

    /// Flushes: what any handle has written before is on stable storage when this returns.
    ///
    /// # Errors
    /// If the store fails, or has failed a write of the volume since this handle was told last.
    pub fn flush(&mut self) -> Result<(), EmbedError> {
        self.count(Counter::FlushRequests, None);
        self.call(&mut Flush { token: 0 })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            self.volume.engine.cache().close_lane(lane);
        }
    }
}

/// The error of the store behind an error of a call.
impl EmbedError {
    /// What the store said, if it was the store.
    #[must_use]
    pub fn store(&self) -> Option<&StoreError> {
        match self {
            EmbedError::Store(error) => Some(error),
            _ => None,
        }
    }
}
