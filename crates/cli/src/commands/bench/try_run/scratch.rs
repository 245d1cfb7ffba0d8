//! The directory that `larder try` works in: files, a mount point for the cache in front of them, and
//! a place for its control socket, which is not on somebody's slow disk.
//!
//! Invariants: both directories are locked while this process lives; whatever is mounted in them goes
//! before they do, and what a process that was killed has left is undone by the next one.

use anyhow::{Context, Result};
use larder_io::front::fuse::detach_ours;
use larder_lab::bench::held::{Held, clear_up_after};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What the directory is called, with the number of the process behind it.
const STEM: &str = "larder-try-";
/// The same for the one of the control socket, which may lie beside it.
const CONTROL_STEM: &str = "larder-try-control-";
const MOUNT: &str = "mount";

/// Both directories.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: Kept,
    control: Kept,
}

/// A directory and the lock on it.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    lock: Option<Held>,
}

impl Kept {
    fn make(parent: &Path, stem: &str) -> io::Result<Kept> {
        let path = parent.join(format!("{stem}{}", std::process::id()));
        let lock = Held::make(&path, || DirBuilder::new().mode(0o700).create(&path))?;
        Ok(Kept { path, lock: Some(lock) })
    }

    /// Removes it, once.
    fn remove(&mut self) -> Result<()> {
        if self.lock.take().is_none() {
            return Ok(());
        }
        let what = || format!("remove {}", self.path.display());
        std::fs::remove_dir_all(&self.path).with_context(what)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("larder: note: failed to {error:#}");
        }
    }
}

/// Removes what runs of this user that were killed have left in a directory; says so.
pub(super) fn clear_up(parent: &Path, sockets: &Path) {
    let mut undo = |path: &Path| match detach_ours(&path.join(MOUNT)) {
        Ok(_) => true,
        Err(error) => {
            let path = path.display();
            eprintln!("larder: note: {path} stays, which a run that was killed had left: {error}");
            false
        }
    };
    let left = clear_up_after(parent, STEM, &mut undo);
    let controls = clear_up_after(sockets, CONTROL_STEM, &mut |_| true);
    for path in left.iter().chain(&controls) {
        eprintln!("larder: removed {}, which a run that was killed had left", path.display());
    }
}

impl Scratch {
    /// Creates all files; the socket gets a directory of its own in `sockets`.
    pub(super) fn make(parent: &Path, sockets: &Path) -> Result<Scratch> {
        let what = || format!("make a scratch directory in {}", parent.display());
        let directory = Kept::make(parent, STEM).with_context(what)?;
        let control = Kept::make(sockets, CONTROL_STEM);
        let control = control.context("make a directory for a control socket")?;
        let scratch = Scratch { directory, control };
        for inside in [scratch.files(), scratch.mount()] {
            std::fs::create_dir(inside).with_context(what)?;
        }
        Ok(scratch)
    }

    /// Where the work is done natively.
    pub(super) fn files(&self) -> PathBuf {
        self.directory.path.join("files")
    }

    /// Where the same files are seen through the cache.
    pub(super) fn mount(&self) -> PathBuf {
        self.directory.path.join(MOUNT)
    }

    /// Where the cache can be asked.
    pub(super) fn control(&self) -> PathBuf {
        self.control.path.join("control.sock")
    }

    /// What the cache says on standard error.
    pub(super) fn log_path(&self) -> PathBuf {
        self.control.path.join("said")
    }

    /// Removes everything; nothing is mounted any more.
    pub(super) fn remove(mut self) -> Result<()> {
        let removed = self.directory.remove();
        self.control.remove().and(removed)
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
        clear_up(parent.path(), sockets.path());
        assert!(scratch.files().is_dir(), "it is in use");
        let again = Scratch::make(parent.path(), sockets.path()).unwrap_err();
        assert!(format!("{again:#}").starts_with("make a scratch directory in "), "{again:#}");
        let control = scratch.control();
        scratch.remove().unwrap();
        assert!(!control.parent().unwrap().exists());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        let left = parent.path().join("larder-try-7");
        std::fs::create_dir_all(left.join(MOUNT)).unwrap();
        clear_up(parent.path(), sockets.path());
        assert!(!left.exists());
    }

    #[test]
    fn dropping_it_removes_it_too() {
        let parent = tempfile::tempdir().unwrap();
        // Of another process, so that both tests may run at once.
        let path = parent.path().join("inside");
        let lock = Held::make(&path, || std::fs::create_dir(&path)).unwrap();
        drop(Kept { path: path.clone(), lock: Some(lock) });
        assert!(!path.exists());
    }
}
