//! The directories of a temporary cache: files, a mount point for the cache, and a separate
//! directory for its control socket, which is not on the disk under test.
//!
//! Invariants: both directories are locked while this process lives; file systems that are mounted
//! in them are unmounted before they are removed, and the next process cleans up after a killed
//! one.

use anyhow::{Context, Result};
use larder_io::front::fuse::detach_ours;
use larder_lab::locked_path::{LockedPath, clear_up_after, remove_tree};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Prefix of the name of the directory, before the process ID.
const PREFIX: &str = "larder-try-";
/// Prefix of the name of the directory for the control socket, which may be in the same parent.
const CONTROL_PREFIX: &str = "larder-try-control-";
const MOUNT: &str = "mount";

/// Both directories.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: LockedDirectory,
    control: LockedDirectory,
}

/// A directory and the lock on it.
#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    lock: Option<LockedPath>,
}

impl LockedDirectory {
    fn make(parent: &Path, prefix: &str) -> io::Result<LockedDirectory> {
        let path = parent.join(format!("{prefix}{}", std::process::id()));
        let lock = LockedPath::make(&path, || DirBuilder::new().mode(0o700).create(&path))?;
        Ok(LockedDirectory { path, lock: Some(lock) })
    }

    /// Removes the directory, once.
    fn remove(&mut self) -> Result<()> {
        // Locked until it is gone: other processes remove directories without a lock.
        let Some(_lock) = self.lock.take() else { return Ok(()) };
        let context = || format!("remove {}", self.path.display());
        remove_tree(&self.path).with_context(context)
    }
}

impl Drop for LockedDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("larder: note: cannot {error:#}");
        }
    }
}

/// Removes and reports the directories of killed runs of this user.
pub(crate) fn remove_leftovers(parent: &Path, sockets: &Path) {
    let mut unmount = |path: &Path| match detach_ours(&path.join(MOUNT)) {
        Ok(_) => true,
        Err(error) => {
            let path = path.display();
            eprintln!("larder: note: {path} stays, left by a killed run: {error}");
            false
        }
    };
    let directories = clear_up_after(parent, PREFIX, &mut unmount);
    let controls = clear_up_after(sockets, CONTROL_PREFIX, &mut |_| true);
    for path in directories.iter().chain(&controls) {
        eprintln!("larder: removed {}, left by a killed run", path.display());
    }
}

impl Scratch {
    /// Creates all directories; the socket gets its own in `sockets`.
    pub(crate) fn make(parent: &Path, sockets: &Path) -> Result<Scratch> {
        let context = || format!("make a scratch directory in {}", parent.display());
        let directory = LockedDirectory::make(parent, PREFIX).with_context(context)?;
        let control = LockedDirectory::make(sockets, CONTROL_PREFIX);
        let control = control.context("make a directory for a control socket")?;
        let scratch = Scratch { directory, control };
        for path in [scratch.files(), scratch.mount()] {
            std::fs::create_dir(path).with_context(context)?;
        }
        Ok(scratch)
    }

    /// Returns the directory for files.
    pub(crate) fn files(&self) -> PathBuf {
        self.directory.path.join("files")
    }

    /// Returns the mount point of the cache.
    pub(crate) fn mount(&self) -> PathBuf {
        self.directory.path.join(MOUNT)
    }

    /// Returns the path of the control socket of the cache.
    pub(crate) fn control(&self) -> PathBuf {
        self.control.path.join("control.sock")
    }

    /// Returns the path of the log of the cache.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.control.path.join("said")
    }

    /// Removes everything; the caller has unmounted the cache.
    pub(crate) fn remove(mut self) -> Result<()> {
        let result = self.directory.remove();
        self.control.remove().and(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_removed_and_what_was_left_is_found() {
        let (parent, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = Scratch::make(parent.path(), sockets.path()).unwrap();
        assert!(scratch.files().is_dir() && scratch.mount().is_dir());
        std::fs::write(scratch.files().join("x"), "x").unwrap();
        remove_leftovers(parent.path(), sockets.path());
        assert!(scratch.files().is_dir(), "it is in use");
        let error = Scratch::make(parent.path(), sockets.path()).unwrap_err();
        assert!(format!("{error:#}").starts_with("make a scratch directory in "), "{error:#}");
        let control = scratch.control();
        scratch.remove().unwrap();
        assert!(!control.parent().unwrap().exists());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        let left = parent.path().join("larder-try-7");
        std::fs::create_dir_all(left.join(MOUNT)).unwrap();
        remove_leftovers(parent.path(), sockets.path());
        assert!(!left.exists());
    }

    #[test]
    fn dropping_it_removes_it_too() {
        let parent = tempfile::tempdir().unwrap();
        // Another name, so that both tests may run at once.
        let path = parent.path().join("inside");
        let lock = LockedPath::make(&path, || std::fs::create_dir(&path)).unwrap();
        drop(LockedDirectory { path: path.clone(), lock: Some(lock) });
        assert!(!path.exists());
    }
}
