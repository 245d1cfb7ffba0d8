//! Mount that holds a path: /proc/self/mountinfo (proc(5)).

use crate::{device, proc};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that the kernel itself serves, from memory or a block device.
const LOCAL: [&str; 24] = [
    "bcachefs",
    "btrfs",
    "devtmpfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "msdos",
    "nilfs2",
    "ntfs3",
    "overlay",
    "ramfs",
    "reiserfs",
    "squashfs",
    "tmpfs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// File systems for data on block devices.
const ON_DISKS: [&str; 9] =
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "xfs"];

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// ID of the mount, see `STATX_MNT_ID`.
    pub(crate) id: u64,
    /// Mount point.
    pub point: PathBuf,
    /// Type, such as `ext4` or `fuse.bindfs`.
    pub fs_type: String,
    /// Mounted device, or the source name of the file system.
    pub source: String,
    /// Options of this mount, such as `rw,relatime`.
    pub options: String,
    /// Options of the file system that differ from its defaults.
    pub fs_options: String,
    /// Device number as the kernel holds it, see [`crate::device::encode`]. The major number is 0
    /// where no block device exists.
    pub(crate) device: u32,
}

impl Mount {
    /// Returns the mount that holds a path; the path must exist.
    ///
    /// # Errors
    /// The path cannot be resolved, or procfs is not readable.
    pub fn of(path: &Path) -> io::Result<Mount> {
        let path = path.canonicalize()?;
        deepest_of(&read(Path::new("/proc"))?, &path).cloned().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no mount in mountinfo holds it")
        })
    }

    /// Returns the major and minor number of its device; major 0 where no block device exists.
    #[must_use]
    pub fn device_number(&self) -> (u32, u32) {
        device::decode(self.device)
    }

    /// Returns the length of its block device; `None` if it is on none, or on several.
    #[must_use]
    pub fn device_bytes(&self) -> Option<u64> {
        let sectors: u64 = proc::read(device::in_sysfs(self.device).join("size"))?.parse().ok()?;
        Some(sectors.saturating_mul(512))
    }

    /// Returns true if the file system keeps its files in memory, so that their pages cannot be
    /// dropped.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.fs_type.as_str(), "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs")
    }

    /// Returns true if a user-space program serves the file system. Such a file system has a cache
    /// below the page cache that Larder cannot inspect, and may drop pages at each open.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.fs_type == "fuse" || self.fs_type == "fuseblk" || self.fs_type.starts_with("fuse.")
    }

    /// Returns true if no program of another user and no other machine serves the file system, so
    /// that an access to it does not wait for one.
    pub(crate) fn is_local(&self) -> bool {
        let own_user = rustix::process::geteuid().as_raw().to_string();
        let is_own = |option: &str| option.strip_prefix("user_id=") == Some(&*own_user);
        LOCAL.contains(&self.fs_type.as_str())
            || (self.is_fuse() && self.fs_options.split(',').any(is_own))
    }

    /// Returns all effective options where the file system reports them (ext4 does), else those
    /// that differ from its defaults; sorted, separated by commas.
    #[must_use]
    pub fn all_fs_options(&self) -> String {
        let device = Path::new(&self.source).file_name().unwrap_or_default();
        let path = Path::new("/proc/fs").join(&self.fs_type).join(device).join("options");
        let options_file = if device.is_empty() { None } else { proc::read(path) };
        let mut options: Vec<&str> = match &options_file {
            Some(text) => text.lines().map(str::trim).collect(),
            None => self.fs_options.split(',').collect(),
        };
        options.sort_unstable();
        options.join(",")
    }
}

/// Reads the table of a procfs.
fn read(proc_root: &Path) -> io::Result<Vec<Mount>> {
    let table = std::fs::read(proc_root.join("self/mountinfo"))?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// Returns the mount that holds a path without symbolic links.
pub(crate) fn deepest_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let candidates = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // The last mount over the deepest mount point hides the earlier ones.
    candidates.max_by_key(|mount| mount.point.components().count())
}

/// Returns the mount that holds a path without symbolic links, without access to the path.
pub(crate) fn holding(path: &Path) -> Option<Mount> {
    deepest_of(&all(), path).cloned()
}

/// Returns all mounts in the kernel's order: a covering mount comes after the covered one.
pub(crate) fn all() -> Vec<Mount> {
    of_root(Path::new("/proc"))
}

/// Returns all mounts in the table of a procfs; none if it is missing.
pub(crate) fn of_root(proc_root: &Path) -> Vec<Mount> {
    read(proc_root).unwrap_or_default()
}

/// Returns the first mount of a device.
pub(crate) fn of_device(device: u32) -> Option<Mount> {
    all().into_iter().find(|mount| mount.device == device)
}

/// Returns the first mount of the device with this major and minor number.
#[must_use]
pub fn of_number((major, minor): (u32, u32)) -> Option<Mount> {
    of_device(device::encode(major, minor))
}

/// Returns the mount that holds a path without symbolic links, which is not accessed.
#[must_use]
pub fn of_path(path: &Path) -> Option<Mount> {
    holding(path)
}

/// Returns a writable mount of each file system that keeps files on block devices of this machine.
#[must_use]
pub fn writable() -> Vec<Mount> {
    let mut found: Vec<Mount> = Vec::new();
    for mount in all() {
        let is_writable = mount.options.split(',').any(|option| option == "rw");
        let is_first = found.iter().all(|it| it.device != mount.device);
        if is_writable && is_first && ON_DISKS.contains(&mount.fs_type.as_str()) {
            found.push(mount);
        }
    }
    found
}

/// Returns the mount points at and below a directory, in the order in which to unmount them.
pub(crate) fn mount_points_below(directory: &Path) -> Vec<PathBuf> {
    let points = all().into_iter().map(|mount| mount.point);
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(directory)).collect();
    points.reverse();
    points
}

/// Returns the mount points of a device, by the source name of the mounts.
pub(crate) fn mount_points_of(device: &Path) -> Vec<String> {
    let mounts = all().into_iter().filter(|mount| Path::new(&mount.source) == device);
    mounts.map(|mount| mount.point.display().to_string()).collect()
}

/// Parses a line of mountinfo: `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw`.
/// Mount points may have any bytes.
fn parse(line: &[u8]) -> Option<Mount> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = line.split(|&byte| byte == b' ');
    let id = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let device = device::parse_number(str::from_utf8(words.nth(1)?).ok()?)?;
    let point = words.nth(1)?;
    let options = words.next()?;
    let mut fs = words.skip_while(|word| *word != b"-").skip(1);
    Some(Mount {
        id,
        point: unescaped_path(point),
        options: text(options),
        fs_type: text(fs.next()?),
        source: text(&unescape(fs.next()?)),
        fs_options: text(fs.next()?),
        device,
    })
}

/// Returns a path with octal escapes, as mountinfo and exports(5) have it.
pub(crate) fn unescaped_path(word: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(word)).into()
}

/// Decodes the octal escapes of mountinfo: the kernel writes space, tab, newline, backslash and `#`
/// as an octal number after a backslash.
fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((&byte, after)) = rest.split_first() {
        let code = match rest {
            [b'\\', digits @ ..] => digits.first_chunk::<3>(),
            _ => None,
        };
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 8).ok());
        plain.push(code.unwrap_or(byte));
        rest = if code.is_some() { &rest[4..] } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_taken_apart() {
        let line = b"36 35 98:3 /mnt1 /mnt\\0402 rw,noatime shared:1 master:2 - ext3 /dev/root \
                     rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt 2"));
        assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert_eq!((mount.options.as_str(), mount.device), ("rw,noatime", device::encode(98, 3)));
        assert_eq!(mount.id, 36);
        assert_eq!(mount.fs_options, "rw,errors=continue");
        assert!(parse(b"36 35 98 /mnt1").is_none() && parse(b"").is_none());
        let odd = parse(b"36 35 98:3 / /m\xff\\134040\\ rw - ext3 /dev/root rw").unwrap();
        assert_eq!(odd.point.as_os_str().as_encoded_bytes(), b"/m\xff\\040\\");
    }

    #[test]
    fn the_deepest_mount_is_the_one() {
        assert_eq!(Mount::of(Path::new("/proc/self/status")).unwrap().fs_type, "proc");
        assert_eq!(Mount::of(Path::new("/")).unwrap().point, Path::new("/"));
        assert!(Mount::of(Path::new("/no/such/path")).is_err());
        let below_proc = mount_points_below(Path::new("/proc"));
        assert_eq!(below_proc.last().map(PathBuf::as_path), Some(Path::new("/proc")));
    }
}
