//! Devices of file systems, from mountinfo and sysfs.

use super::event::{FileSystemId, Key};
use crate::mounts;
use crate::proc;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the kernel-internal encoding of a device number.
pub(super) fn encode(major: u32, minor: u32) -> u32 {
    major << 20 | (minor & 0xf_ffff)
}

/// Returns the major and minor number of a device.
#[must_use]
pub(crate) fn decode(dev: u32) -> (u32, u32) {
    (dev >> 20, dev & 0xf_ffff)
}

/// Returns true if a file may be on a device. On btrfs stat(2) reports a different anonymous number
/// for each subvolume, so two anonymous numbers count as a match.
pub(super) fn may_be_on(dev: u32, found: &std::fs::Metadata) -> bool {
    let file_dev = encode(rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    file_dev == dev || (file_dev >> 20 == 0 && dev >> 20 == 0)
}

fn parse(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(encode(major.parse().ok()?, minor.parse().ok()?))
}

fn in_sysfs(dev: u32) -> std::path::PathBuf {
    let (major, minor) = decode(dev);
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

/// Returns true if a device is below a stacked device (md, dm), whose requests it receives a second
/// time.
pub(super) fn is_lower_device(dev: u32) -> bool {
    let directory = in_sysfs(dev);
    let holders = std::fs::read_dir(directory.join("holders"));
    holders.is_ok_and(|mut holders| holders.next().is_some())
}

/// Returns the disk of a partition; any other device is returned unchanged.
fn whole_device(dev: u32) -> u32 {
    let directory = in_sysfs(dev);
    if !directory.join("partition").exists() {
        return dev;
    }
    proc::read(directory.join("../dev")).as_deref().and_then(parse).unwrap_or(dev)
}

/// Returns true if a file is a block device: its file system is not mounted, and its inode number
/// is the number of an existing device.
pub(super) fn is_block_device(key: Key) -> bool {
    let Ok(dev) = u32::try_from(key.ino) else { return false };
    let mounted = mounts::all().into_iter().any(|it| encode(it.device.0, it.device.1) == key.dev);
    dev >> 20 != 0 && !mounted && in_sysfs(dev).exists()
}

/// Returns the device numbers that files of a file system may have; empty if unknown.
pub(super) fn devices(file_system: &FileSystemId) -> Vec<u32> {
    match file_system {
        FileSystemId::Device(dev) => vec![*dev],
        FileSystemId::Btrfs(id) => btrfs(&uuid(id)),
        FileSystemId::Backing(name) => {
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            backing(&String::from_utf8_lossy(&name[..end]))
        }
    }
}

fn uuid(id: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in id.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(text, "{dash}{byte:02x}").expect("a text takes everything");
    }
    text
}

/// Returns the device numbers of a btrfs. mountinfo reports them; stat(2) reports others.
fn btrfs(uuid: &str) -> Vec<u32> {
    let directory = Path::new("/sys/fs/btrfs").join(uuid).join("devices");
    let Ok(devices) = std::fs::read_dir(directory) else { return Vec::new() };
    let names: Vec<_> = devices.flatten().map(|device| device.file_name()).collect();
    let all = mounts::all().into_iter().filter(|mount| mount.fs_type == "btrfs");
    let matching = all.filter(|mount| {
        Path::new(&mount.source).file_name().is_some_and(|name| names.iter().any(|it| it == name))
    });
    let mut found: Vec<u32> = matching.map(|it| encode(it.device.0, it.device.1)).collect();
    found.dedup();
    found
}

fn backing(name: &str) -> Vec<u32> {
    let Some(dev) = parse(name) else {
        let Ok(all) = std::fs::read_dir("/sys/fs/btrfs") else { return Vec::new() };
        let matching = all.flatten().filter(|entry| {
            std::fs::read_link(entry.path().join("bdi"))
                .is_ok_and(|link| link.file_name().is_some_and(|it| it == name))
        });
        return matching.flat_map(|entry| btrfs(&entry.file_name().to_string_lossy())).collect();
    };
    // The backing device of a disk serves all its partitions.
    let mounted = mounts::all().into_iter().map(|it| encode(it.device.0, it.device.1));
    let mut found: Vec<u32> = mounted.filter(|&it| it == dev || whole_device(it) == dev).collect();
    found.push(dev);
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices_are_those_of_the_kernel() {
        assert_eq!(encode(7, 1), 0x0070_0001);
        assert_eq!(decode(0x0070_0001), (7, 1));
        assert_eq!(parse("254:17"), Some(encode(254, 17)));
        assert_eq!(parse("btrfs-1"), None);
        let id = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(uuid(&id), "12345678-9abc-def0-0102-030405060708");
    }

    #[test]
    fn the_device_of_the_root_is_found_by_its_name() {
        let root = mounts::Mount::of(Path::new("/")).unwrap().device;
        let dev = encode(root.0, root.1);
        let name = format!("{}:{}", decode(whole_device(dev)).0, decode(whole_device(dev)).1);
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
