//! Opening and locking a directory whose files are cached.
//!
//! One cache per data: the directory is claimed ([`crate::claim`]), with what lies above, below and
//! inside of it. That reaches processes of one user; for others it is locked with flock(2) as well.
//! Directories above and below are not locked, since programs that clean up pass by what is locked.

use crate::claim::{self, Claim, ClaimError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// A directory that no other Larder caches.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    descriptor: OwnedFd,
    claim: Claim,
}

/// A reason not to cache a directory.
#[derive(Debug)]
pub(crate) enum LockError {
    /// The kernel refused.
    Refused(Errno),
    /// Another process has locked it: who, in words.
    Busy(String),
    /// Another cache has some of its data.
    Claimed(ClaimError),
}

impl From<Errno> for LockError {
    fn from(error: Errno) -> Self {
        LockError::Refused(error)
    }
}

impl LockedDirectory {
    /// Opens and locks a directory; `path` is without links. A cache whose mount is gone is waited
    /// for. With `read_only` others may cache it so as well.
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

    /// The claim of its data.
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
    /// Ends the lock before the claim: who waits for the claim wants the lock next. A child between
    /// fork and exec would keep it.
    fn drop(&mut self) {
        let unlocked = rustix::fs::flock(&self.descriptor, FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}
