//! The order of a walk: depth first, a part of a directory at a time.

use super::{INSIDE, LeftOut, WalkRoot};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, openat2, seek, statat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Entries of a part of a directory; fewer in deep directories, whose parts wait for those below.
const ENTRIES_MAX: usize = 16 << 10;
const ENTRIES_MAX_DEEP: usize = 256;
/// The number of directories above one that counts as deep.
const DEEP: usize = 16;
/// Buffer of getdents64(2).
const BUFFER_BYTES: usize = 64 << 10;

/// Files of a part of a directory, in the order of their inodes.
pub(super) struct Part {
    pub(super) directory: OwnedFd,
    /// Path of the directory, with that of the root.
    pub(super) path: PathBuf,
    pub(super) names: Vec<OsString>,
}

/// A directory of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    /// Path below the root; empty for the root.
    path: PathBuf,
    /// Offset in the directory from which on entries are unread, see telldir(3); `None` at its end.
    next: Option<u64>,
    /// Directories of the parts that were read, which are not visited yet; the last one is next.
    waiting: Vec<OsString>,
}

/// A directory of a position: its path, the offset in it, and the names of the directories that
/// wait.
pub type LevelList = (Vec<u8>, Option<u64>, Vec<Vec<u8>>);

/// The position of a walk, which [`WalkPosition::to_lists`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkPosition {
    levels: Vec<Level>,
}

impl Default for WalkPosition {
    /// Returns the begin of a walk.
    fn default() -> Self {
        WalkPosition {
            levels: vec![Level { path: PathBuf::new(), next: Some(0), waiting: Vec::new() }],
        }
    }
}

impl WalkPosition {
    /// Returns the position as lists, for a file.
    #[must_use]
    pub fn to_lists(&self) -> Vec<LevelList> {
        let list = |level: &Level| {
            let waiting = level.waiting.iter().map(|it| it.as_bytes().to_vec()).collect();
            (level.path.as_os_str().as_bytes().to_vec(), level.next, waiting)
        };
        self.levels.iter().map(list).collect()
    }

    /// Returns the position of such lists.
    #[must_use]
    pub fn from_lists(lists: Vec<LevelList>) -> WalkPosition {
        let level = |(path, next, waiting): LevelList| Level {
            path: PathBuf::from(OsString::from_vec(path)),
            next,
            waiting: waiting.into_iter().map(OsString::from_vec).collect(),
        };
        WalkPosition { levels: lists.into_iter().map(level).collect() }
    }
}

pub(super) struct Walker<'a> {
    root: &'a WalkRoot,
    levels: Vec<Level>,
    /// The error of the root, if it cannot be read.
    pub(super) root_error: Option<io::Error>,
}

impl Walker<'_> {
    pub(super) fn new(root: &WalkRoot, from: WalkPosition) -> Walker<'_> {
        Walker { root, levels: from.levels, root_error: None }
    }

    /// Returns the position after the last part; `None` at the end.
    pub(super) fn position(&self) -> Option<WalkPosition> {
        (!self.levels.is_empty()).then(|| WalkPosition { levels: self.levels.clone() })
    }

    /// Returns the next part with files. Directories that cannot be read are left out.
    pub(super) fn next_part(&mut self, mut left_out: impl FnMut(LeftOut<'_>)) -> Option<Part> {
        loop {
            let depth = self.levels.len();
            let level = self.levels.last_mut()?;
            if let Some(name) = level.waiting.pop() {
                let path = level.path.join(name);
                self.levels.push(Level { path, next: Some(0), waiting: Vec::new() });
                continue;
            }
            let Some(offset) = level.next else {
                self.levels.pop();
                continue;
            };
            let max = if depth > DEEP { ENTRIES_MAX_DEEP } else { ENTRIES_MAX };
            let path = self.root.path.join(&level.path);
            match read(self.root, level, offset, max, |name, error| {
                left_out((&path.join(name), error));
            }) {
                Ok(Some((directory, names))) => return Some(Part { directory, path, names }),
                Ok(None) => {}
                Err(error) => {
                    level.next = None;
                    if depth == 1 {
                        self.root_error = Some(error);
                    } else {
                        left_out((&path, &error));
                    }
                }
            }
        }
    }
}

/// Reads a part of a directory from an offset on, and returns its files, if it has some.
fn read(
    root: &WalkRoot,
    level: &mut Level,
    offset: u64,
    max: usize,
    mut left_out: impl FnMut(&OsStr, &io::Error),
) -> io::Result<Option<(OwnedFd, Vec<OsString>)>> {
    let name = if level.path.as_os_str().is_empty() { Path::new(".") } else { &level.path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat2(&root.file, name, flags, Mode::empty(), INSIDE)?;
    seek(&directory, SeekFrom::Start(offset))?;
    let (mut files, mut buffer) = (Vec::new(), vec![MaybeUninit::uninit(); BUFFER_BYTES]);
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut read = 0;
    level.next = loop {
        let Some(entry) = entries.next() else { break None };
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        read += 1;
        let is_full = read >= max;
        let next = entry.next_entry_cookie();
        if name != "." && name != ".." {
            let kind = match entry.file_type() {
                FileType::Unknown => statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map(|it| FileType::from_raw_mode(it.st_mode)),
                kind => Ok(kind),
            };
            match kind {
                Ok(FileType::Directory) => level.waiting.push(name.to_owned()),
                Ok(FileType::RegularFile) => files.push((entry.ino(), name.to_owned())),
                Ok(_) => {}
                Err(error) => left_out(name, &error.into()),
            }
        }
        if is_full {
            break Some(next);
        }
    };
    level.waiting.reverse();
    files.sort_by_key(|file| file.0);
    let names: Vec<OsString> = files.into_iter().map(|file| file.1).collect();
    Ok((!names.is_empty()).then_some((directory, names)))
}
