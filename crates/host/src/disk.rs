//! The disk that a path lies on.
//!
//! A disk here is a whole block device: partitions are counted with theirs. Of devices made of
//! others (dm, md, loop) it is the one that the file system sits on, since that one sees all I/O of
//! the file system.

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
    /// Its name in sysfs, as `sda`.
    pub name: String,
}

impl Disk {
    /// The disk of a path: of the file system it lies on, or the device that it is itself. Nothing
    /// where no block device of this machine is behind it (tmpfs, NFS, FUSE).
    ///
    /// # Errors
    /// The path is not there.
    pub fn of(path: &Path) -> io::Result<Option<Disk>> {
        let found = std::fs::metadata(path)?;
        if let Some(disk) = Disk::numbered(own_device(&found)) {
            return Ok(Some(disk));
        }
        // btrfs and others have numbers of their own; what is mounted is named.
        let source = Mount::of(path).ok().map(|mount| PathBuf::from(mount.source));
        let source = source.filter(|source| source.starts_with("/dev"));
        let metadata = source.and_then(|source| std::fs::metadata(source).ok());
        Ok(metadata
            .filter(|it| it.file_type().is_block_device())
            .and_then(|it| Disk::numbered(it.rdev())))
    }

    /// The disk of a number of a device, where it is one.
    fn numbered(device: u64) -> Option<Disk> {
        let path = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        let directory = std::fs::canonicalize(path).ok()?;
        let whole =
            if directory.join("partition").exists() { directory.parent()? } else { &directory };
        Some(Disk { name: whole.file_name()?.to_str()?.to_owned() })
    }

    /// The value of one of its settings in /sys/block/NAME/queue; nothing if it has none such.
    #[must_use]
    pub fn queue(&self, setting: &str) -> Option<String> {
        let text =
            proc::read(Path::new("/sys/block").join(&self.name).join("queue").join(setting))?;
        Some(proc::chosen(&text).to_owned())
    }
}

fn own_device(found: &Metadata) -> u64 {
    if found.file_type().is_block_device() { found.rdev() } else { found.dev() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_path_is_one_that_sysfs_has() {
        // Where the root lies on an overlay or on the network there is none, which is an answer.
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
