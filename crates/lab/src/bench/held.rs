//! What a benchmark makes in a directory of somebody: locked while its process lives, and so found by
//! the next one after a kill.
//!
//! Invariants: only what is called as ours are, belongs to this user and has no lock is removed. A
//! file system without locks lets nobody remove anything.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often something is made again that somebody who clears up has taken for left over, before
/// it was locked.
const ATTEMPTS: usize = 8;

/// Holds a file or directory, until the last copy is dropped.
#[derive(Clone, Debug)]
pub struct Held(#[expect(dead_code, reason = "it is there for its lock")] Arc<File>);

impl Held {
    /// Makes something at a path and locks it. `make` fails if there is something already.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn make(path: &Path, mut make: impl FnMut() -> io::Result<()>) -> io::Result<Held> {
        for _ in 0..ATTEMPTS {
            make()?;
            let Ok(file) = File::open(path) else { continue };
            // Without locks nobody clears up either.
            let locked = file.try_lock().is_ok();
            let ours = file.metadata()?.ino();
            if !locked || std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == ours) {
                return Ok(Held(Arc::new(file)));
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Removes what runs of this user that were killed have left in a directory, of those who call what
/// they make `STEM` with numbers behind it; what that was. What cannot be removed stays.
#[must_use]
pub fn clear_up(directory: &Path, stem: &str) -> Vec<PathBuf> {
    clear_up_after(directory, stem, &mut |_| true)
}

/// The same for those who made more than files: before something is removed `undo` is called with
/// it, while it is locked. If that answers no, it stays.
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

/// The same beside something that was made by [`Held::make`], for those who were killed meanwhile.
pub(super) fn clear_up_beside(path: &Path) {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    // What is called by numbers alone is not ours.
    if stem.len() < name.len() && !stem.is_empty() {
        let _removed = clear_up(directory.unwrap_or(Path::new(".")), &name[..=stem.len()]);
    }
}

/// Whether something is called so, with numbers behind it.
fn is_numbered(name: &OsStr, stem: &str) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(stem));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    numbers.is_some_and(|numbers| numbers.split('-').all(is_number))
}

/// Removes it if nobody holds it; whether that was so.
fn remove(path: &Path, undo: &mut dyn FnMut(&Path) -> bool) -> io::Result<bool> {
    let me = rustix::process::geteuid().as_raw();
    let is_ours = |found: &Metadata| found.uid() == me && !found.is_symlink();
    if !is_ours(&std::fs::symlink_metadata(path)?) {
        return Ok(false);
    }
    let file = File::open(path)?;
    if file.try_lock().is_err() {
        return Ok(false);
    }
    if !undo(path) {
        return Ok(false);
    }
    let found = file.metadata()?;
    if found.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_stays_and_what_was_left_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str| std::fs::write(path(name), "x");
        let held = Held::make(&path("larder-x-1"), || write("larder-x-1")).unwrap();
        let again = Held::make(&path("larder-x-1"), || Err(io::ErrorKind::AlreadyExists.into()));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for name in ["larder-x-2", "larder-x-2-7", "larder-x-mine", "larder-xy-3", "larder-x-"] {
            write(name).unwrap();
        }
        std::fs::create_dir_all(path("larder-x-4/inside")).unwrap();
        std::os::unix::fs::symlink(path("larder-x-mine"), path("larder-x-5")).unwrap();
        let mut removed = clear_up(directory.path(), "larder-x-");
        removed.sort();
        assert_eq!(removed, ["larder-x-2", "larder-x-2-7", "larder-x-4"].map(path));
        assert!(path("larder-x-1").exists() && path("larder-x-5").is_symlink());
        let copy = held.clone();
        drop(held);
        assert!(clear_up(directory.path(), "larder-x-").is_empty(), "a copy holds it");
        drop(copy);
        assert!(clear_up_after(directory.path(), "larder-x-", &mut |_| false).is_empty());
        assert!(path("larder-x-1").exists(), "what cannot be undone stays");
        write("larder-x-9").unwrap();
        clear_up_beside(&path("larder-x-9"));
        assert!(!path("larder-x-1").exists() && !path("larder-x-9").exists());
        assert!(path("larder-xy-3").exists());
    }
}
