//! Views: cached bytes in place, held by pins.

use crate::engine::Engine;
use crate::frames::ArenaFrames;
use larder_core::request::ReadRequest;
use std::io::IoSlice;
use std::sync::Arc;

/// Bytes of a volume where the cache has them. While it lives they do not change, whatever is
/// written meanwhile, and their pages are not evicted: hold it for as long as it is looked at and
/// no longer.
#[derive(Debug)]
pub struct View {
    engine: Arc<Engine>,
    assembly: Box<ReadRequest<ArenaFrames>>,
}

impl View {
    pub(super) fn new(engine: Arc<Engine>, assembly: Box<ReadRequest<ArenaFrames>>) -> Self {
        View { engine, assembly }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.assembly.len as usize
    }

    /// Whether it has none, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, in pieces that end where the blocks of 4 KiB of the volume do.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let arena = self.engine.cache().frames().arena();
        self.assembly.pieces().map(move |(pin, range)| &arena.bytes(pin)[range])
    }

    /// The pieces for a vectored write, to a socket for example: no copy is made.
    pub fn io_slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.pieces().map(IoSlice::new)
    }

    /// Copies all of it.
    ///
    /// # Panics
    /// If `to` is not as long as it.
    pub fn copy_to(&self, to: &mut [u8]) {
        self.assembly.copy_to(self.engine.cache().frames(), to);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.engine.cache().release(&mut self.assembly);
    }
}
