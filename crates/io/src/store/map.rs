//! Allocation maps of stores, for clients that query them (NBD's `base:allocation`).

use super::file::{OpenError, OpenedFile};
use rustix::fs::SeekFrom;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// An extent of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapExtent {
    /// Length in bytes.
    pub len: u64,
    /// True for a hole, which reads as zeros.
    pub hole: bool,
}

/// Allocation map of a store.
pub trait AllocationMap: Send + Sync {
    /// Returns the extent that starts at `offset`, up to `len` bytes of it.
    fn extent(&self, offset: u64, len: u64) -> MapExtent;
}

/// Map of a store without holes.
#[derive(Debug)]
pub struct SolidMap;

impl AllocationMap for SolidMap {
    fn extent(&self, _offset: u64, len: u64) -> MapExtent {
        MapExtent { len, hole: false }
    }
}

/// Map of a file, by lseek(2). If the file system does not report holes, everything is data.
#[derive(Debug)]
pub struct FileMap {
    /// Searches share the position of the descriptor, so they run one at a time.
    descriptor: Mutex<OwnedFd>,
}

impl FileMap {
    /// Creates the map of an open file.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(file: &OpenedFile) -> Result<Self, OpenError> {
        let failed = |error| OpenError::new("open", file.path.display(), error);
        Ok(FileMap { descriptor: Mutex::new(file.duplicate().map_err(failed)?) })
    }
}

impl AllocationMap for FileMap {
    fn extent(&self, offset: u64, len: u64) -> MapExtent {
        let descriptor = self.descriptor.lock().expect("no holder panics");
        let data = rustix::fs::seek(&*descriptor, SeekFrom::Data(offset));
        match data {
            Ok(data) if data > offset => MapExtent { len: len.min(data - offset), hole: true },
            // ENXIO: only a hole up to the end of the file.
            Err(rustix::io::Errno::NXIO) => MapExtent { len, hole: true },
            Ok(_) => match rustix::fs::seek(&*descriptor, SeekFrom::Hole(offset)) {
                Ok(hole) if hole > offset => MapExtent { len: len.min(hole - offset), hole: false },
                _ => MapExtent { len, hole: false },
            },
            Err(_) => MapExtent { len, hole: false },
        }
    }
}
