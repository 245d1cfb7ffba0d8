//! Supported kinds of scratch file systems, and the programs that create them.
//!
//! Invariant: a kind is identified by its kernel name; its availability is checked at each call,
//! since a module or a package may be installed meanwhile.

use crate::proc;
use std::path::{Path, PathBuf};

/// A kind of file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Larder's name, such as `ext4`.
    pub name: &'static str,
    /// The kernel's name.
    pub fs_type: &'static str,
    /// The mkfs program.
    pub maker: &'static str,
    /// The Debian package that contains the mkfs program.
    pub package: &'static str,
    /// Default options: suppress output, and overwrite existing data.
    options: &'static [&'static str],
    /// An option and its value, used unless the caller gives the option: initialize everything in
    /// mkfs, not after the mount during the measurement.
    eager_init: Option<(&'static str, &'static str)>,
}

/// By default ext2, ext3 and ext4 initialize their inode tables after the mount.
const EXT_EAGER_INIT: Option<(&str, &str)> = Some(("-E", "lazy_itable_init=0,lazy_journal_init=0"));

const fn kind(
    name: &'static str,
    maker: &'static str,
    package: &'static str,
    options: &'static [&'static str],
) -> Kind {
    Kind { name, fs_type: name, maker, package, options, eager_init: None }
}

const fn ext(name: &'static str, maker: &'static str) -> Kind {
    Kind { eager_init: EXT_EAGER_INIT, ..kind(name, maker, "e2fsprogs", &["-q", "-F"]) }
}

/// All supported kinds.
pub const KINDS: &[Kind] = &[
    ext("ext2", "mkfs.ext2"),
    ext("ext3", "mkfs.ext3"),
    ext("ext4", "mkfs.ext4"),
    kind("xfs", "mkfs.xfs", "xfsprogs", &["-q", "-f"]),
    kind("btrfs", "mkfs.btrfs", "btrfs-progs", &["-q", "-f"]),
    kind("f2fs", "mkfs.f2fs", "f2fs-tools", &["-q", "-f"]),
    Kind { fs_type: "ntfs3", ..kind("ntfs", "mkfs.ntfs", "ntfs-3g", &["-q", "-Q", "-F"]) },
];

impl Kind {
    /// Returns the kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Returns true if the kernel supports the kind, or has a module for it that it loads on
    /// demand.
    #[must_use]
    pub fn is_in_kernel(&self) -> bool {
        let known = proc::read("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line.split_whitespace().last() == Some(self.fs_type))
            || self.is_module()
    }

    fn is_module(&self) -> bool {
        let release = proc::read("/proc/sys/kernel/osrelease").unwrap_or_default();
        let aliases = Path::new("/lib/modules").join(release).join("modules.alias");
        let alias = format!("alias fs-{} ", self.fs_type);
        proc::read(aliases).is_some_and(|text| text.lines().any(|line| line.starts_with(&alias)))
    }

    /// Returns the path of the mkfs program, if it is installed.
    #[must_use]
    pub fn maker(&self) -> Option<PathBuf> {
        super::tool::find(self.maker)
    }

    /// Returns all options for the mkfs program, including the requested ones.
    pub(super) fn all_options<'a>(&self, requested: &'a [String]) -> Vec<&'a str> {
        let mut options = self.options.to_vec();
        let is_given = |option: &str| requested.iter().any(|word| word.starts_with(option));
        if let Some((option, value)) = self.eager_init.filter(|(option, _)| !is_given(option)) {
            options.extend([option, value]);
        }
        options.extend(requested.iter().map(String::as_str));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_name_and_asked_of_the_kernel() {
        let ext4 = Kind::from_name("ext4").unwrap();
        assert_eq!((ext4.maker, ext4.package), ("mkfs.ext4", "e2fsprogs"));
        assert_eq!(Kind::from_name("ext5"), None);
        let proc = kind("proc", "mkfs.proc", "none", &[]);
        assert!(proc.is_in_kernel() && proc.maker().is_none());
        let no = kind("nofs", "true", "none", &[]);
        assert!(!no.is_in_kernel() && no.maker().is_some());
    }

    #[test]
    fn what_is_asked_for_comes_last_and_wins() {
        let ext4 = Kind::from_name("ext4").unwrap();
        let requested = ["-b".to_owned(), "1024".to_owned()];
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        assert_eq!(ext4.all_options(&requested), ["-q", "-F", "-E", lazy, "-b", "1024"]);
        let requested = ["-Estride=4".to_owned()];
        assert_eq!(ext4.all_options(&requested), ["-q", "-F", "-Estride=4"]);
    }
}
