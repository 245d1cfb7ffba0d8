//! Work directories: the directories in which a trial puts its files, and their removal.
//!
//! Invariants: a trial works only in directories that it made, so it never opens or removes a file
//! of another program; each is locked while the trial lives. An unlocked directory belongs to a
//! killed run, and the next run in the same location removes it. Sizes are bytes.

use crate::bench::BenchError;
use crate::locked_path::{LockedPath, clear_up};
use crate::workload::postmark::SpaceUse;
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Prefix of the name of a work directory; numbers follow.
const PREFIX: &str = "larder-postmark-";

/// A work directory, which is removed with its files by [`WorkDirectory::remove`].
#[derive(Debug)]
pub(super) struct WorkDirectory {
    pub(super) path: PathBuf,
    held: LockedPath,
}

impl WorkDirectory {
    /// Creates a new directory in a location and locks it.
    pub(super) fn make(location: &Path) -> Result<Self, BenchError> {
        let process = std::process::id();
        let failed = BenchError::io(format!("make a directory in {}", location.display()));
        for number in 0..u32::MAX {
            let path = location.join(format!("{PREFIX}{process}-{number}"));
            match LockedPath::make(&path, || create(&path)) {
                Ok(held) => return Ok(WorkDirectory { path, held }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    // Empty, if it was created; the first error is the one to report.
                    drop(std::fs::remove_dir(&path));
                    return Err(failed(error));
                }
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Flushes its file system.
    pub(super) fn sync(&self) -> Result<(), BenchError> {
        let failed = BenchError::io(format!("make stable {}", self.path.display()));
        rustix::fs::syncfs(self.held.file()).map_err(|error| failed(error.into()))
    }

    /// Creates a subdirectory.
    pub(super) fn create_subdirectory(&self, name: &str) -> Result<(), BenchError> {
        let path = self.path.join(name);
        create(&path).map_err(BenchError::io(format!("make the directory {}", path.display())))
    }

    /// Removes the directory with all its content, which belongs to this run.
    pub(super) fn remove(&self) -> Result<(), BenchError> {
        let failed = BenchError::io(format!("remove {}", self.path.display()));
        std::fs::remove_dir_all(&self.path).map_err(failed)
    }
}

fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Removes the directories that killed runs have left in a location, and returns them.
pub(super) fn remove_left_over(location: &Path) -> Vec<PathBuf> {
    clear_up(location, PREFIX)
}

/// Checks before anything is written that the files will fit. `space_uses` has the maximum space of
/// all files in each work directory.
pub(super) fn check_space(
    work_directories: &[WorkDirectory],
    space_uses: &[SpaceUse],
) -> Result<(), BenchError> {
    let mut by_device: BTreeMap<u64, (&Path, u64, u64)> = BTreeMap::new();
    for (work_directory, space_use) in work_directories.iter().zip(space_uses) {
        let device = std::fs::metadata(&work_directory.path).map_or(0, |data| data.dev());
        let sum = by_device.entry(device).or_insert((&work_directory.path, 0, 0));
        sum.1 += space_use.bytes_max();
        sum.2 += space_use.files_max;
    }
    for (path, bytes, files) in by_device.into_values() {
        let failed = BenchError::io(format!("ask for the free room of {}", path.display()));
        let found = rustix::fs::statvfs(path).map_err(|error| failed(error.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let no_room = |what: String, free: String| {
            let path = path.parent().unwrap_or(path).display();
            let needs = format!("start in {path}: the files need {what}, and {free} are free");
            Err(BenchError::Failed(needs))
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
        assert!(live.path.is_dir());
        live.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let work_directory = WorkDirectory::make(dir.path()).unwrap();
        let mut space_use = SpaceUse::default();
        (space_use.blocks_max, space_use.files_max) = (1 << 48, 1);
        let error = check_space(&[work_directory], &[space_use]).unwrap_err().to_string();
        assert!(error.contains("the files need 1 EiB, and "), "{error}");
    }
}
