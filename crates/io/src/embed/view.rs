//! Views: cached bytes in place, held by pins.

use crate::engine::Engine;
use crate::frames::ArenaFrames;
use larder_core::request::ReadRequest;
use std::io::IoSlice;
use std::sync::Arc;

/// Bytes of a volume in the cache's memory. While the view exists, they do not change, whatever
/// other sessions write, and their pages are not evicted: keep it no longer than needed.
#[derive(Debug)]
pub struct View {
    pub(super) engine: Arc<Engine>,
    pub(super) read: Box<ReadRequest<ArenaFrames>>,
}

impl View {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read.len as usize
    }

    /// Returns true if the view has no bytes, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes, in pieces that end at the boundaries of the volume's 4 KiB blocks.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let arena = self.engine.cache().frames().arena();
        self.read.pieces().map(move |(pin, range)| &arena.bytes(pin)[range])
    }

    /// Returns the pieces for a vectored write, such as to a socket, without a copy.
    pub fn io_slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.pieces().map(IoSlice::new)
    }

    /// Copies all bytes.
    ///
    /// # Panics
    /// If `to` has a different length.
    pub fn copy_to(&self, to: &mut [u8]) {
        self.read.copy_to(self.engine.cache().frames(), to);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.engine.cache().release(&mut self.read);
    }
}
