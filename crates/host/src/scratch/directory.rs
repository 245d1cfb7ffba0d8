//! The directory of a scratch file system: its image, its mount point, and the journal of what was
//! made outside of it.
//!
//! Invariants: the journal is locked for as long as the process lives that made the directory; a
//! device is named in it before it is added. So whoever gets the lock may undo everything: what is
//! mounted below the directory and attached from it is found in the kernel's own lists.

use super::{BUSY_MAX, ScratchError, device, eventually};
use crate::mounts;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a directory is called; two numbers follow.
pub(crate) const PREFIX: &str = "larder-scratch-";
const JOURNAL: &str = "journal";
/// Directories that one process may have in one place.
const DIRECTORIES_MAX: u32 = 1024;

/// A directory that is ours alone.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    journal: File,
}

impl Directory {
    /// Makes a new one in a directory that is there.
    pub(super) fn make(parent: &Path) -> Result<Directory, ScratchError> {
        let failed =
            |what: &str, path: &Path| ScratchError::io(format!("{what} {}", path.display()));
        let parent = parent.canonicalize().map_err(failed("find", parent))?;
        for number in 0..DIRECTORIES_MAX {
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed("make the directory", &path)(error)),
            }
            // Before it was locked, somebody who clears up after others may have taken it.
            if let Some(directory) = Directory::claim(&path).map_err(failed("lock", &path))? {
                let point = directory.mount_point();
                std::fs::create_dir(&point).map_err(failed("make the directory", &point))?;
                return Ok(directory);
            }
        }
        let taken = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        Err(failed("make a directory in", &parent)(taken))
    }

    /// Locks a directory that is there; none if somebody else has it, or it is gone.
    fn claim(path: &Path) -> std::io::Result<Option<Directory>> {
        let name = path.join(JOURNAL);
        let mut options = OpenOptions::new();
        let opened = options.read(true).append(true).create(true).open(&name);
        let journal = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        match journal.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // It may have been removed between the two.
        let ours = journal.metadata()?.ino();
        let is_there = std::fs::metadata(&name).is_ok_and(|found| found.ino() == ours);
        Ok(is_there.then(|| Directory { path: path.to_path_buf(), journal }))
    }

    pub(super) fn image(&self) -> PathBuf {
        self.path.join("image")
    }

    pub(super) fn mount_point(&self) -> PathBuf {
        self.path.join("mounted")
    }

    /// Notes a device that is about to be added.
    pub(super) fn note_device(&mut self, number: u32) -> Result<(), ScratchError> {
        let failed = ScratchError::io(format!("write the journal in {}", self.path.display()));
        self.journal.write_all(format!("device {number}\n").as_bytes()).map_err(failed)
    }

    /// Devices that were added, or about to be.
    fn noted_devices(&self) -> Vec<u32> {
        let mut text = String::new();
        let read =
            File::open(self.path.join(JOURNAL)).and_then(|mut it| it.read_to_string(&mut text));
        let lines = if read.is_ok() { text.lines() } else { "".lines() };
        lines.filter_map(|line| line.strip_prefix("device ")?.parse().ok()).collect()
    }

    /// Undoes everything, the last first, and removes the directory. What cannot be undone stays, with
    /// the directory and its journal, for another try.
    pub(super) fn undo(&self) -> Result<(), ScratchError> {
        self.undo_within(BUSY_MAX)
    }

    /// As `undo`, but retries busy mounts and devices for up to `limit`.
    fn undo_within(&self, limit: Duration) -> Result<(), ScratchError> {
        for point in mounts::below(&self.path) {
            let what = format!("unmount {}", point.display());
            eventually(limit, || {
                let done = unmount(&point, UnmountFlags::NOFOLLOW);
                done.map_err(|error| ScratchError::io(&what)(error.into()))
            })?;
        }
        let attached = device::attached();
        let ours = attached.iter().filter(|(_, file)| file.starts_with(&self.path));
        for (name, _) in ours {
            device::detach(name)?;
        }
        for number in self.noted_devices() {
            device::remove(number)?;
        }
        let failed = ScratchError::io(format!("remove {}", self.path.display()));
        std::fs::remove_dir_all(&self.path).map_err(failed)
    }
}

impl Drop for Directory {
    /// Gives the lock back now: a child between fork and exec would keep it.
    fn drop(&mut self) {
        let unlocked = self.journal.unlock();
        debug_assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}

/// What runs that were killed had left.
#[derive(Debug, Default)]
pub struct LeftOver {
    /// Directories that were removed, with what was mounted and attached from them.
    pub removed: Vec<PathBuf>,
    /// Those that stay, with why: a sentence that can follow "failed to".
    pub stays: Vec<(PathBuf, String)>,
}

/// Removes what runs of this user that were killed have left: directories in `parent`, and those
/// anywhere that a loop device is still attached from.
#[must_use]
pub fn remove_left_over(parent: &Path) -> LeftOver {
    remove_left_over_within(parent, BUSY_MAX)
}

/// As [`remove_left_over`], but retries busy mounts and devices for up to `limit`.
pub(super) fn remove_left_over_within(parent: &Path, limit: Duration) -> LeftOver {
    let mut directories: Vec<PathBuf> = Vec::new();
    if let Ok(entries) = parent.canonicalize().and_then(std::fs::read_dir) {
        directories.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
    }
    let attached = device::attached().into_iter();
    directories.extend(attached.filter_map(|(_, file)| Some(file.parent()?.to_path_buf())));
    directories.retain(|path| is_ours(path));
    directories.sort();
    directories.dedup();
    let mut left = LeftOver::default();
    for path in directories {
        match Directory::claim(&path) {
            Ok(None) => {}
            Ok(Some(directory)) => match directory.undo_within(limit) {
                Ok(()) => left.removed.push(path),
                Err(error) => left.stays.push((path, error.to_string())),
            },
            Err(error) => {
                left.stays.push((path.clone(), format!("lock {}: {error}", path.display())));
            }
        }
    }
    left
}

/// Whether a directory is called so, and belongs to us: for the administrator too, those of others are
/// theirs.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let numbers = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_named = numbers.is_some_and(|(process, number)| is_number(process) && is_number(number));
    let me = rustix::process::geteuid().as_raw();
    let is_mine = |found: std::fs::Metadata| found.is_dir() && found.uid() == me;
    is_named && std::fs::symlink_metadata(path).is_ok_and(is_mine)
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn directories_of_the_living_stay_and_those_of_the_killed_go() {
        let _alone = alone();
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path().canonicalize().unwrap();
        let living = Directory::make(&parent).unwrap();
        let killed = Directory::make(&parent).unwrap();
        std::fs::write(killed.image(), "x").unwrap();
        // As if it had been killed: nothing is undone, and the lock is gone.
        let path = killed.path.clone();
        drop(killed);
        for other in ["larder-scratch-mine", "larder-scratch-1-", "larder-scratch-1-2x"] {
            std::fs::create_dir(parent.join(other)).unwrap();
        }
        let left = remove_left_over(&parent);
        assert!(left.removed.contains(&path) && !path.exists(), "{left:?}");
        assert!(living.mount_point().is_dir());
        living.undo().unwrap();
        assert!(!living.path.exists());
        assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 3);
    }

    #[test]
    fn devices_are_noted_and_read_again() {
        let parent = tempfile::tempdir().unwrap();
        let mut directory = Directory::make(parent.path()).unwrap();
        // Numbers that no machine has, so that nothing is removed.
        directory.note_device(1_000_001).unwrap();
        directory.note_device(1_000_002).unwrap();
        assert_eq!(directory.noted_devices(), [1_000_001, 1_000_002]);
        directory.undo().unwrap();
    }
}
