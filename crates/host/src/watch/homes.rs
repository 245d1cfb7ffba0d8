//! Devices of file systems, from mountinfo and sysfs.

use super::event::{FileSystemId, Key, until_zero};
use crate::foreign_file::ForeignFile;
use crate::mounts::{self, Mount};
use crate::{device, proc};
use std::collections::BTreeSet;
use std::path::Path;

/// Returns true if a file is on a device. On btrfs stat(2) reports a different anonymous number for
/// each subvolume, so that the mount decides.
pub(super) fn is_on(dev: u32, file: &ForeignFile) -> bool {
    let is_btrfs = |mount: Mount| mount.fs_type == "btrfs" && mount.device == dev;
    file.identity.dev == dev || file.mount_here().is_some_and(is_btrfs)
}

/// Returns true if a device is below a stacked device (md, dm), whose requests it receives a second
/// time.
pub(super) fn is_lower_device(dev: u32) -> bool {
    proc::entries(device::in_sysfs(dev).join("holders")).next().is_some()
}

/// Returns the disk of a partition; any other device is returned unchanged.
fn whole_device(dev: u32) -> u32 {
    let directory = device::in_sysfs(dev);
    if !directory.join("partition").exists() {
        return dev;
    }
    let whole = proc::read(directory.join("../dev"));
    whole.as_deref().and_then(device::parse_number).unwrap_or(dev)
}

/// Returns true if a file is a block device: its file system is not mounted, and its inode number
/// is the number of an existing device.
pub(super) fn is_block_device(key: Key) -> bool {
    let Ok(dev) = u32::try_from(key.ino) else { return false };
    dev >> 20 != 0 && mounts::of_device(key.dev).is_none() && device::in_sysfs(dev).exists()
}

/// Returns the device numbers that files of a file system may have; empty if unknown.
pub(super) fn devices(file_system: &FileSystemId) -> Vec<u32> {
    match file_system {
        FileSystemId::Device(dev) => vec![*dev],
        FileSystemId::Btrfs(id) => btrfs(&uuid(id)),
        FileSystemId::Backing(name) => backing(&until_zero(name)),
    }
}

fn uuid(id: &[u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(*id));
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Returns the device numbers of a btrfs. mountinfo reports them; stat(2) reports others.
fn btrfs(uuid: &str) -> Vec<u32> {
    let directory = Path::new("/sys/fs/btrfs").join(uuid).join("devices");
    let names: Vec<String> = proc::names(directory).collect();
    let all = mounts::all().into_iter().filter(|mount| mount.fs_type == "btrfs");
    let matching = all.filter(|mount| {
        Path::new(&mount.source)
            .file_name()
            .is_some_and(|name| names.iter().any(|it| name == &**it))
    });
    let mut found: Vec<u32> = matching.map(|mount| mount.device).collect();
    found.dedup();
    found
}

fn backing(name: &str) -> Vec<u32> {
    let Some(dev) = device::parse_number(name) else {
        let matching = proc::entries("/sys/fs/btrfs").filter(|path| {
            std::fs::read_link(path.join("bdi")).is_ok_and(|link| link.ends_with(name))
        });
        let uuids = matching.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        return uuids.flat_map(|uuid| btrfs(&uuid)).collect();
    };
    // The backing device of a disk serves all its partitions.
    let mounted = mounts::all().into_iter().map(|mount| mount.device);
    let found = mounted.filter(|&it| it == dev || whole_device(it) == dev).chain([dev]);
    found.collect::<BTreeSet<u32>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_named_as_in_sysfs() {
        let id = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(uuid(&id), "12345678-9abc-def0-0102-030405060708");
    }

    #[test]
    fn the_device_of_the_root_is_found_by_its_name() {
        let dev = Mount::of(Path::new("/")).unwrap().device;
        let (major, minor) = device::decode(whole_device(dev));
        let name = format!("{major}:{minor}");
        assert!(devices(&FileSystemId::Backing(padded(&name))).contains(&dev), "{name}");
        assert_eq!(devices(&FileSystemId::Backing(padded("no-such"))), Vec::<u32>::new());
        assert!(!is_block_device(Key { dev, ino: 2 }));
    }

    fn padded(name: &str) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes
    }
}
