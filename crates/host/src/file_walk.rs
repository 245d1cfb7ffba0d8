//! A walk over the regular files of a directory tree, in parallel, which can be continued.
//!
//! Directories are read in parts, so that memory does not depend on their number of entries, and
//! their files are opened in the order of their inodes. Invariants: no link is followed and no
//! other file system is entered, whatever other processes replace meanwhile; opening a file waits
//! for no other program; a position is between two parts, so that a walk that is continued there
//! visits each remaining file once, if the directories did not change.

mod walker;

pub use walker::{LevelList, WalkPosition};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use walker::{Part, Walker};

/// Parts that wait for a thread.
const PARTS_WAITING: usize = 4;

/// The root of a tree: a directory, or a single file.
#[derive(Debug)]
pub struct WalkRoot {
    file: File,
    path: PathBuf,
    is_directory: bool,
}

impl WalkRoot {
    /// Opens the root by a path without links, such as a canonical one.
    ///
    /// # Errors
    /// The path cannot be opened or leads through a link, or is neither a directory nor a regular
    /// file.
    pub fn open(path: &Path) -> io::Result<WalkRoot> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        let file = File::from(openat2(CWD, path, flags, Mode::empty(), resolve)?);
        let kind = file.metadata()?.file_type();
        if !kind.is_dir() && !kind.is_file() {
            return Err(io::Error::other("it is neither a directory nor a regular file"));
        }
        Ok(WalkRoot { file, path: path.to_owned(), is_directory: kind.is_dir() })
    }

    /// Returns the open root.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns true if it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Returns its path as it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file of the tree by its path below the root, or the root if that is a file
    /// and the path is empty.
    ///
    /// # Errors
    /// The path leads through a link or to another file system, or the file is not a regular one.
    pub fn open_file(&self, below: &Path) -> io::Result<File> {
        if below.as_os_str().is_empty() {
            return self.file.try_clone();
        }
        open_below(&self.file, below.as_os_str(), OFlags::RDONLY)
    }

    /// As [`WalkRoot::open_file`], for reading and writing; the root is a directory.
    ///
    /// # Errors
    /// As for [`WalkRoot::open_file`], or the file must not be written.
    pub(crate) fn open_file_for_writing(&self, below: &Path) -> io::Result<File> {
        open_below(&self.file, below.as_os_str(), OFlags::RDWR)
    }

    /// Creates a file without a name in the directory of a file of the tree.
    pub(crate) fn create_unnamed_beside(&self, below: &Path) -> io::Result<File> {
        let parent = below.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(File::from(openat2(&self.file, parent, flags, Mode::RUSR | Mode::WUSR, INSIDE)?))
    }
}

/// Opens a regular file below a directory.
fn open_below(directory: impl AsFd, name: &OsStr, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat2(directory, name, flags, Mode::empty(), INSIDE)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Resolution that stays inside a tree.
const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// A visited file.
#[derive(Debug)]
pub struct WalkedFile<'a> {
    /// The open file.
    pub file: &'a File,
    directory: &'a Path,
    name: &'a OsStr,
}

impl WalkedFile<'_> {
    /// Returns its path: that of the root, and the names below it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }
}

/// A file or directory that is left out, and the error.
pub type LeftOut<'a> = (&'a Path, &'a io::Error);

/// A visitor of files: one for each thread.
pub trait FileVisitor: Send {
    /// Visits a file.
    fn visit(&mut self, file: &WalkedFile<'_>);
    /// Records a file or directory that is left out.
    fn leave_out(&mut self, left_out: LeftOut<'_>);
}

/// Walks over a tree from a position on, with a visitor for each thread. `paused` is called again
/// and again while no file is being visited, with the visitors and the position of the walk, and
/// ends it with `Break`; `is_due` decides whether to pause, after each part. At the end of the walk
/// the position is `None`.
///
/// # Errors
/// The root cannot be read.
pub fn walk<V: FileVisitor>(
    root: &WalkRoot,
    from: WalkPosition,
    visitors: Vec<V>,
    mut is_due: impl FnMut() -> bool,
    mut paused: impl FnMut(&mut [MutexGuard<'_, V>], Option<&WalkPosition>) -> ControlFlow<()>,
) -> io::Result<()> {
    let visitors: Vec<Mutex<V>> = visitors.into_iter().map(Mutex::new).collect();
    if !root.is_directory {
        let (directory, name) = (Path::new(""), root.path.as_os_str());
        lock(&visitors[0]).visit(&WalkedFile { file: &root.file, directory, name });
        let _is_over = paused(&mut locked(&visitors), None);
        return Ok(());
    }
    let mut walker = Walker::new(root, from);
    loop {
        let (sender, receiver) = mpsc::sync_channel::<Part>(PARTS_WAITING);
        let receiver = &Mutex::new(receiver);
        thread::scope(|scope| {
            for visitor in &visitors {
                scope.spawn(move || {
                    // The lock is released before the visit.
                    while let Ok(part) = { lock(receiver).recv() } {
                        visit_part(&part, &mut *lock(visitor));
                    }
                });
            }
            while let Some(part) = walker.next_part(|left_out| {
                lock(&visitors[0]).leave_out(left_out);
            }) {
                if sender.send(part).is_err() || is_due() {
                    break;
                }
            }
            drop(sender);
        });
        if let Some(error) = walker.root_error.take() {
            return Err(error);
        }
        let position = walker.position();
        if paused(&mut locked(&visitors), position.as_ref()).is_break() || position.is_none() {
            return Ok(());
        }
    }
}

fn visit_part(part: &Part, visitor: &mut impl FileVisitor) {
    for name in &part.names {
        match open_below(&part.directory, name, OFlags::RDONLY) {
            Ok(file) => {
                visitor.visit(&WalkedFile { file: &file, directory: &part.path, name });
            }
            Err(error) => visitor.leave_out((&part.path.join(name), &error)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locked<T>(mutexes: &[Mutex<T>]) -> Vec<MutexGuard<'_, T>> {
    mutexes.iter().map(lock).collect()
}

#[cfg(test)]
mod tests;
