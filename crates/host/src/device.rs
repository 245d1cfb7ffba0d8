//! Device numbers, as the kernel encodes them: the major number above 20 bits of the minor number.

use rustix::fs::{major, minor};
use std::path::PathBuf;

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
}
