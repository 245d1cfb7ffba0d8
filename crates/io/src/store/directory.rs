//! Opening and locking a directory whose files are cached.
//!
//! The directory is claimed ([`crate::claim`]) together with its parents, its subdirectories and
//! the mounts inside it, so that only one cache has its data. Claims exclude other processes of the
//! same user; processes of other users are excluded by a flock(2) lock on the directory. Parents
//! and subdirectories are not locked, since clean-up programs skip locked directories.

use crate::claim::{self, Claim, ClaimError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// A directory that no other Larder process caches.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    descriptor: OwnedFd,
    claim: Claim,
}

/// A reason not to cache a directory.
#[derive(Debug)]
pub(crate) enum LockError {
    Refused(Errno),
    /// Another process, described by this text, has locked it.
    Busy(String),
    Claimed(ClaimError),
}

impl From<Errno> for LockError {
    fn from(error: Errno) -> Self {
        LockError::Refused(error)
    }
}

impl LockedDirectory {
    /// Opens and locks a directory; `path` is without links. Waits for a cache whose mount is gone.
    /// With `read_only`, other read-only caches may cache it too.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<Self, LockError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        let claim = Claim::of_open(&descriptor, path, read_only).map_err(LockError::Claimed)?;
        let lock = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        match rustix::fs::flock(&descriptor, lock) {
            Ok(()) => Ok(LockedDirectory { descriptor, claim }),
            Err(Errno::AGAIN) => Err(LockError::Busy(claim::lock_holder(&descriptor))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }
}

impl AsFd for LockedDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for LockedDirectory {
    /// Ends the lock before the claim: a process that waits for the claim takes the lock next. A
    /// child between fork and exec would otherwise keep the lock.
    fn drop(&mut self) {
        let unlocked = rustix::fs::flock(&self.descriptor, FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}
