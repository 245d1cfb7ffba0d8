//! What a mount does not let its users do: run programs as others, open devices, run programs at
//! all, write. A mount of a folder has at least the restrictions of the mount that the folder lies
//! on, and of those that are mounted inside of it.

use super::mount::{TYPE, mounts};
use crate::wake::Waker;
use larder_core::lane::Notify as _;
use rustix::event::PollFlags;
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The list of mounts, which poll(2) reports when it changes.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The restrictions, as lists of mounts and mount(8) call them.
const NAMES: [(MountFlags, &str); 4] = [
    (MountFlags::NOSUID, "nosuid"),
    (MountFlags::NODEV, "nodev"),
    (MountFlags::NOEXEC, "noexec"),
    (MountFlags::RDONLY, "ro"),
];

/// Restrictions of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountRestrictions(MountFlags);

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
        f.write_str(&self.words().collect::<Vec<_>>().join(","))
    }
}

impl MountRestrictions {
    /// None.
    pub const NONE: Self = MountRestrictions(MountFlags::empty());
    /// Nobody runs programs as another user, and devices cannot be opened.
    pub(super) const UNTRUSTED: Self =
        MountRestrictions(MountFlags::NOSUID.union(MountFlags::NODEV));
    /// Nothing can be written.
    pub(super) const READ_ONLY: Self = MountRestrictions(MountFlags::RDONLY);

    /// The restriction that `word` names, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let found = NAMES.into_iter().find(|(_, name)| *name == word);
        found.map(|(flag, _)| MountRestrictions(flag))
    }

    /// Those of the mount through which a descriptor was opened, if that is among the mounts that
    /// this process sees; it is not when it was unmounted lazily.
    pub(super) fn of_listed(descriptor: impl AsFd) -> Option<Self> {
        let id = mount_id(descriptor.as_fd())?;
        mounts().into_iter().find(|mount| mount.id == id).map(|mount| mount.restrictions)
    }

    /// The same of any mount.
    pub(super) fn of(descriptor: impl AsFd) -> Result<Self, Errno> {
        if let Some(listed) = Self::of_listed(descriptor.as_fd()) {
            return Ok(listed);
        }
        let has = rustix::fs::fstatvfs(descriptor)?.f_flag;
        let flags = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        ];
        let set = flags.into_iter().filter(|(of_mount, _)| has.contains(*of_mount));
        Ok(MountRestrictions(set.map(|(_, flag)| flag).collect()))
    }

    /// Those of all mounts inside of a folder, and the first such mount that is restricted. That
    /// one is read-only is no matter of the whole folder: it refuses writes by itself.
    pub(super) fn inside(folder: &Path) -> (Self, Option<PathBuf>) {
        let (mut all, mut first) = (MountRestrictions::NONE, None);
        for mount in mounts() {
            let at = Path::new(std::ffi::OsStr::from_bytes(&mount.at));
            if at == folder || !at.starts_with(folder) || mount.kind == TYPE.as_bytes() {
                continue;
            }
            let own = mount.restrictions.without_read_only();
            if own != MountRestrictions::NONE {
                first.get_or_insert_with(|| at.to_owned());
            }
            all = all | own;
        }
        (all, first)
    }

    /// Those that a list of mounts has among its options.
    pub(super) fn listed(options: &[u8]) -> Self {
        let words = options.split(|&byte| byte == b',');
        let known = words.filter_map(|word| Self::parse(std::str::from_utf8(word).ok()?));
        known.fold(MountRestrictions::NONE, BitOr::bitor)
    }

    pub(super) fn flags(self) -> MountFlags {
        self.0
    }

    pub(super) fn words(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |(flag, _)| self.0.contains(*flag)).map(|(_, name)| name)
    }

    pub(super) fn without_read_only(self) -> Self {
        MountRestrictions(self.0.difference(MountFlags::RDONLY))
    }

    /// Whether all of `other` are among these.
    pub(super) fn contain(self, other: Self) -> bool {
        self.0.contains(other.0)
    }
}

/// The number of the mount through which a descriptor was opened.
fn mount_id(descriptor: BorrowedFd<'_>) -> Option<u64> {
    let facts = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let facts = std::fs::read_to_string(facts).ok()?;
    facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// A thread that does something whenever the list of mounts has changed, until it is dropped.
#[derive(Debug)]
pub(super) struct MountWatch {
    waker: Waker,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MountWatch {
    /// Starts it.
    ///
    /// # Errors
    /// If there is no list of mounts, or no thread to be had.
    pub(super) fn start(changed: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (waker, is_over) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let list = File::open(MOUNTS)?;
        let (own_waker, own_end) = (waker.clone(), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("mounts".into()).spawn(move || {
            loop {
                // What has changed before this thread began to wait counts too.
                changed();
                if own_end.load(Ordering::Acquire) {
                    return;
                }
                let news = PollFlags::PRI | PollFlags::ERR;
                if let Err(error) = own_waker.sleep(Some((list.as_fd(), news)), None) {
                    tracing::warn!(%error, "restrictions that the folder gets are not noticed");
                    return;
                }
            }
        })?;
        Ok(MountWatch { waker, is_over, thread: Some(thread) })
    }
}

impl Drop for MountWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.notify();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the mount panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_list_are_read() {
        let read = |options: &[u8]| MountRestrictions::listed(options).to_string();
        assert_eq!(read(b"rw,relatime"), "");
        assert_eq!(read(b"ro,nosuid,nodev,noexec,relatime"), "nosuid,nodev,noexec,ro");
        assert_eq!(read(b"rw,noexec"), "noexec");
        assert_eq!(MountRestrictions::parse("suid"), None);
    }

    #[test]
    fn restrictions_only_add_up() {
        let (none, untrusted) = (MountRestrictions::NONE, MountRestrictions::UNTRUSTED);
        let both = untrusted | MountRestrictions::READ_ONLY;
        assert!(both.contain(untrusted) && both.contain(none) && !untrusted.contain(both));
        assert_eq!(both.without_read_only(), untrusted);
        assert_eq!(none | none, MountRestrictions::default());
    }
}
