//! Files by the numbers that events name them by: opened through their file system.
//!
//! ext4, XFS and btrfs open a file by its inode, if one is root; so its path and its end can be
//! asked for without anybody who has it open. Invariant: what is opened is the file that has the
//! number now, and never one that is only like it.

use super::event::Key;
use super::fast::Map;
use super::homes;
use super::names::without_deleted;
use crate::mounts::{self, Mount};
use crate::syscall;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// File systems that open a file by its number. Others are not even touched: one whose server does
/// not answer would hold us for ever.
const KINDS: [&str; 5] = ["ext2", "ext3", "ext4", "btrfs", "xfs"];
/// The top of a btrfs; files of other subvolumes are not found.
const BTRFS_TOP: u64 = 5;

/// Where each file system is mounted, by its number. None of them is held: it may be unmounted
/// while it is watched.
#[derive(Debug, Default)]
pub(crate) struct ByNumber(Map<u32, Option<Mount>>);

impl ByNumber {
    /// File systems may have come and gone.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// The path of a file.
    pub(crate) fn path(&mut self, key: Key) -> Option<PathBuf> {
        let (mount, file) = self.open(key)?;
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        // A file whose directory is not in memory has no path that the kernel could tell.
        (path.starts_with(&mount.point) && path != mount.point).then(|| without_deleted(path))
    }

    /// Bytes of a file.
    pub(crate) fn bytes(&mut self, key: Key) -> Option<u64> {
        let (_, file) = self.open(key)?;
        u64::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()
    }

    fn open(&mut self, key: Key) -> Option<(&Mount, OwnedFd)> {
        let is_it = |mount: &Mount| homes::number(mount.device.0, mount.device.1) == key.dev;
        let home = self.0.entry(key.dev).or_insert_with(|| {
            let mut all = mounts::all().into_iter();
            all.find(|mount| is_it(mount) && KINDS.contains(&mount.fs_type.as_str()))
        });
        let mount = home.as_ref()?;
        let root = File::open(&mount.point).ok()?;
        // It may have been unmounted, and the point be a directory of another one.
        if !homes::may_be_on(key.dev, &root.metadata().ok()?) {
            return None;
        }
        let (kind, handle) = handle(&mount.fs_type, &root, key.ino)?;
        let file = syscall::open_by_handle(&root, kind, &handle).ok()?;
        Some((mount, file))
    }
}

/// What `name_to_handle_at(2)` would give. ext4 and btrfs take a generation of 0 as "any"; XFS
/// tells that of an inode.
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
        if !KINDS.contains(&kind.as_str()) {
            skip(format_args!("files on {kind} cannot be found by inode number"));
            return;
        }
        let file = tempfile::NamedTempFile::new_in(&directory).unwrap();
        file.as_file().set_len(5).unwrap();
        let found = file.as_file().metadata().unwrap();
        let dev = homes::number(rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let key = Key { dev, ino: found.ino() };
        let mut numbers = ByNumber::default();
        // A subvolume of a btrfs has a number of its own.
        let is_top = mounts::all().iter().any(|it| homes::number(it.device.0, it.device.1) == dev);
        if is_top {
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
