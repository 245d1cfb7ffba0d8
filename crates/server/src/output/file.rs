//! Files that a command writes: none may be a file that the same command reads, or writes for
//! another option.

use anyhow::{Result, bail};
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Identity of a file, independent of its path.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Identity {
    /// Device and inode of a regular file.
    Inode(u64, u64),
    /// Device number of a block device, which can have several device nodes.
    BlockDevice(u64),
    /// Path of a file that does not exist yet.
    New(PathBuf),
}

impl Identity {
    /// Returns `None` for terminals, pipes, sockets and directories, which no output replaces.
    fn of(path: &Path) -> Option<Self> {
        let of_metadata = |found: Metadata| match found.file_type() {
            kind if kind.is_file() => Some(Identity::Inode(found.dev(), found.ino())),
            kind if kind.is_block_device() => Some(Identity::BlockDevice(found.rdev())),
            _ => None,
        };
        path.metadata().map_or_else(|_| real_path_of_new(path).map(Identity::New), of_metadata)
    }
}

/// Returns the path of a file that need not exist, with its directory free of symbolic links.
fn real_path_of_new(path: &Path) -> Option<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(directory.join(path.file_name()?))
}

/// Returns the path that a path leads to, free of symbolic links. Only its directory need exist.
pub(crate) fn real_path(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| real_path_of_new(path))
}

/// Files that one command uses, each for one purpose.
#[derive(Debug)]
pub struct DistinctFiles {
    /// The path of each file, and true if the command reads it.
    names: HashMap<Identity, (PathBuf, bool)>,
}

impl DistinctFiles {
    /// Returns the files that a command reads.
    pub fn of_inputs(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let files = files.into_iter().filter_map(|file| Some((Identity::of(&file)?, (file, true))));
        DistinctFiles { names: files.collect() }
    }

    /// Adds a file that the command writes.
    ///
    /// # Errors
    /// The command reads the file, or writes it already.
    pub fn add_output(&mut self, to: &Path) -> Result<()> {
        let Some(identity) = Identity::of(to) else { return Ok(()) };
        match self.names.insert(identity, (to.to_owned(), false)) {
            Some((file, true)) => {
                bail!("write {}: it is the file {} that is read", to.display(), file.display())
            }
            Some((_, false)) => {
                bail!("write {}: two outputs have this name; give each its own", to.display())
            }
            None => Ok(()),
        }
    }
}
