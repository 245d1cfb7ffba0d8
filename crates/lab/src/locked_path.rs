//! Locked files and directories of a benchmark in a directory of the user: the lock is held while
//! the process lives, so that the next run finds those of a killed one.
//!
//! Invariants: only entries that have the name of ours, belong to this user and are not locked are
//! removed. On a file system without locks nothing is removed.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of attempts to create a file, if another run removes it as left-over before it is
/// locked.
const ATTEMPTS: usize = 8;

/// A locked file or directory; the lock is released when the last copy is dropped.
#[derive(Clone, Debug)]
pub struct LockedPath(Arc<File>);

impl LockedPath {
    /// Returns the open file or directory.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// Creates a file or directory at a path and locks it. `make` fails if the path exists.
    ///
    /// # Errors
    /// It cannot be created or opened.
    pub fn make(path: &Path, mut make: impl FnMut() -> io::Result<()>) -> io::Result<LockedPath> {
        for _ in 0..ATTEMPTS {
            make()?;
            let file = match File::open(path) {
                // Another run has removed it as left-over.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            // Another run may have locked it to remove it. Without locks, nothing is removed.
            let locked = file.lock().is_ok();
            let ours = file.metadata()?.ino();
            if !locked || std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == ours) {
                return Ok(LockedPath(Arc::new(file)));
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Removes what killed runs of this user have left in a directory: entries whose name is `STEM`
/// followed by numbers. Returns the removed paths. Entries that cannot be removed stay.
#[must_use]
pub fn clear_up(directory: &Path, stem: &str) -> Vec<PathBuf> {
    clear_up_after(directory, stem, &mut |_| true)
}

/// Does the same for runs that made more than files: calls `undo` with each entry before its
/// removal, while it is locked. If `undo` returns false, the entry stays.
pub fn clear_up_after(
    directory: &Path,
    stem: &str,
    undo: &mut dyn FnMut(&Path) -> bool,
) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let entries = entries.filter_map(Result::ok);
    let named = entries.filter(|entry| is_numbered(&entry.file_name(), stem));
    named.map(|entry| entry.path()).filter(|path| remove(path, undo).unwrap_or(false)).collect()
}

/// Does the same next to a path made by [`LockedPath::make`], for ranks that were killed meanwhile.
pub(crate) fn clear_up_siblings(path: &Path) {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    // A name of numbers alone is not ours.
    if stem.len() < name.len() && !stem.is_empty() {
        let _removed = clear_up(directory.unwrap_or(Path::new(".")), &name[..=stem.len()]);
    }
}

/// Returns true if the name is `stem` followed by numbers.
fn is_numbered(name: &OsStr, stem: &str) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(stem));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    numbers.is_some_and(|numbers| numbers.split('-').all(is_number))
}

/// Removes an entry that no process has locked. Returns true if it was removed.
fn remove(path: &Path, undo: &mut dyn FnMut(&Path) -> bool) -> io::Result<bool> {
    let uid = rustix::process::geteuid().as_raw();
    let is_ours = |found: &Metadata| found.uid() == uid && (found.is_file() || found.is_dir());
    // A pipe without a writer would block; the link of another user may replace the entry.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !is_ours(&found) || file.try_lock().is_err() {
        return Ok(false);
    }
    // The run that held the lock may have removed it, and another one made its own.
    let is_same = |there: &Metadata| (there.dev(), there.ino()) == (found.dev(), found.ino());
    if !std::fs::symlink_metadata(path).is_ok_and(|there| is_same(&there)) || !undo(path) {
        return Ok(false);
    }
    remove_tree(path)?;
    Ok(true)
}

/// Removes a file, or a directory with its content. File systems that are mounted in the directory
/// are not entered.
///
/// # Errors
/// An entry cannot be removed, or a file system is mounted in the directory.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_at(rustix::fs::CWD, path, ResolveFlags::empty()).map_err(|error| match error {
        Errno::XDEV | Errno::BUSY => {
            io::Error::other("a file system is mounted in it; unmount it, then remove the rest")
        }
        error => error.into(),
    })
}

/// Removes an entry of a directory; `resolve` limits the way to it.
fn remove_at(parent: BorrowedFd<'_>, path: &Path, resolve: ResolveFlags) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, path, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(parent, path, flags, Mode::empty(), resolve)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
            remove_at(directory.as_fd(), name, ResolveFlags::NO_XDEV)?;
        }
    }
    rustix::fs::unlinkat(parent, path, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_run_removes_before_it_is_locked_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("larder-x-1");
        let mut other_run = None;
        let held = LockedPath::make(&path, || {
            std::fs::create_dir(&path)?;
            if other_run.is_none() {
                let locked = File::open(&path)?;
                locked.lock()?;
                let path = path.clone();
                other_run = Some(std::thread::spawn(move || {
                    std::fs::remove_dir(path).unwrap();
                    drop(locked);
                }));
            }
            Ok(())
        });
        other_run.unwrap().join().unwrap();
        assert!(held.is_ok() && path.exists());
        assert!(clear_up(directory.path(), "larder-x-").is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("larder-x-1");
        let mut listeners = Vec::new();
        let held = LockedPath::make(&path, || {
            listeners.push(std::os::unix::net::UnixListener::bind(&path)?);
            Ok(())
        });
        // open(2) of a socket.
        let expected = Some(rustix::io::Errno::NXIO.raw_os_error());
        assert_eq!((held.unwrap_err().raw_os_error(), listeners.len()), (expected, 1));
    }

    #[test]
    fn what_is_held_stays_and_what_was_left_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str| std::fs::write(path(name), "x");
        let held = LockedPath::make(&path("larder-x-1"), || write("larder-x-1")).unwrap();
        let again =
            LockedPath::make(&path("larder-x-1"), || Err(io::ErrorKind::AlreadyExists.into()));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for name in ["larder-x-2", "larder-x-2-7", "larder-x-mine", "larder-xy-3", "larder-x-"] {
            write(name).unwrap();
        }
        std::fs::create_dir_all(path("larder-x-4/inside")).unwrap();
        std::os::unix::fs::symlink(path("larder-x-mine"), path("larder-x-5")).unwrap();
        let (pipe, kind) = (path("larder-x-6"), rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, Mode::RUSR, 0).unwrap();
        let mut removed = clear_up(directory.path(), "larder-x-");
        removed.sort();
        assert_eq!(removed, ["larder-x-2", "larder-x-2-7", "larder-x-4"].map(path));
        assert!(path("larder-x-1").exists() && path("larder-x-5").is_symlink());
        assert!(path("larder-x-6").exists(), "no benchmark makes a pipe");
        let copy = held.clone();
        drop(held);
        assert!(clear_up(directory.path(), "larder-x-").is_empty(), "a copy holds it");
        drop(copy);
        assert!(clear_up_after(directory.path(), "larder-x-", &mut |_| false).is_empty());
        assert!(path("larder-x-1").exists(), "what cannot be undone stays");
        write("larder-x-9").unwrap();
        clear_up_siblings(&path("larder-x-9"));
        assert!(!path("larder-x-1").exists() && !path("larder-x-9").exists());
        assert!(path("larder-xy-3").exists());
    }
}
