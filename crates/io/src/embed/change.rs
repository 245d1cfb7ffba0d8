//! Changes: bytes that a caller changes in place, on frames of its own until they are unpinned.

use super::CachedVolume;
use crate::engine::ArenaVolume;
use crate::frames::ArenaFrames;
use larder_core::group::GroupId;
use larder_core::mapping::Mapping;
use std::ops::Range;
use std::sync::Arc;

/// A range that is mapped for change. [`super::Handle::unpin`] makes it happen; dropping it gives
/// it up.
#[derive(Debug)]
pub struct Change {
    volume: CachedVolume,
    mapping: Mapping<ArenaFrames>,
}

impl Change {
    pub(super) fn new(volume: CachedVolume, mapping: Mapping<ArenaFrames>) -> Self {
        Change { volume, mapping }
    }

    pub(super) fn volume(&self) -> &Arc<ArenaVolume> {
        &self.volume.volume
    }

    pub(super) fn mapping_mut(&mut self) -> &mut Mapping<ArenaFrames> {
        &mut self.mapping
    }

    /// Itself as a part of `group`, and how many bytes are marked.
    pub(super) fn into_marked(mut self, group: Option<GroupId>) -> (Self, usize) {
        if let Some(group) = group {
            self.mapping.set_group(group);
        }
        let marked = self.mapping.marked_bytes();
        (self, marked)
    }

    /// Bytes of the volume that it covers.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.mapping.bytes()
    }

    /// The bytes, to look at and to change, in pieces that end where the blocks of 4 KiB of the
    /// volume do. Say what was changed with [`Change::mark_dirty`].
    pub fn pieces(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let arena = self.volume.engine.cache().frames().arena();
        self.mapping.pieces().map(move |(own, range)| &mut arena.bytes_mut(own)[range])
    }

    /// Says that `bytes` of the volume have been changed. Sectors of 512 bytes that hold none of
    /// them are not put back, and keep what others write meanwhile.
    ///
    /// # Panics
    /// As [`Mapping::mark_dirty`].
    pub fn mark_dirty(&mut self, bytes: Range<u64>) {
        self.mapping.mark_dirty(bytes);
    }

    /// Copies `bytes` to `offset` of the volume, and marks them dirty.
    ///
    /// # Panics
    /// As [`Mapping::mark_dirty`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.mapping.write(self.volume.engine.cache().frames(), offset, bytes);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.volume.engine.cache().unmap(&self.volume.volume, &mut self.mapping);
    }
}
