//! Which parts of a store hold data, for clients that ask (NBD's `base:allocation`).

use super::file::{OpenError, OpenedFile};
use rustix::fs::SeekFrom;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// A run of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapExtent {
    /// Bytes.
    pub len: u64,
    /// Whether it is a hole, which reads as zeros.
    pub hole: bool,
}

/// Which parts of a store hold data.
pub trait AllocationMap: Send + Sync {
    /// The run that starts at `offset`, at most `len` bytes of it.
    fn extent(&self, offset: u64, len: u64) -> MapExtent;
}

/// A store without holes.
#[derive(Debug)]
pub struct Solid;

impl AllocationMap for Solid {
    fn extent(&self, _offset: u64, len: u64) -> MapExtent {
        MapExtent { len, hole: false }
    }
}

/// A file's holes, by lseek(2). Where the file system cannot tell, all is data.
pub struct FileMap {
    /// The position of a descriptor is shared: one search at a time.
    descriptor: Mutex<OwnedFd>,
}

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMap").finish_non_exhaustive()
    }
}

impl FileMap {
    /// The map of an open file.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(file: &OpenedFile) -> Result<Self, OpenError> {
        let descriptor = file.duplicate().map_err(|source| OpenError::Open {
            path: file.path.clone(),
            source,
            hint: "",
        })?;
        Ok(FileMap { descriptor: Mutex::new(descriptor) })
    }
}

impl AllocationMap for FileMap {
    fn extent(&self, offset: u64, len: u64) -> MapExtent {
        let descriptor = self.descriptor.lock().expect("no holder panics");
        let data = rustix::fs::seek(&*descriptor, SeekFrom::Data(offset));
        match data {
            Ok(data) if data > offset => MapExtent { len: len.min(data - offset), hole: true },
            // ENXIO: nothing but a hole up to the end.
            Err(rustix::io::Errno::NXIO) => MapExtent { len, hole: true },
            Ok(_) => match rustix::fs::seek(&*descriptor, SeekFrom::Hole(offset)) {
                Ok(hole) if hole > offset => MapExtent { len: len.min(hole - offset), hole: false },
                _ => MapExtent { len, hole: false },
            },
            Err(_) => MapExtent { len, hole: false },
        }
    }
}
