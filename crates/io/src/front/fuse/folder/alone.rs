//! One cache for each file: a folder that is shown is locked, and none is shown that lies in one or
//! that one lies in.
//!
//! The lock is flock(2) on the folder itself. Of folders above and below nobody takes one, since
//! programs that clean up pass by what is locked; the list of mounts says which there are, and
//! their locks which of them live.

use super::super::mount::sources;
use super::FolderError;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens a folder and locks it; `path` is without links.
pub(super) fn lock(path: &Path) -> Result<OwnedFd, FolderError> {
    let failed = |source: Errno| FolderError::Open { path: path.to_owned(), source: source.into() };
    let root = open(path).map_err(failed)?;
    match rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(FolderError::Busy(path.to_owned())),
        Err(error) => return Err(failed(error)),
    }
    // Two that begin in the same moment do not see each other.
    let overlaps = |other: &Path| path.starts_with(other) || other.starts_with(path);
    let others = sources().into_iter().filter(|other| other != path && other.is_absolute());
    match others.into_iter().find(|other| overlaps(other) && is_locked(other)) {
        Some(other) => Err(FolderError::Overlaps { path: path.to_owned(), other }),
        None => Ok(root),
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Whether somebody shows a folder: the mount of one who was killed may still be there.
fn is_locked(path: &Path) -> bool {
    let Ok(folder) = open(path) else { return false };
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared) == Err(Errno::AGAIN)
}
