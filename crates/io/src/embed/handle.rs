//! Handles: the blocking calls of one thread.

use super::{CachedVolume, Change, EmbedError, View};
use crate::blocking::BlockingSession;
use larder_core::counters::Interface;
use larder_core::mapping::Access;
use larder_core::request::{READ_PIECE_BYTES, Request, RequestOp};
use larder_core::units::SECTOR_BYTES;
use larder_core::write_order::GroupId;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of bytes of a view or a mapping.
const PIECE_BYTES: usize = READ_PIECE_BYTES as usize;

/// One thread's access to a volume.
#[derive(Debug)]
pub struct Handle {
    pub(super) volume: CachedVolume,
    pub(super) session: BlockingSession,
}

impl Handle {
    /// Returns the volume.
    #[must_use]
    pub fn volume(&self) -> &CachedVolume {
        &self.volume
    }

    fn range(&self, offset: u64, len: usize) -> Result<Range<u64>, EmbedError> {
        let length = self.volume.geometry().length;
        let bytes = offset..offset.saturating_add(len as u64);
        let is_inside = len > 0 && bytes.end <= length;
        if is_inside { Ok(bytes) } else { Err(EmbedError::Range { bytes, length }) }
    }

    /// Reads `to.len()` bytes at `offset`.
    ///
    /// # Errors
    /// If the range is not inside the volume, or the store fails.
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), EmbedError> {
        let bytes = self.range(offset, to.len())?;
        if self.session.read_hit(offset, to) {
            return Ok(());
        }
        let mut at = 0;
        self.session.submit(Request::new(RequestOp::Read, bytes), &[], |frames, read| {
            let end = at + read.len as usize;
            read.copy_to(frames, &mut to[at..end]);
            at = end;
        })?;
        Ok(())
    }

    /// Returns a view of `len` bytes (up to 1 MiB) at `offset` in place. While the view exists, its
    /// bytes do not change and their pages stay in the cache.
    ///
    /// # Errors
    /// As [`Handle::read`], and if it is more than 1 MiB.
    pub fn map(&mut self, offset: u64, len: usize) -> Result<View, EmbedError> {
        self.view(offset, len, Interface::Map)
    }

    /// Returns a view for a socket or another writer: see [`View::io_slices`].
    ///
    /// # Errors
    /// As [`Handle::map`].
    pub fn gather(&mut self, offset: u64, len: usize) -> Result<View, EmbedError> {
        self.view(offset, len, Interface::Gather)
    }

    fn view(&mut self, offset: u64, len: usize, interface: Interface) -> Result<View, EmbedError> {
        let bytes = self.range(offset, len)?;
        if len > PIECE_BYTES {
            return Err(EmbedError::Range { bytes, length: PIECE_BYTES as u64 });
        }
        let mut request = Request::new(RequestOp::Read, bytes);
        request.interface = interface;
        let read = self.session.pin(request)?;
        Ok(View { engine: Arc::clone(&self.volume.engine), read })
    }

    /// Writes `bytes` at `offset`. They are then in the cache, and on stable storage after a flush.
    ///
    /// # Errors
    /// If the range is not inside the volume or the volume is read-only; if the store fails in a
    /// mode that writes through, or while too much data is dirty.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EmbedError> {
        self.write_as(offset, bytes, None, false)
    }

    /// Writes `bytes` at `offset` as a part of `group`: see [`CachedVolume::order`].
    ///
    /// # Errors
    /// As [`Handle::write`].
    ///
    /// # Panics
    /// If the group belongs to another volume.
    pub fn write_in(
        &mut self,
        group: GroupId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), EmbedError> {
        self.write_as(offset, bytes, Some(group), false)
    }

    /// Writes `bytes` at `offset` with FUA: these bytes, and no others, are on stable storage when
    /// it returns.
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
        let range = self.range(offset, bytes.len())?;
        let request = Request { fua, group, ..Request::new(RequestOp::Write, range) };
        self.session.submit(request, bytes, |_, _| {})?;
        Ok(())
    }

    /// Maps `len` bytes (up to 1 MiB) at `offset` for change, as `access` specifies. Other sessions
    /// do not see the changes before [`Handle::unpin`]. The call waits while another handle has
    /// mapped a part of the range for change.
    ///
    /// # Errors
    /// As [`Handle::write`]; if the store cannot read the range; if this handle has mapped it
    /// already; or if more than a quarter of the memory would be mapped.
    pub fn map_for_change(
        &mut self,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<Change, EmbedError> {
        let bytes = self.range(offset, len)?;
        let length = self.volume.geometry().length;
        let is_aligned = |at: u64| at.is_multiple_of(SECTOR_BYTES as u64) || at == length;
        if access == Access::Overwrite && !(is_aligned(bytes.start) && is_aligned(bytes.end)) {
            return Err(EmbedError::Unaligned { bytes });
        }
        if len > PIECE_BYTES {
            return Err(EmbedError::Range { bytes, length: PIECE_BYTES as u64 });
        }
        let len = u32::try_from(len).expect("at most 1 MiB");
        let mapping = Some(self.session.map(offset, len, access)?);
        Ok(Change { volume: self.volume.clone(), mapping })
    }

    /// Ends a mapping: the bytes that were marked dirty become a write, in `group` if given.
    ///
    /// # Errors
    /// As [`Handle::write`]. If the store fails in a mode that writes through, the change is in the
    /// cache; otherwise it is discarded, except for pages that were already put into the cache.
    ///
    /// # Panics
    /// If the change or the group belongs to another volume.
    pub fn unpin(&mut self, change: Change, group: Option<GroupId>) -> Result<(), EmbedError> {
        let volume = &self.volume.volume;
        assert!(Arc::ptr_eq(volume, &change.volume.volume), "a change of another volume");
        Ok(self.session.unpin(change.into_mapping(group))?)
    }

    /// Flushes: everything that any handle has written before is on stable storage when this
    /// returns.
    ///
    /// # Errors
    /// If the store fails, or has failed a write of the volume since this handle last reported an
    /// error.
    pub fn flush(&mut self) -> Result<(), EmbedError> {
        Ok(self.session.submit(Request::new(RequestOp::Flush, 0..0), &[], |_, _| {})?)
    }
}
