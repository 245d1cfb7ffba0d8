//! The disk that holds a path.
//!
//! A disk is a whole block device; a partition maps to its disk. For stacked devices (dm, md, loop)
//! it is the device that the file system is on, since that device sees all I/O of the file system.

use crate::mounts::Mount;
use crate::{device, proc};
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
    /// The path is accessed, which another user can make block; `of_device` accesses none.
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
    fn from_device_number(number: u64) -> Option<Disk> {
        Disk::of_device(device::from_stat(number))
    }

    /// Returns the disk of a device number as the kernel encodes it.
    pub(crate) fn of_device(number: u32) -> Option<Disk> {
        let directory = std::fs::canonicalize(device::in_sysfs(number)).ok()?;
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

fn device_number(found: &Metadata) -> u64 {
    if found.file_type().is_block_device() { found.rdev() } else { found.dev() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
