//! The table of mounted file systems, `/proc/self/mountinfo` (proc(5)).

mod aliases;
mod restrictions;
mod watch;

pub(crate) use aliases::conflicting_alias;
pub use restrictions::MountRestrictions;
pub(crate) use watch::MountWatch;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

pub(crate) const PATH: &str = "/proc/self/mountinfo";

/// File system type of Larder mounts.
pub(crate) const LARDER: &str = "fuse.larder";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    pub(crate) id: u64,
    /// Device number of the file system, as in stat(2); major 0 if it has no device.
    pub(crate) filesystem: u64,
    /// Directory of the file system that is mounted at the mountpoint.
    pub(crate) root: PathBuf,
    pub(crate) at: PathBuf,
    /// Restrictions of the mount or of its file system.
    pub(crate) restrictions: MountRestrictions,
    /// True if the mount shows files with other owners than the file system (idmapped).
    pub(crate) is_idmapped: bool,
    pub(crate) kind: Vec<u8>,
    /// Device, or another source that the file system names.
    pub(crate) source: PathBuf,
    pub(crate) options: Vec<u8>,
}

/// The mount table. It stays open: a later read must not need a new descriptor, since another user
/// may have used all of them.
static TABLE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Returns all mounts, in the order of the kernel: a mount that covers another comes after it.
///
/// # Errors
/// If the kernel does not show them. The caller must not treat that as no mounts: it would miss
/// restrictions of a mount and layers of data.
pub(crate) fn read() -> Result<Vec<MountLine>, Errno> {
    const STEP: usize = 64 << 10;
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if table.is_none() {
        *table = Some(rustix::fs::open(PATH, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    }
    let table = table.as_ref().expect("it was opened");
    let (mut bytes, mut len) = (Vec::new(), 0);
    loop {
        bytes.resize(len + STEP, 0);
        match rustix::io::pread(table, &mut bytes[len..], len as u64) {
            Ok(0) => return Ok(parse_all(&bytes[..len])),
            Ok(more) => len += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the ID of the mount through which a descriptor was opened. It takes no other descriptor
/// if the kernel supports statx(2) with mount IDs (Linux 5.8).
pub(crate) fn mount_id(descriptor: impl AsFd) -> Option<u64> {
    let descriptor = descriptor.as_fd();
    if let Some((id, _)) = mount_and_device(descriptor) {
        return Some(id);
    }
    let fdinfo = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let fdinfo = std::fs::read_to_string(fdinfo).ok()?;
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Returns the ID of the mount that `name` in `directory` leads to; a symbolic link is not
/// followed. The call sends no request to a FUSE server, and opens a descriptor only if another
/// user serves the mount.
pub(crate) fn mount_id_at(directory: impl AsFd, name: &OsStr) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = mount_by_statx(directory.as_fd(), name, flags).map(|(id, _)| id);
    found.or_else(|| {
        // The FUSE mount of another user refuses statx(2).
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
        mount_id(opened)
    })
}

/// Returns the ID of the mount of a descriptor and the device number of its file system, as in the
/// table.
pub(crate) fn mount_and_device(descriptor: impl AsFd) -> Option<(u64, u64)> {
    mount_by_statx(descriptor.as_fd(), OsStr::new(""), AtFlags::EMPTY_PATH)
}

/// Returns the ID of the mount that `name` in `directory` leads to, or of the mount of `directory`
/// itself if `name` is empty. Unlike the IDs of the table, the kernel never reuses it. `None`
/// before Linux 6.8.
pub(crate) fn unique_mount_id(directory: impl AsFd, name: &OsStr) -> Option<u64> {
    // `STATX_MNT_ID_UNIQUE` of include/uapi/linux/stat.h.
    let unique_id = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(directory, name, flags | AtFlags::EMPTY_PATH, unique_id).ok()?;
    (found.stx_mask & unique_id.bits() != 0).then_some(found.stx_mnt_id)
}

fn mount_by_statx(directory: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Option<(u64, u64)> {
    let flags = flags | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::MNT_ID).ok()?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let has_id = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    has_id.then_some((found.stx_mnt_id, device))
}

pub(crate) fn parse_all(table: &[u8]) -> Vec<MountLine> {
    table.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// Parses `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw`.
fn parse(line: &[u8]) -> Option<MountLine> {
    let mut words = line.split(|&byte| byte == b' ');
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    let id = number(words.next()?)?;
    let filesystem = device_number(std::str::from_utf8(words.nth(1)?).ok()?)?;
    let path = |word| PathBuf::from(OsString::from_vec(unescape(word)));
    let (root, at) = (path(words.next()?), path(words.next()?));
    let mount_options = words.next()?;
    let is_idmapped = mount_options.split(|&byte| byte == b',').any(|option| option == b"idmapped");
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (words.next()?.to_vec(), path(words.next()?));
    let options = words.next().unwrap_or_default().to_vec();
    let restrictions =
        MountRestrictions::listed(mount_options) | MountRestrictions::listed(&options);
    Some(MountLine { id, filesystem, root, at, restrictions, is_idmapped, kind, source, options })
}

impl MountLine {
    /// Returns true if the file system has this type.
    pub(crate) fn is_of(&self, kind: &str) -> bool {
        self.kind == kind.as_bytes()
    }

    /// Returns the user that serves a FUSE file system, if that is neither root nor the user of
    /// this process.
    pub(crate) fn other_fuse_user(&self) -> Option<u32> {
        let kind = self.kind.split(|&byte| byte == b'.').next();
        if !matches!(kind, Some(b"fuse" | b"fuseblk")) {
            return None;
        }
        let mut options = self.options.split(|&byte| byte == b',');
        let user = options.find_map(|option| option.strip_prefix(b"user_id="))?;
        let user = std::str::from_utf8(user).ok()?.parse().ok()?;
        (user != 0 && user != rustix::process::getuid().as_raw()).then_some(user)
    }

    /// Returns true if nothing can be written through the mount.
    pub(crate) fn is_read_only(&self) -> bool {
        self.restrictions.contains(MountRestrictions::READ_ONLY)
    }
}

/// Parses a device number that sysfs and mountinfo write as `MAJOR:MINOR`.
pub(crate) fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Decodes a path of the table: spaces and similar bytes are a backslash and three octal digits.
pub(crate) fn unescape(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, more @ ..] = rest {
        rest = more;
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) =
            (first, more)
        {
            bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_line_is_taken_apart() {
        let line =
            b"36 35 98:3 /mnt1 /mnt\\0402 rw,noatime shared:1 master:2 - fuse.larder /a\\011b rw";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.filesystem), (36, rustix::fs::makedev(98, 3)));
        assert_eq!(
            (mount.root.as_path(), mount.at.as_path()),
            (Path::new("/mnt1"), Path::new("/mnt 2"))
        );
        assert_eq!(
            (mount.kind.as_slice(), mount.source.as_path()),
            (&b"fuse.larder"[..], Path::new("/a\tb"))
        );
        assert!(!mount.is_read_only());
        assert!(parse(b"1 2 0:1 / /x rw - ext4 /dev/a ro,errors=continue").unwrap().is_read_only());
        assert!(parse(b"1 2 0:1 / /x ro,noatime - ext4 /dev/a rw").unwrap().is_read_only());
        assert!(parse(b"36 35 98 /mnt1").is_none() && parse(b"").is_none());
        assert!(read().unwrap().iter().any(|mount| mount.at == Path::new("/")));
    }

    #[test]
    fn the_user_of_a_fuse_mount_is_read() {
        let user_of = |kind: &str, options: &str| {
            let line = format!("1 2 0:1 / /x rw,nosuid - {kind} /a,user_id=1 {options}");
            parse(line.as_bytes()).unwrap().other_fuse_user()
        };
        let own_user = format!("rw,user_id={}", rustix::process::getuid().as_raw());
        for kind in ["fuse", "fuse.sshfs", "fuseblk"] {
            assert_eq!(user_of(kind, "rw,user_id=4294967294,group_id=0"), Some(4_294_967_294));
            assert_eq!(user_of(kind, "rw,user_id=0,group_id=1000,allow_other"), None);
            assert_eq!(user_of(kind, &own_user), None);
        }
        assert_eq!(user_of("fusectl", "rw,user_id=4294967294"), None);
    }

    #[test]
    fn listed_paths_are_read_as_they_were_meant() {
        assert_eq!(unescape(b"/a\\040b\\134c\\011"), b"/a b\\c\t");
        assert_eq!(unescape(b"/plain"), b"/plain");
        assert_eq!(unescape(b"/end\\04"), b"/end\\04");
    }
}
