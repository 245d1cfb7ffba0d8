//! Changes: bytes that a caller changes in place, on frames of its own until they are unpinned.

use super::CachedVolume;
use crate::engine::ArenaVolume;
use crate::frames::ArenaFrames;
use larder_core::mapping::Mapping;
use larder_core::write_order::GroupId;
use std::ops::Range;
use std::sync::Arc;

/// A range that is mapped for change. [`super::Handle::unpin`] makes it happen; dropping it gives
/// it up.
#[derive(Debug)]
pub struct Change {
    volume: CachedVolume,
    /// Present until the mapping ends.
    mapping: Option<Box<Mapping<ArenaFrames>>>,
}

/// Why there is a mapping in each [`Change`].
const PRESENT: &str = "present until the mapping ends";

impl Change {
    pub(super) fn new(volume: CachedVolume, mapping: Box<Mapping<ArenaFrames>>) -> Self {
        Change { volume, mapping: Some(mapping) }
    }

    pub(super) fn volume(&self) -> &Arc<ArenaVolume> {
        &self.volume.volume
    }

    fn mapping(&mut self) -> &mut Mapping<ArenaFrames> {
        self.mapping.as_mut().expect(PRESENT)
    }

    /// Returns the mapping, to be ended as a part of `group`.
    pub(super) fn into_mapping(mut self, group: Option<GroupId>) -> Box<Mapping<ArenaFrames>> {
        let mut mapping = self.mapping.take().expect(PRESENT);
        if let Some(group) = group {
            mapping.set_group(group);
        }
        mapping
    }

    /// Bytes of the volume that it covers.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.mapping.as_ref().expect(PRESENT).bytes()
    }

    /// The bytes, to look at and to change, in pieces that end where the blocks of 4 KiB of the
    /// volume do. Say what was changed with [`Change::mark_dirty`].
    pub fn pieces(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let arena = self.volume.engine.cache().frames().arena();
        let mapping = self.mapping.as_mut().expect(PRESENT);
        mapping.pieces().map(move |(own, range)| &mut arena.bytes_mut(own)[range])
    }

    /// Says that `bytes` of the volume have been changed. Sectors of 512 bytes that hold none of
    /// them are not put back, and keep what others write meanwhile.
    ///
    /// # Panics
    /// As [`Mapping::mark_dirty`].
    pub fn mark_dirty(&mut self, bytes: Range<u64>) {
        self.mapping().mark_dirty(bytes);
    }

    /// Copies `bytes` to `offset` of the volume, and marks them dirty.
    ///
    /// # Panics
    /// As [`Mapping::mark_dirty`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mapping = self.mapping.as_mut().expect(PRESENT);
        mapping.write(self.volume.engine.cache().frames(), offset, bytes);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(mapping) = &mut self.mapping {
            self.volume.engine.cache().unmap(&self.volume.volume, mapping);
        }
    }
}
