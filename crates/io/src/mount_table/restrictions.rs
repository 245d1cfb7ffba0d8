//! Restrictions of a mount: `nosuid`, `nodev`, `noexec`, `nosymfollow` and `ro`.

use super::{MountLine, mount_id};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::fmt;
use std::ops::BitOr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// `ST_NOSYMFOLLOW` of linux/statfs.h.
const STATFS_NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(1 << 13);

/// The restrictions: names in mount(8) and mountinfo, and flags of statvfs(3).
const NAMES: [(MountAttrFlags, &str, StatVfsMountFlags); 5] = [
    (MountAttrFlags::MOUNT_ATTR_NOSUID, "nosuid", StatVfsMountFlags::NOSUID),
    (MountAttrFlags::MOUNT_ATTR_NODEV, "nodev", StatVfsMountFlags::NODEV),
    (MountAttrFlags::MOUNT_ATTR_NOEXEC, "noexec", StatVfsMountFlags::NOEXEC),
    (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, "nosymfollow", STATFS_NOSYMFOLLOW),
    (MountAttrFlags::MOUNT_ATTR_RDONLY, "ro", StatVfsMountFlags::RDONLY),
];

/// Restrictions of a mount, of `nosuid`, `nodev`, `noexec`, `nosymfollow` and `ro` (mount(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountRestrictions(MountAttrFlags);

impl Default for MountRestrictions {
    fn default() -> Self {
        MountRestrictions::NONE
    }
}

impl BitOr for MountRestrictions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        MountRestrictions(self.0 | other.0)
    }
}

impl fmt::Display for MountRestrictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.into_iter().filter(|(flag, ..)| self.0.contains(*flag));
        f.write_str(&names.map(|(_, name, _)| name).collect::<Vec<_>>().join(","))
    }
}

impl MountRestrictions {
    /// No restriction.
    pub const NONE: Self = MountRestrictions(MountAttrFlags::empty());
    /// The restrictions of a mount by an unprivileged user.
    pub(crate) const UNTRUSTED: Self = MountRestrictions(
        MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV),
    );
    /// `ro`.
    pub const READ_ONLY: Self = MountRestrictions(MountAttrFlags::MOUNT_ATTR_RDONLY);

    /// Returns the restriction with this name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|(_, other, _)| *other == name).map(|(flag, ..)| Self(flag))
    }

    /// Returns the restrictions of the mount through which `descriptor` was opened.
    ///
    /// # Errors
    /// If fstatvfs(3) fails; it is used for a mount that was unmounted lazily and is not in the
    /// table.
    pub(crate) fn of(table: &[MountLine], descriptor: impl AsFd) -> Result<Self, Errno> {
        if let Some(listed) = Self::in_table(table, descriptor.as_fd()) {
            return Ok(listed);
        }
        let flags = rustix::fs::fstatvfs(descriptor)?.f_flag;
        let set = NAMES.into_iter().filter(|(_, _, flag)| flags.contains(*flag));
        Ok(MountRestrictions(set.map(|(flag, ..)| flag).collect()))
    }

    /// Returns the restrictions of a mount that is listed in `table`; none for other mounts.
    pub(crate) fn in_table(table: &[MountLine], descriptor: BorrowedFd<'_>) -> Option<Self> {
        let id = mount_id(descriptor)?;
        table.iter().find(|mount| mount.id == id).map(|mount| mount.restrictions)
    }

    /// Returns the restrictions of all mounts inside `directory` and the mountpoint of the first
    /// restricted one. `ro` is left out, since such a mount enforces it itself. FUSE mounts of
    /// other users are left out, since lookups in them fail.
    pub(crate) fn inside(table: &[MountLine], directory: &Path) -> (Self, Option<PathBuf>) {
        // The type proves nothing: any user can give a FUSE file system the type of a Larder mount.
        let is_inside = |mount: &&MountLine| {
            let is_below = mount.at != directory && mount.at.starts_with(directory);
            is_below && mount.other_fuse_user().is_none()
        };
        let (mut all, mut first) = (Self::NONE, None);
        for mount in table.iter().filter(is_inside) {
            let restrictions = mount.restrictions.without_read_only();
            if restrictions != Self::NONE {
                first.get_or_insert_with(|| mount.at.clone());
            }
            all = all | restrictions;
        }
        (all, first)
    }

    /// Parses comma-separated mount options; other options are skipped.
    pub(super) fn listed(options: &[u8]) -> Self {
        let words = options.split(|&byte| byte == b',');
        let known = words.filter_map(|word| Self::parse(std::str::from_utf8(word).ok()?));
        known.fold(Self::NONE, BitOr::bitor)
    }

    pub(crate) fn attributes(self) -> MountAttrFlags {
        self.0
    }

    pub(crate) fn without_read_only(self) -> Self {
        MountRestrictions(self.0.difference(MountAttrFlags::MOUNT_ATTR_RDONLY))
    }

    /// Returns true if these include all of `other`.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0.contains(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_all;
    use super::*;

    #[test]
    fn options_of_a_list_are_read() {
        let read = |options: &[u8]| MountRestrictions::listed(options).to_string();
        assert_eq!(read(b"rw,relatime"), "");
        assert_eq!(read(b"ro,nosuid,nodev,noexec,relatime"), "nosuid,nodev,noexec,ro");
        assert_eq!(read(b"rw,noexec"), "noexec");
        assert_eq!(read(b"ro,nosymfollow,relatime"), "nosymfollow,ro");
        assert_eq!(MountRestrictions::parse("suid"), None);
    }

    #[test]
    fn restrictions_only_add_up() {
        let (none, untrusted) = (MountRestrictions::NONE, MountRestrictions::UNTRUSTED);
        let both = untrusted | MountRestrictions::READ_ONLY;
        assert!(both.contains(untrusted) && both.contains(none) && !untrusted.contains(both));
        assert_eq!(both.without_read_only(), untrusted);
        assert_eq!(none | none, MountRestrictions::default());
    }

    #[test]
    fn mounts_inside_a_directory_add_to_its_restrictions() {
        let table = parse_all(
            b"1 0 8:1 / / rw,nosuid - ext4 /dev/a rw\n\
              2 1 8:2 / /srv rw,nodev - ext4 /dev/b rw\n\
              3 2 8:3 / /srv/x ro,noexec - ext4 /dev/c rw\n\
              4 2 0:9 / /srv/y rw,nosuid - fuse.larder /z rw\n\
              5 1 8:4 / /srv2 rw,nodev - ext4 /dev/d rw\n\
              6 2 0:10 / /srv/u rw,nosymfollow - fuse.larder /u rw,user_id=4294967294\n",
        );
        let (inside, first) = MountRestrictions::inside(&table, Path::new("/srv"));
        assert_eq!((inside.to_string().as_str(), first), ("nosuid,noexec", Some("/srv/x".into())));
    }

    #[test]
    fn an_open_directory_has_the_restrictions_of_its_mount() {
        let proc = std::fs::File::open("/proc").unwrap();
        let table = super::super::read().unwrap();
        let of_table = table.iter().rfind(|mount| mount.at == Path::new("/proc")).unwrap();
        assert_eq!(MountRestrictions::of(&table, &proc), Ok(of_table.restrictions));
    }
}
