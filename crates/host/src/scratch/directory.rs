//! The directory of a scratch file system: its image, its mount point, and the journal of the
//! devices that were added.
//!
//! Invariants: the process that creates the directory holds a lock on the journal while it lives;
//! the journal names a device before the device is added. So any process that obtains the lock may
//! undo everything: the kernel lists the mounts below the directory and the devices attached to
//! files in it.

use super::{BUSY_MAX, ScratchError, device, retry_while_busy};
use crate::mounts;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of directory names; two numbers follow.
pub(crate) const PREFIX: &str = "larder-scratch-";
const JOURNAL: &str = "journal";
/// Maximum number of directories of one process in one parent.
const DIRECTORIES_MAX: u32 = 1024;

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    journal: File,
}

impl Directory {
    pub(super) fn make(parent: &Path) -> Result<Directory, ScratchError> {
        let failed = |operation: &str, path: &Path| {
            ScratchError::io(format!("{operation} {}", path.display()))
        };
        let parent = parent.canonicalize().map_err(failed("find", parent))?;
        for number in 0..DIRECTORIES_MAX {
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed("make the directory", &path)(error)),
            }
            // A concurrent cleanup may have removed the directory before it was locked.
            if let Some(directory) = Directory::claim(&path).map_err(failed("lock", &path))? {
                let point = directory.mount_point();
                std::fs::create_dir(&point).map_err(failed("make the directory", &point))?;
                return Ok(directory);
            }
        }
        let already_exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        Err(failed("make a directory in", &parent)(already_exists))
    }

    /// Locks an existing directory; returns `None` if another process holds the lock or the
    /// directory no longer exists.
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
        // Another process may have removed the journal between open and lock.
        let inode = journal.metadata()?.ino();
        let is_there = std::fs::metadata(&name).is_ok_and(|found| found.ino() == inode);
        Ok(is_there.then(|| Directory { path: path.to_path_buf(), journal }))
    }

    pub(super) fn image(&self) -> PathBuf {
        self.path.join("image")
    }

    pub(super) fn mount_point(&self) -> PathBuf {
        self.path.join("mounted")
    }

    /// Records a device that is about to be added.
    pub(super) fn record_device(&mut self, number: u32) -> Result<(), ScratchError> {
        let failed = ScratchError::io(format!("write the journal in {}", self.path.display()));
        self.journal.write_all(format!("device {number}\n").as_bytes()).map_err(failed)
    }

    /// Returns the recorded devices, which were added or about to be added.
    fn recorded_devices(&self) -> Vec<u32> {
        let mut text = String::new();
        let read =
            File::open(self.path.join(JOURNAL)).and_then(|mut it| it.read_to_string(&mut text));
        let lines = if read.is_ok() { text.lines() } else { "".lines() };
        lines.filter_map(|line| line.strip_prefix("device ")?.parse().ok()).collect()
    }

    /// Undoes everything in reverse order and removes the directory. After an error, the remainder
    /// stays together with the directory and its journal for another attempt.
    /// Retries busy mounts for up to `limit`.
    pub(super) fn undo(&self, limit: Duration) -> Result<(), ScratchError> {
        for point in mounts::mount_points_below(&self.path) {
            let operation = format!("unmount {}", point.display());
            retry_while_busy(limit, || {
                let done = unmount(&point, UnmountFlags::NOFOLLOW);
                done.map_err(|error| ScratchError::io(&operation)(error.into()))
            })?;
        }
        let attached = device::attached();
        let own_devices = attached.iter().filter(|(_, file)| file.starts_with(&self.path));
        for (name, _) in own_devices {
            device::detach(name)?;
        }
        for number in self.recorded_devices() {
            device::remove(number)?;
        }
        let failed = ScratchError::io(format!("remove {}", self.path.display()));
        std::fs::remove_dir_all(&self.path).map_err(failed)
    }
}

impl Drop for Directory {
    /// Releases the lock explicitly: a child between fork and exec would otherwise keep it.
    fn drop(&mut self) {
        let unlocked = self.journal.unlock();
        debug_assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}

/// Result of cleaning up after killed processes.
#[derive(Debug, Default)]
pub struct CleanupResult {
    /// Directories that were removed, with their mounts and devices.
    pub removed: Vec<PathBuf>,
    /// Directories that remain, with the reason: a sentence that can follow "cannot".
    pub stays: Vec<(PathBuf, String)>,
}

/// Removes scratch file systems that killed processes of this user left behind: directories in
/// `parent`, and directories anywhere that still have a loop device attached.
#[must_use]
pub fn remove_left_over(parent: &Path) -> CleanupResult {
    remove_left_over_within(parent, BUSY_MAX)
}

/// Does the same as [`remove_left_over`], but retries busy mounts and devices for up to `limit`.
pub(super) fn remove_left_over_within(parent: &Path, limit: Duration) -> CleanupResult {
    let mut directories: Vec<PathBuf> = Vec::new();
    if let Ok(entries) = parent.canonicalize().and_then(std::fs::read_dir) {
        directories.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
    }
    let attached = device::attached().into_iter();
    directories.extend(attached.filter_map(|(_, file)| Some(file.parent()?.to_path_buf())));
    directories.retain(|path| is_own_scratch(path));
    directories.sort();
    directories.dedup();
    let mut left_over = CleanupResult::default();
    for path in directories {
        match Directory::claim(&path) {
            Ok(None) => {}
            Ok(Some(directory)) => match directory.undo(limit) {
                Ok(()) => left_over.removed.push(path),
                Err(error) => left_over.stays.push((path, error.to_string())),
            },
            Err(error) => {
                left_over.stays.push((path.clone(), format!("lock {}: {error}", path.display())));
            }
        }
    }
    left_over
}

/// Returns true if a directory has the name of a scratch directory and belongs to the effective
/// user. Root also skips the directories of other users.
fn is_own_scratch(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let numbers = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_named = numbers.is_some_and(|(process, number)| is_number(process) && is_number(number));
    let effective_uid = rustix::process::geteuid().as_raw();
    let is_own_directory =
        |found: std::fs::Metadata| found.is_dir() && found.uid() == effective_uid;
    is_named && std::fs::symlink_metadata(path).is_ok_and(is_own_directory)
}

#[cfg(test)]
mod tests {
    use super::super::tests::scratch_lock;
    use super::*;

    #[test]
    fn directories_of_the_living_stay_and_those_of_the_killed_go() {
        let _lock = scratch_lock();
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path().canonicalize().unwrap();
        let living = Directory::make(&parent).unwrap();
        let killed = Directory::make(&parent).unwrap();
        std::fs::write(killed.image(), "x").unwrap();
        // Simulates a killed process: nothing is undone, and the lock is free.
        let path = killed.path.clone();
        drop(killed);
        for other in ["larder-scratch-mine", "larder-scratch-1-", "larder-scratch-1-2x"] {
            std::fs::create_dir(parent.join(other)).unwrap();
        }
        let left_over = remove_left_over(&parent);
        assert!(left_over.removed.contains(&path) && !path.exists(), "{left_over:?}");
        assert!(living.mount_point().is_dir());
        living.undo(BUSY_MAX).unwrap();
        assert!(!living.path.exists());
        assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 3);
    }

    #[test]
    fn devices_are_noted_and_read_again() {
        let parent = tempfile::tempdir().unwrap();
        let mut directory = Directory::make(parent.path()).unwrap();
        // No machine has devices with these numbers, so the test removes none.
        directory.record_device(1_000_001).unwrap();
        directory.record_device(1_000_002).unwrap();
        assert_eq!(directory.recorded_devices(), [1_000_001, 1_000_002]);
        directory.undo(BUSY_MAX).unwrap();
    }
}
