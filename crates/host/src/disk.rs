//! The disk that holds a path.
//!
//! A disk is a whole block device; a partition maps to its disk. For stacked devices (dm, md, loop)
//! it is the device that the file system is on, since that device sees all I/O of the file system.

use crate::mounts::Mount;
use crate::proc;
use rustix::fs::{major, minor};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A whole block device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disk {
    /// Name in sysfs, such as `sda`.
    pub name: String,
}

impl Disk {
    /// Returns the disk of the file system that holds a path, or of the path itself if it is a
    /// device. Returns `None` for a file system without a local block device (tmpfs, NFS, FUSE).
    ///
    /// # Errors
    /// The path does not exist.
    pub fn of(path: &Path) -> io::Result<Option<Disk>> {
        let found = std::fs::metadata(path)?;
        if let Some(disk) = Disk::from_device_number(device_number(&found)) {
            return Ok(Some(disk));
        }
        // btrfs and others use anonymous device numbers; the mount source names the device.
        let source = Mount::of(path).ok().map(|mount| PathBuf::from(mount.source));
        let source = source.filter(|source| source.starts_with("/dev"));
        let metadata = source.and_then(|source| std::fs::metadata(source).ok());
        Ok(metadata
            .filter(|it| it.file_type().is_block_device())
            .and_then(|it| Disk::from_device_number(it.rdev())))
    }

    /// Returns the disk of a device number, or `None` if it is not a block device.
    fn from_device_number(device: u64) -> Option<Disk> {
        let directory = std::fs::canonicalize(in_sysfs(from_stat(device))).ok()?;
        let whole =
            if directory.join("partition").exists() { directory.parent()? } else { &directory };
        Some(Disk { name: whole.file_name()?.to_str()?.to_owned() })
    }

    pub(crate) fn directory(&self) -> PathBuf {
        Path::new("/sys/block").join(&self.name)
    }

    /// Returns a setting from /sys/block/NAME/queue, or `None` if the disk does not have it.
    #[must_use]
    pub fn queue(&self, setting: &str) -> Option<String> {
        let text = proc::read(self.directory().join("queue").join(setting))?;
        Some(proc::selected(&text).to_owned())
    }
}

/// Returns the kernel-internal encoding of a device number.
pub(crate) fn encode(major: u32, minor: u32) -> u32 {
    major << 20 | (minor & 0xf_ffff)
}

/// Returns the major and minor number of a device.
pub(crate) fn decode(device: u32) -> (u32, u32) {
    (device >> 20, device & 0xf_ffff)
}

/// Converts a device number of stat(2).
pub(crate) fn from_stat(device: u64) -> u32 {
    encode(major(device), minor(device))
}

/// Parses a device number such as `254:1`.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(encode(major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the directory of a block device in sysfs.
pub(crate) fn in_sysfs(device: u32) -> PathBuf {
    let (major, minor) = decode(device);
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn device_number(found: &Metadata) -> u64 {
    if found.file_type().is_block_device() { found.rdev() } else { found.dev() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_the_kernel() {
        assert_eq!(encode(7, 1), 0x0070_0001);
        assert_eq!(decode(0x0070_0001), (7, 1));
        assert_eq!(parse_number("254:17"), Some(encode(254, 17)));
        assert_eq!(parse_number("btrfs-1"), None);
    }

    #[test]
    fn the_disk_of_a_path_is_one_that_sysfs_has() {
        // A root file system on an overlay or on the network has no disk, which is a valid result.
        if let Some(disk) = Disk::of(Path::new("/")).unwrap() {
            assert!(Path::new("/sys/block").join(&disk.name).exists(), "{disk:?}");
            assert!(disk.queue("logical_block_size").is_some(), "{disk:?}");
            assert_eq!(disk.queue("no_such_setting"), None);
        } else {
            larder_testing::skip("the root file system is not on a disk");
        }
        assert_eq!(Disk::of(Path::new("/proc")).unwrap(), None);
        assert!(Disk::of(Path::new("/no/such/path")).is_err());
    }
}
