//! Mappings for change: copies of a range in frames of the caller, which the caller changes in
//! place and then puts into the cache.
//!
//! Changes are private until the caller unpins the mapping: until then readers and the store get
//! the previous contents. So a mapping blocks no other client, however long it is held, and neither
//! a crash nor the lazy writer sees a partial change. Unpinning replaces the frames of the blocks
//! that were marked dirty. It does not wait for a pinned frame; it replaces that frame too. Sectors
//! that were not marked keep the data that other clients have written in the meantime.

use crate::counters::Interface;
use crate::frames::Frames;
use crate::read_write::{ReadRequest, WriteRequest};
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, SECTOR_BYTES, blocks_touched, sectors_touched};
use crate::write_order::GroupId;
use std::ops::Range;

/// The initial contents of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The contents of the range; missing blocks are read from the store first.
    Change,
    /// Zeros; nothing is read. Marked ranges must be whole sectors.
    Overwrite,
}

/// A block of a mapping.
#[derive(Debug)]
pub(crate) struct MappedBlock<F: Frames> {
    /// The frame; `None` once it is in the cache.
    pub(crate) write_pin: Option<F::WritePin>,
    /// Mask of the sectors that become dirty.
    pub(crate) mark: u8,
}

/// A range mapped for change. Each mapping that reached the mapped state must end with
/// [`crate::request::Session::unpin`] or [`crate::cache::Cache::unmap`].
#[derive(Debug)]
pub struct Mapping<F: Frames> {
    pub(crate) access: Access,
    /// Pins of the previous contents, so that the pages stay resident.
    pub(crate) read: ReadRequest<F>,
    pub(crate) write: WriteRequest,
    pub(crate) blocks: Vec<MappedBlock<F>>,
    pub(crate) state: MappingState,
}

/// State of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingState {
    /// Not started.
    New,
    /// The mapping owns the range; its contents are being read.
    Reading,
    /// The caller may change the bytes.
    Mapped,
    /// Marked blocks are being put into the cache.
    Unpinning,
    /// Ended.
    Ended,
}

impl<F: Frames> Mapping<F> {
    /// Returns a mapping of `len` bytes (at least 1) at `offset`; completions carry `token`.
    #[must_use]
    pub fn new(token: u64, offset: u64, len: u32, access: Access) -> Self {
        Mapping {
            access,
            read: ReadRequest::new(token, offset, len).through(Interface::Pin),
            write: WriteRequest::new(token, offset, len, false),
            blocks: Vec::new(),
            state: MappingState::New,
        }
    }

    /// Adds its changes to a write-order group. Call it before unpinning; see
    /// [`crate::cache::Cache::order`].
    pub fn set_group(&mut self, group: GroupId) {
        self.write.group = Some(group);
    }

    /// Sets the token of its completions.
    pub(crate) fn set_token(&mut self, token: u64) {
        (self.read.token, self.write.token) = (token, token);
    }

    /// Returns the number of marked bytes, in whole sectors.
    #[must_use]
    pub fn marked_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.mark.count_ones() as usize * SECTOR_BYTES).sum()
    }

    /// Returns the range of the volume, in bytes.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.write.offset..self.write.offset + u64::from(self.write.len)
    }

    /// Returns true if the mapping holds frames of the cache: from [`crate::request::Session::map`]
    /// until all of it is in the cache or it is abandoned.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !matches!(self.state, MappingState::New | MappingState::Ended)
    }

    pub(crate) fn block_range(&self) -> Range<u64> {
        blocks_touched(&self.bytes())
    }

    /// Returns the pieces of a mapping in the mapped state: the frame of each block, and the byte
    /// range in it.
    pub fn pieces(&mut self) -> impl Iterator<Item = (&mut F::WritePin, Range<usize>)> {
        assert_eq!(self.state, MappingState::Mapped, "the mapping is not mapped");
        let start = usize::try_from(self.write.offset % BLOCK_BYTES_U64).expect("below a block");
        let end = start + self.write.len as usize;
        self.blocks.iter_mut().enumerate().map(move |(i, block)| {
            let first = i * BLOCK_BYTES;
            let range = start.max(first) - first..end.min(first + BLOCK_BYTES) - first;
            (block.write_pin.as_mut().expect("the mapping is mapped"), range)
        })
    }

    /// Copies `bytes` into the mapping at `offset` of the volume, and marks them dirty.
    ///
    /// # Panics
    /// As [`Mapping::mark_dirty`].
    pub fn write(&mut self, frames: &F, offset: u64, bytes: &[u8]) {
        self.mark_dirty(offset..offset + bytes.len() as u64);
        let mut at = self.block_range().start * BLOCK_BYTES_U64;
        for (write_pin, _) in self.pieces() {
            let from = offset.max(at);
            let to = (offset + bytes.len() as u64).min(at + BLOCK_BYTES_U64);
            if from < to {
                let [first, last] = [from, to].map(|n| usize::try_from(n - offset).expect("short"));
                let within = usize::try_from(from - at).expect("below a block");
                frames.write(write_pin, within, &bytes[first..last]);
            }
            at += BLOCK_BYTES_U64;
        }
    }

    /// Marks `bytes` of the volume as changed. Unpinning puts only marked bytes into the cache.
    ///
    /// # Panics
    /// If the bytes are not inside the mapping; or if the mapping is an overwrite and a boundary of
    /// the bytes is neither a sector boundary nor the end of the mapping.
    pub fn mark_dirty(&mut self, bytes: Range<u64>) {
        assert_eq!(self.state, MappingState::Mapped, "the mapping is not mapped");
        let whole = self.bytes();
        assert!(whole.start <= bytes.start && bytes.end <= whole.end, "{bytes:?} of {whole:?}");
        let is_boundary = |at: u64| at.is_multiple_of(SECTOR_BYTES as u64) || at == whole.end;
        let is_aligned = is_boundary(bytes.start) && is_boundary(bytes.end);
        assert!(self.access == Access::Change || is_aligned, "{bytes:?} are not whole sectors");
        let first = self.block_range().start;
        for (i, block) in self.blocks.iter_mut().enumerate() {
            let at = (first + i as u64) * BLOCK_BYTES_U64;
            let (from, to) = (bytes.start.max(at), bytes.end.min(at + BLOCK_BYTES_U64));
            if from < to {
                let [offset, len] =
                    [from - at, to - from].map(|n| usize::try_from(n).expect("below a block"));
                block.mark |= sectors_touched(offset, len);
            }
        }
    }
}
