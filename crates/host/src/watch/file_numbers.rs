//! Files by device and inode number, opened through their file system.
//!
//! ext4, XFS and btrfs let root open a file by its inode number, so the watcher obtains path and
//! size of a file that no process has open. Invariant: the opened file is the one that has the
//! number now, never a different file.

use super::Map;
use super::event::Key;
use super::homes;
use crate::foreign_file::ForeignFile;
use crate::mounts::{self, Mount};
use crate::{proc, syscall};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// File systems that support opening by number. The watcher never accesses others: a network file
/// system without an answering server would block it forever.
const SUPPORTED: [&str; 5] = ["ext2", "ext3", "ext4", "btrfs", "xfs"];
/// Object ID of the btrfs top-level subvolume; files of other subvolumes are not found.
const BTRFS_TOP: u64 = 5;

/// Mount of each file system, by device number. It holds no descriptor, so that a file system can
/// be unmounted during the watch.
#[derive(Debug, Default)]
pub(crate) struct FilesByNumber(Map<u32, Option<Mount>>);

impl FilesByNumber {
    /// Drops the cached mounts, so that later mounts are found.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Returns the path of a file.
    pub(crate) fn path(&mut self, key: Key) -> Option<PathBuf> {
        let (mount, file) = self.open(key)?;
        let path = std::fs::read_link(proc::descriptor(&file)).ok()?;
        // For a file without a cached directory entry the kernel reports no full path.
        let links = ForeignFile::of(&file).ok()?.links;
        (path.starts_with(&mount.point) && path != mount.point).then(|| without_mark(path, links))
    }

    /// Returns the size of a file in bytes.
    pub(crate) fn bytes(&mut self, key: Key) -> Option<u64> {
        let (_, file) = self.open(key)?;
        u64::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()
    }

    fn open(&mut self, key: Key) -> Option<(&Mount, OwnedFd)> {
        let mount = self.0.entry(key.dev).or_insert_with(|| {
            let mut all = mounts::all().into_iter().filter(|mount| mount.device == key.dev);
            all.find(|mount| SUPPORTED.contains(&mount.fs_type.as_str()))
        });
        let mount = mount.as_ref()?;
        let root = File::open(&mount.point).ok()?;
        // After an unmount the mount point may be a directory of another file system.
        if !homes::is_on(key.dev, &ForeignFile::of(&root).ok()?) {
            return None;
        }
        let (kind, handle) = handle(&mount.fs_type, &root, key.ino)?;
        let file = syscall::open_by_handle(&root, kind, &handle).ok()?;
        Some((mount, file))
    }
}

/// Returns the file handle that `name_to_handle_at(2)` would return. ext4 and btrfs accept a
/// generation of 0 as a wildcard; XFS reports the generation of an inode.
#[expect(clippy::host_endian_bytes, reason = "the kernel takes numbers as they lie")]
fn handle(fs_type: &str, root: &File, ino: u64) -> Option<(i32, Vec<u8>)> {
    match fs_type {
        "ext2" | "ext3" | "ext4" => {
            let mut bytes = u32::try_from(ino).ok()?.to_ne_bytes().to_vec();
            bytes.extend(0_u32.to_ne_bytes());
            Some((1, bytes))
        }
        "btrfs" => {
            let mut bytes = ino.to_ne_bytes().to_vec();
            bytes.extend(BTRFS_TOP.to_ne_bytes());
            bytes.extend(0_u32.to_ne_bytes());
            Some((0x4d, bytes))
        }
        "xfs" => {
            let generation = syscall::xfs_generation(root, ino).ok()?;
            let mut bytes = ino.to_ne_bytes().to_vec();
            bytes.extend(generation.to_ne_bytes());
            Some((0x81, bytes))
        }
        _ => None,
    }
}

/// Returns the path of a file with this number of names, without the mark of procfs for a deleted
/// file.
pub(super) fn without_mark(path: PathBuf, links: u32) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    match bytes.strip_suffix(b" (deleted)").filter(|_| links == 0) {
        Some(bytes) => PathBuf::from(OsStr::from_bytes(bytes)),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_testing::{is_root, skip};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_are_found_by_their_numbers_where_their_file_system_can() {
        let directory = std::env::current_dir().unwrap();
        let kind = Mount::of(&directory).unwrap().fs_type;
        if !is_root() {
            return;
        }
        if !SUPPORTED.contains(&kind.as_str()) {
            skip(format_args!("files on {kind} cannot be found by inode number"));
            return;
        }
        let file = tempfile::NamedTempFile::new_in(&directory).unwrap();
        file.as_file().set_len(5).unwrap();
        let found = file.as_file().metadata().unwrap();
        let dev = crate::device::from_stat(found.dev());
        let key = Key { dev, ino: found.ino() };
        let mut numbers = FilesByNumber::default();
        // A btrfs subvolume has its own device number.
        if mounts::of_device(dev).is_some() {
            assert_eq!(
                (numbers.path(key), numbers.bytes(key)),
                (Some(file.path().into()), Some(5))
            );
        } else {
            skip("the source tree is on a subvolume");
        }
        assert_eq!(numbers.bytes(Key { dev, ino: u64::MAX }), None);
        file.close().unwrap();
        assert_eq!((numbers.path(key), numbers.bytes(key)), (None, None));
    }
}
