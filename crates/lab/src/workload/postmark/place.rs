//! Work directories: the directories in which a run puts its files, and their removal.
//!
//! Invariants: a run works only in directories that it made, so it never opens or removes a file of
//! another program; each is locked while the run lives. An unlocked directory belongs to a killed
//! run, and the next run in the same location removes it. Sizes are bytes.

use super::error::PostmarkError;
use super::files::SpaceUse;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Prefix of the name of a work directory; numbers follow.
const PREFIX: &str = "larder-postmark-";

/// A work directory.
#[derive(Debug)]
pub(super) struct WorkDirectory {
    path: PathBuf,
    /// Descriptor of the directory, which holds the lock while the run lives.
    directory: OwnedFd,
}

impl WorkDirectory {
    /// Creates a new directory in a location and locks it.
    pub(super) fn make(location: &Path) -> Result<Self, PostmarkError> {
        let location = if location.as_os_str().is_empty() { Path::new(".") } else { location };
        let process = std::process::id();
        for number in 0..u32::MAX {
            let path = location.join(format!("{PREFIX}{process}-{number}"));
            match rustix::fs::mkdir(&path, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(PostmarkError::of("make a directory", path, error)),
            }
            match lock(&path) {
                Ok(Some(directory)) => return Ok(WorkDirectory { path, directory }),
                // Another run removed it as left-over before it was locked.
                Ok(None) => {}
                Err(error) => {
                    let failed = PostmarkError::of("lock", &path, error);
                    return Err(with_left_over(failed, &path, rustix::fs::rmdir(&path)));
                }
            }
        }
        Err(PostmarkError::of("make a directory in", location, Errno::EXIST))
    }

    /// Returns the path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Flushes its file system.
    pub(super) fn sync(&self) -> Result<(), PostmarkError> {
        rustix::fs::syncfs(&self.directory)
            .map_err(|error| PostmarkError::of("make stable", &self.path, error))
    }

    /// Creates a subdirectory.
    pub(super) fn create_subdirectory(&self, name: &str) -> Result<PathBuf, PostmarkError> {
        let path = self.path.join(name);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => Ok(path),
            Err(error) => Err(PostmarkError::of("make the directory", path, error)),
        }
    }

    /// Removes the directory with all its content, which belongs to this run.
    pub(super) fn remove(self) -> std::io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }
}

/// Opens and locks a directory; `None` if it is locked by another process or missing.
fn lock(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let directory = match open_directory(path) {
        Err(Errno::NOENT) => return Ok(None),
        directory => directory?,
    };
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    // The directory may have been removed between the two calls.
    let own = rustix::fs::fstat(&directory)?;
    let is_same = rustix::fs::lstat(path).is_ok_and(|found| found.st_ino == own.st_ino);
    Ok(is_same.then_some(directory))
}

/// Returns the error, extended if the directory could not be removed.
fn with_left_over(failed: PostmarkError, path: &Path, removed: Result<(), Errno>) -> PostmarkError {
    match removed {
        Ok(()) => failed,
        Err(why) => PostmarkError::Left {
            first: failed.to_string(),
            path: path.to_owned(),
            why: why.to_string(),
        },
    }
}

pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Removes the directories that killed runs have left in a location, and returns them.
pub(super) fn remove_left_over(location: &Path) -> Vec<PathBuf> {
    let location = if location.as_os_str().is_empty() { Path::new(".") } else { location };
    let Ok(entries) = std::fs::read_dir(location) else { return Vec::new() };
    let is_own = |name: &std::ffi::OsStr| name.to_str().is_some_and(is_name);
    let found = entries.filter_map(Result::ok).filter(|entry| is_own(&entry.file_name()));
    let uid = rustix::process::geteuid().as_raw();
    found
        .map(|entry| entry.path())
        .filter(|path| {
            // Directories of other users stay, even if this user may remove them.
            let is_mine = rustix::fs::lstat(path).is_ok_and(|found| found.st_uid == uid);
            let locked = if is_mine { lock(path).ok().flatten() } else { None };
            // A directory that cannot be removed stays for a user that may remove it.
            locked.is_some() && std::fs::remove_dir_all(path).is_ok()
        })
        .collect()
}

/// Returns true if the name is that of a work directory.
fn is_name(name: &str) -> bool {
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(process, number)| {
        [process, number]
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Checks before anything is written that the files will fit. `space_uses` has the maximum space of
/// all files in each work directory.
pub(super) fn check_space(
    work_directories: &[WorkDirectory],
    space_uses: &[SpaceUse],
) -> Result<(), PostmarkError> {
    let mut by_device: BTreeMap<u64, (&Path, u64, u64)> = BTreeMap::new();
    for (work_directory, space_use) in work_directories.iter().zip(space_uses) {
        let device = std::fs::metadata(&work_directory.path).map_or(0, |data| data.dev());
        let sum = by_device.entry(device).or_insert((&work_directory.path, 0, 0));
        sum.1 += space_use.bytes_max();
        sum.2 += space_use.files_max;
    }
    for (path, bytes, files) in by_device.into_values() {
        let found = rustix::fs::statvfs(path)
            .map_err(|error| PostmarkError::of("ask for the free room of", path, error))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let no_room = |what: String, free: String| {
            let path = path.parent().unwrap_or(path).to_owned();
            Err(PostmarkError::NoRoom { path, what, free })
        };
        let shown = larder_schema::format::bytes;
        if bytes > free {
            return no_room(shown(bytes), shown(free));
        }
        // A file system without an inode table reports 0 inodes.
        if found.f_files > 0 && files > found.f_favail {
            return no_room(format!("{files} inodes"), found.f_favail.to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_runs_that_live_stay_and_those_of_others_go() {
        let dir = tempfile::tempdir().unwrap();
        let live = WorkDirectory::make(dir.path()).unwrap();
        let dead = dir.path().join("larder-postmark-1-0");
        std::fs::create_dir_all(dead.join("t0/s1")).unwrap();
        std::fs::write(dead.join("t0/s1/7"), "x").unwrap();
        for other in ["larder-postmark-mine", "larder-postmark-1-", "larder-postmark-1-2x"] {
            std::fs::create_dir(dir.path().join(other)).unwrap();
        }
        assert_eq!(remove_left_over(dir.path()), [dead]);
        assert!(live.path().is_dir());
        live.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let work_directory = WorkDirectory::make(dir.path()).unwrap();
        let space_use = SpaceUse { blocks_max: 1 << 48, files_max: 1, ..SpaceUse::default() };
        let error = check_space(&[work_directory], &[space_use]).unwrap_err().to_string();
        assert!(error.contains("the files need 1 EiB, and "), "{error}");
    }
}
