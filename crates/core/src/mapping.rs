//! Mappings for change: a caller's own frames of a range, to be changed in place and put into the
//! cache at once.
//!
//! What is changed is nobody else's until it is unpinned: readers see, and the store gets, what was
//! there before. So nobody waits for a mapping, however long it is held, and neither a crash nor
//! the lazy writer catches it half done. Unpinning puts the frames that were marked dirty in the
//! place of those that were there: a frame that is held is replaced, not waited for. Sectors that
//! were not marked keep what others wrote meanwhile.

use crate::counters::Interface;
use crate::frames::Frames;
use crate::request::{ReadRequest, WriteRequest};
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, SECTOR_BYTES, blocks_touched, sectors_touched};
use crate::write_order::GroupId;
use std::ops::Range;

/// What a mapping begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// What the range holds; it is read first where it is not there.
    Change,
    /// Zeros; nothing is read. What is marked must be whole sectors.
    Overwrite,
}

/// A block of a mapping.
#[derive(Debug)]
pub(crate) struct MappedBlock<F: Frames> {
    /// The frame; gone once it is in the cache.
    pub(crate) write_pin: Option<F::WritePin>,
    /// Sectors to become dirty.
    pub(crate) mark: u8,
}

/// A range mapped for change. Every mapping that came so far as to be mapped ends with
/// [`crate::request::Session::unpin`] or [`crate::cache::Cache::unmap`].
#[derive(Debug)]
pub struct Mapping<F: Frames> {
    pub(crate) access: Access,
    /// Holds what was there, so that the pages stay, and becomes the write at the end.
    pub(crate) read: ReadRequest<F>,
    pub(crate) write: WriteRequest,
    pub(crate) blocks: Vec<MappedBlock<F>>,
    pub(crate) state: MappingState,
}

/// How far a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingState {
    /// Nothing has been asked for.
    New,
    /// The range is this mapping's; what it holds is being read.
    Reading,
    /// It is the caller's.
    Mapped,
    /// It is being put into the cache.
    Unpinning,
    /// Over.
    Ended,
}

impl<F: Frames> Mapping<F> {
    /// A mapping of `len` bytes (at least 1) at `offset`; `token` comes back in completions.
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

    /// Makes its changes part of a group, at any time before it is unpinned: see
    /// [`crate::cache::Cache::order`].
    pub fn set_group(&mut self, group: GroupId) {
        self.write.group = Some(group);
    }

    /// Sets the token of its completions.
    pub(crate) fn set_token(&mut self, token: u64) {
        (self.read.token, self.write.token) = (token, token);
    }

    /// How many bytes are marked, in whole sectors.
    #[must_use]
    pub fn marked_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.mark.count_ones() as usize * SECTOR_BYTES).sum()
    }

    /// Bytes of the volume that it covers.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.write.offset..self.write.offset + u64::from(self.write.len)
    }

    /// Returns whether the mapping holds frames of the cache: from [`crate::request::Session::map`]
    /// until all of it is in the cache or it is abandoned.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !matches!(self.state, MappingState::New | MappingState::Ended)
    }

    pub(crate) fn block_range(&self) -> Range<u64> {
        blocks_touched(&self.bytes())
    }

    /// The pieces of a mapping that is mapped: each block's frame, and the range of bytes in it.
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

    /// Says that `bytes` of the volume have been changed. What is not marked is not put back.
    ///
    /// # Panics
    /// If they are not inside the mapping; or if it was mapped to be overwritten and they are not
    /// whole sectors, where the mapping itself does not end.
    pub fn mark_dirty(&mut self, bytes: Range<u64>) {
        assert_eq!(self.state, MappingState::Mapped, "the mapping is not mapped");
        let whole = self.bytes();
        assert!(whole.start <= bytes.start && bytes.end <= whole.end, "{bytes:?} of {whole:?}");
        let is_border = |at: u64| at.is_multiple_of(SECTOR_BYTES as u64) || at == whole.end;
        let borders = is_border(bytes.start) && is_border(bytes.end);
        assert!(self.access == Access::Change || borders, "{bytes:?} are not whole sectors");
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
