//! Changes: bytes that the caller changes in place, in private frames, until it unpins them.

use super::CachedVolume;
use crate::frames::ArenaFrames;
use larder_core::mapping::Mapping;
use larder_core::write_order::GroupId;
use std::ops::Range;

/// A range that is mapped for change. [`super::Handle::unpin`] applies the change; dropping this
/// discards it.
#[derive(Debug)]
pub struct Change {
    pub(super) volume: CachedVolume,
    /// Present until the mapping ends.
    pub(super) mapping: Option<Box<Mapping<ArenaFrames>>>,
}

/// Panic message if a [`Change`] has no mapping.
const PRESENT: &str = "present until the mapping ends";

impl Change {
    /// Returns the mapping, to be ended as a part of `group`.
    pub(super) fn into_mapping(mut self, group: Option<GroupId>) -> Box<Mapping<ArenaFrames>> {
        let mut mapping = self.mapping.take().expect(PRESENT);
        if let Some(group) = group {
            mapping.set_group(group);
        }
        mapping
    }

    /// Returns the range of the volume that the change covers, in bytes.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.mapping.as_ref().expect(PRESENT).bytes()
    }

    /// Returns the bytes, to read and to change, in pieces that end at the boundaries of the
    /// volume's 4 KiB blocks. Report each change with [`Change::mark_dirty`].
    pub fn pieces(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let arena = self.volume.engine.cache().frames().arena();
        let mapping = self.mapping.as_mut().expect(PRESENT);
        mapping.pieces().map(move |(frame, range)| &mut arena.bytes_mut(frame)[range])
    }

    /// Marks `bytes` of the volume as changed. Sectors of 512 bytes that contain none of the marked
    /// bytes are not written back, and keep concurrent writes of other sessions.
    ///
    /// # Panics
    /// As [`Mapping::mark_dirty`].
    pub fn mark_dirty(&mut self, bytes: Range<u64>) {
        self.mapping.as_mut().expect(PRESENT).mark_dirty(bytes);
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
