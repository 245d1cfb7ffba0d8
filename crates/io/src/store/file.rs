//! Opening, locking and measuring a file or block device.
//!
//! An opened file is claimed ([`crate::claim`]) down to the disks below, so that only one cache has
//! the data. Claims exclude other processes of the same user. Processes of other users are excluded
//! by a flock(2) lock, and by `O_EXCL` for a block device that is written. Support for direct I/O
//! is probed with a read of one sector, then of one block.

use super::backing::{Backing, Transfer};
use super::error::store_error;
use crate::claim::{self, Claim, ClaimError};
use crate::frames::ArenaFrames;
use larder_core::store::{Geometry, StoreError, StoreErrorKind, StoreOp, StoreOpKind};
use rustix::fs::{Access, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Size of the pieces in which zeros are written if the store cannot make them itself.
const ZEROS_BYTES: usize = 1 << 20;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE;

/// A reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be reached, or does not fit a cache.
    #[error("{operation} {store}: {reason}")]
    Unfit {
        /// The operation that failed.
        operation: &'static str,
        /// Path or address.
        store: String,
        /// The reason, and a remedy if there is one.
        reason: String,
    },
    /// Another cache has its data.
    #[error(transparent)]
    Claimed(#[from] ClaimError),
}

impl OpenError {
    pub(super) fn new(
        operation: &'static str,
        store: impl fmt::Display,
        reason: impl fmt::Display,
    ) -> Self {
        let (store, reason) = (store.to_string(), reason.to_string());
        OpenError::Unfit { operation, store, reason }
    }

    /// Returns the error for a path that another process has locked.
    fn busy(path: &Path, holder: &str) -> Self {
        let reason = format!("{holder} uses it; one cache per data, or data would be lost");
        OpenError::new("lock", path.display(), reason)
    }
}

/// Returns a sentence if this process may not write all of a file of this length.
pub(super) fn size_limit_note(path: &Path, length: u64) -> Option<String> {
    let limit = file_size_limit().filter(|limit| *limit < length)?;
    Some(format!(
        "writes to {} beyond its first {limit} bytes will fail: that is the process's limit on the \
         size of files (RLIMIT_FSIZE); raise it with ulimit -f, LimitFSIZE= or prlimit --fsize",
        path.display()
    ))
}

/// Returns the length up to which this process may write a file, if that is limited.
pub(crate) fn file_size_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// An open, locked store.
#[derive(Debug)]
pub struct OpenedFile {
    /// Path of the file or device.
    pub path: PathBuf,
    /// Geometry of the store.
    pub geometry: Geometry,
    /// True if it is a block device.
    pub is_device: bool,
    /// Notes for the user on how it was opened.
    pub notes: Vec<String>,
    /// True if `main` is direct.
    is_direct: bool,
    /// Descriptor for whole granules; direct if possible.
    main: OwnedFd,
    /// Descriptor for a tail that is shorter than a granule.
    buffered: OwnedFd,
    /// Held as long as the data is cached.
    _claim: Claim,
}

impl OpenedFile {
    /// Returns the descriptor for `offset..offset + len`: the direct one, unless the range ends in
    /// a tail that is not a whole granule.
    fn descriptor(&self, offset: u64, len: u64) -> &OwnedFd {
        let granule = u64::from(self.geometry.granule);
        let aligned = offset.is_multiple_of(granule) && len.is_multiple_of(granule);
        if aligned { &self.main } else { &self.buffered }
    }

    /// Returns a descriptor for direct I/O; `None` if the file has none. The lock and the claim are
    /// those of this value.
    ///
    /// # Errors
    /// The kernel refuses another descriptor.
    pub fn direct(&self) -> io::Result<Option<File>> {
        let duplicate = || rustix::io::fcntl_dupfd_cloexec(&self.main, 0);
        Ok(if self.is_direct { Some(duplicate()?.into()) } else { None })
    }

    /// Returns a descriptor for I/O through the page cache, as [`OpenedFile::direct`].
    ///
    /// # Errors
    /// The kernel refuses another descriptor.
    pub fn buffered(&self) -> io::Result<File> {
        self.duplicate().map(File::from)
    }

    /// Returns a duplicate descriptor, for queries of the allocation.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.buffered, 0)?)
    }

    /// Returns an error if a file has become shorter than it was. Devices keep their length.
    fn check_length(&self, op: StoreOpKind) -> Result<(), StoreError> {
        if self.is_device {
            return Ok(());
        }
        let (path, old_length) = (self.path.display(), self.geometry.length);
        let stat = rustix::fs::fstat(&self.main).map_err(|error| {
            StoreError::new(StoreErrorKind::Gone, format!("look at {path}: {error}"))
        })?;
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        if length >= old_length {
            return Ok(());
        }
        let message = format!(
            "{op} {path}: it was {old_length} bytes long when it was opened and now is {length}"
        );
        Err(StoreError::new(StoreErrorKind::Short, message))
    }

    /// Writes zeros where the file system cannot make them.
    fn write_zeros(&self, mut offset: u64, len: u64) -> io::Result<()> {
        let buffer = vec![0u8; ZEROS_BYTES + 4096];
        let skip = buffer.as_ptr().align_offset(4096);
        let end = offset + len;
        while offset < end {
            let piece =
                usize::try_from((end - offset).min(ZEROS_BYTES as u64)).expect("at most 1 MiB");
            let descriptor = self.descriptor(offset, piece as u64);
            let zeros = &buffer[skip..skip + piece];
            match rustix::io::pwrite(descriptor, zeros, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => offset += n as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64, keep_allocated: bool) -> io::Result<()> {
        let mode = if keep_allocated { FallocateFlags::ZERO_RANGE } else { PUNCH };
        match rustix::fs::fallocate(&self.main, mode | FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(offset, len),
            other => Ok(other?),
        }
    }
}

impl Backing for OpenedFile {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn begin(
        &self,
        _frames: &ArenaFrames,
        op: &mut StoreOp<ArenaFrames>,
    ) -> Option<Result<(), StoreError>> {
        let (kind, offset, len) = (op.kind, op.offset, op.len);
        let failed = |error: io::Error| store_error(self.path.display(), kind, offset, len, &error);
        match kind {
            StoreOpKind::Read | StoreOpKind::Flush => None,
            // A write would extend a truncated file again, with a hole in it.
            StoreOpKind::Write { .. } => self.check_length(kind).err().map(Err),
            StoreOpKind::Discard => {
                let mode = PUNCH | FallocateFlags::KEEP_SIZE;
                let punched = rustix::fs::fallocate(&self.main, mode, offset, len);
                Some(punched.map_err(|error| failed(error.into())))
            }
            StoreOpKind::Zero { keep_allocated } => {
                let long_enough = self.check_length(kind);
                let zero = || self.zero(offset, len, keep_allocated).map_err(failed);
                Some(long_enough.and_then(|()| zero()))
            }
        }
    }

    fn next_transfer(
        &self,
        op: &StoreOp<ArenaFrames>,
        done: u64,
    ) -> Result<Option<Transfer>, StoreError> {
        if op.kind == StoreOpKind::Flush {
            return Ok(Some(Transfer::by(&self.main, 0, 0)));
        }
        let (at, len) = (op.offset + done, op.len - done);
        Ok(Some(Transfer::by(self.descriptor(at, len), at, len)))
    }

    fn call_failed(&self, op: &StoreOp<ArenaFrames>, error: &io::Error) -> Option<StoreError> {
        Some(store_error(self.path.display(), op.kind, op.offset, op.len, error))
    }

    fn no_progress(&self, op: &StoreOp<ArenaFrames>) -> Option<StoreError> {
        let length = self.check_length(op.kind);
        Some(length.err().unwrap_or_else(|| {
            let (kind, path) = (op.kind, self.path.display());
            let message = format!("{kind} {path}: the kernel moved nothing");
            StoreError::new(StoreErrorKind::Io, message)
        }))
    }

    fn finish(&self, _op: &StoreOp<ArenaFrames>, _result: &mut Result<(), StoreError>) {}
}

impl Drop for OpenedFile {
    /// Releases the lock now: the descriptor of a map, a ring that the kernel has not torn down
    /// yet, or a child between fork and exec would keep it.
    fn drop(&mut self) {
        let unlocked = rustix::fs::flock(&self.buffered, FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}

fn open_error(path: &Path, error: Errno) -> OpenError {
    let hint = match error {
        Errno::BUSY => return OpenError::busy(path, "another program or the kernel"),
        Errno::ACCESS | Errno::PERM | Errno::ROFS
            if rustix::fs::access(path, Access::READ_OK).is_ok() =>
        {
            "; to serve it without writing, use --write-mode read-only"
        }
        Errno::ACCESS | Errno::PERM => "; run larder as a user that may read it",
        Errno::NOENT => "; check the path, or create an empty image with truncate -s 10G FILE",
        _ => "",
    };
    OpenError::new("open", path.display(), format!("{}{hint}", io::Error::from(error)))
}

/// Returns true for a block device, and false for a file.
fn check_type(path: &Path) -> Result<bool, OpenError> {
    let stat = rustix::fs::stat(path).map_err(|error| open_error(path, error))?;
    let (kind, hint) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(false),
        FileType::BlockDevice => return Ok(true),
        FileType::Directory => ("directory", "; to cache its files, use larder mount"),
        FileType::CharacterDevice => ("character device", ""),
        FileType::Fifo => ("pipe", ""),
        FileType::Socket => ("socket", ""),
        _ => ("special file", ""),
    };
    let reason = format!("it is a {kind}, not a file or block device{hint}");
    Err(OpenError::new("serve", path.display(), reason))
}

/// Returns true if a read of `len` bytes works with direct I/O.
fn reads_directly(file: &File, len: usize) -> bool {
    let mut buffer = vec![0u8; len + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    rustix::io::pread(file, &mut buffer[skip..skip + len], 0).is_ok()
}

/// Opens and locks `path`.
///
/// # Errors
/// See [`OpenError`].
pub fn open_file(path: &Path, read_only: bool) -> Result<OpenedFile, OpenError> {
    let is_device = check_type(path)?;
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let exclusive = if is_device && !read_only { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| {
        rustix::fs::open(path, access | flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| open_error(path, error))
    };
    let buffered = open(exclusive)?;
    let lock = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match rustix::fs::flock(&buffered, lock) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            // The claim of a Larder process of this user has more details than the kernel shows.
            Claim::of_open(&buffered, path, read_only)?;
            return Err(OpenError::busy(path, &claim::lock_holder(&buffered)));
        }
        Err(error) => return Err(open_error(path, error)),
    }
    let claim = Claim::of_open(&buffered, path, read_only)?;
    let length =
        rustix::fs::seek(&buffered, SeekFrom::End(0)).map_err(|error| open_error(path, error))?;
    let unfit = |reason: String| Err(OpenError::new("serve", path.display(), reason));
    if length == 0 {
        return unfit("it is empty; give it a size, as in truncate -s 10G FILE".into());
    }
    if !length.is_multiple_of(512) {
        return unfit(format!(
            "its length, {length} bytes, is not a multiple of 512; round it up with truncate -s \
             %512 FILE"
        ));
    }
    let mut notes = Vec::new();
    // The descriptor above holds the device exclusively; this process may open the device again
    // only without O_EXCL.
    let direct = open(OFlags::DIRECT).ok().map(File::from);
    let granule = direct.as_ref().and_then(|file| {
        [512u32, 4096].into_iter().find(|&granule| reads_directly(file, granule as usize))
    });
    let is_direct = granule.is_some();
    let (main, granule) = if let (Some(file), Some(granule)) = (direct, granule) {
        (file.into(), granule)
    } else {
        notes.push(format!(
            "{} does not do direct I/O: its data passes through the kernel's page cache too, which \
             holds a second copy",
            path.display()
        ));
        (rustix::io::fcntl_dupfd_cloexec(&buffered, 0).map_err(|e| open_error(path, e))?, 512)
    };
    let geometry = Geometry { length, granule, read_only };
    let path = path.to_owned();
    Ok(OpenedFile { path, geometry, is_device, notes, is_direct, main, buffered, _claim: claim })
}
