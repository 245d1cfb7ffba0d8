//! Mounting and unmounting: by ourselves where we may, else by the helper of the package fuse3.
//!
//! Invariants: nothing is mounted over what would be hidden; of mounts that were left behind, only
//! our own are taken away, and only dead ones.

use super::device;
use crate::claim::ClaimError;
use crate::mount_table::{self, MountLine, MountRestrictions};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::{CString, OsStr};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The type of the mount, in lists of mounts.
const TYPE: &str = mount_table::LARDER;
/// What mounts for those who may not.
const HELPER: &str = "fusermount3";

/// Why nothing was mounted. Each message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no FUSE.
    #[error("open {}: {source}; {}", device::PATH, way_to_it(.source))]
    NoDevice {
        /// Why.
        source: io::Error,
    },
    /// The mountpoint cannot be one.
    #[error("mount at {}: {reason}", path.display())]
    Mountpoint {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// We may not, and the helper cannot or will not.
    #[error(
        "mount at {}: only root mounts by itself, and {HELPER} (package fuse3) {reason}",
        path.display()
    )]
    Helper {
        /// Where.
        path: PathBuf,
        /// What is the matter with the helper.
        reason: String,
    },
    /// The kernel refused.
    #[error("mount at {}: {source}", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A volume cannot be a file.
    #[error("show the volume \"{name}\" as a file: {reason}")]
    Name {
        /// The volume.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// Its data would be cached twice.
    #[error(transparent)]
    Claimed(#[from] ClaimError),
}

/// How whoever may not open the device, or has none, gets it.
fn way_to_it(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        "root alone may open it here, where it is for all elsewhere (chmod 666 /dev/fuse)"
    } else {
        "it comes with the kernel's module fuse (modprobe fuse), and a container must be given it"
    }
}

/// Why nothing was unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Somebody uses it.
    #[error("unmount {}: it is in use", .0.display())]
    Busy(PathBuf),
    /// The kernel or the helper refused.
    #[error("unmount {}: {reason}", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Something mounted.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    path: PathBuf,
    by_helper: bool,
}

/// How something is mounted.
#[derive(Clone, Debug)]
pub(super) struct How {
    /// What lists of mounts call it.
    pub(super) source: String,
    /// Whether others than who mounts may use it, where that may be said.
    pub(super) allow_other: bool,
    /// Whether the kernel holds those who use it against the modes of files.
    pub(super) checks: bool,
    /// Its restrictions. A mount by the helper always has those of `UNTRUSTED`.
    pub(super) restrictions: MountRestrictions,
    /// Whether the kernel is to ask through the device, even where it could by io_uring.
    pub(super) plain: bool,
}

impl How {
    /// The options that say who may do what.
    fn rights(&self) -> String {
        let options = [(self.checks, ",default_permissions"), (self.allow_other, ",allow_other")];
        options.into_iter().filter_map(|(is_said, option)| is_said.then_some(option)).collect()
    }
}

/// Mounts at `path`; the descriptor through which the kernel asks, and whether a dead mount had to
/// make room.
pub(super) fn mount(path: &Path, how: &How) -> Result<(OwnedFd, Mount, bool), MountError> {
    let path = absolute(path);
    let refused = |source: Errno| MountError::Refused { path: path.clone(), source: source.into() };
    let took_over = take_over(&path)?;
    check(&path)?;
    let descriptor = match device::open() {
        Ok(descriptor) => descriptor,
        Err(error) => return Err(MountError::NoDevice { source: error.into() }),
    };
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={}{}",
            descriptor.as_raw_fd(),
            uid.as_raw(),
            gid.as_raw(),
            how.rights()
        );
        let options = CString::new(options).expect("no zero in it");
        let flags = MountFlags::NOATIME | how.restrictions.flags();
        match rustix::mount::mount(&how.source, &path, TYPE, flags, options.as_c_str()) {
            Ok(()) => return Ok((descriptor, Mount { path, by_helper: false }, took_over)),
            // Root of a container may be as little allowed as anybody.
            Err(Errno::PERM) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    drop(descriptor);
    let descriptor = mount_by_helper(&path, how)?;
    let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(refused)?;
    rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK).map_err(refused)?;
    Ok((descriptor, Mount { path, by_helper: true }, took_over))
}

/// The path without links above its last part, which itself may not answer.
fn absolute(path: &Path) -> PathBuf {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return path.to_owned(),
    };
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Unmounts what a killed process of ours left at `path`; whether there was something.
fn take_over(path: &Path) -> Result<bool, MountError> {
    // Not stat(2): what that says the kernel may remember.
    let dead = matches!(rustix::fs::statfs(path), Err(Errno::NOTCONN | Errno::CONNABORTED));
    let reason = |reason: String| MountError::Mountpoint { path: path.to_owned(), reason };
    match (is_ours(path), dead) {
        (false, false) => return Ok(false),
        (true, false) => return Err(reason("a larder that runs has it mounted".into())),
        (false, true) => {
            let what = "a FUSE file system that is dead is mounted there, and it is not of larder";
            return Err(reason(format!("{what}; umount it first")));
        }
        (true, true) => {}
    }
    detach(path).map_err(|error| reason(format!("what is mounted is dead; {error}")))?;
    Ok(true)
}

/// Takes out of sight what a process of ours has mounted at `path`, whoever uses it; whether there
/// was something. For those who know that it is not needed any more: they started that process.
///
/// # Errors
/// If the kernel refuses.
pub fn detach_ours(path: &Path) -> Result<bool, UnmountError> {
    let path = absolute(path);
    let is_ours = is_ours(&path);
    if is_ours {
        detach(&path)?;
    }
    Ok(is_ours)
}

fn detach(path: &Path) -> Result<(), UnmountError> {
    let by_helper = !rustix::process::geteuid().is_root();
    Mount { path: path.to_owned(), by_helper }.unmount(true)
}

/// Returns the last mount at `path`, if it is a Larder mount.
fn own_line(path: &Path) -> Option<MountLine> {
    let at_path = mount_table::read().ok()?.into_iter().rfind(|mount| mount.at == path);
    at_path.filter(|mount| mount.is_of(TYPE))
}

/// Returns whether the last mount at `path` is a Larder mount.
fn is_ours(path: &Path) -> bool {
    own_line(path).is_some()
}

fn check(path: &Path) -> Result<(), MountError> {
    let reason = |reason: String| MountError::Mountpoint { path: path.to_owned(), reason };
    let mut entries = std::fs::read_dir(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => reason("there is no such directory; make it first".into()),
        io::ErrorKind::NotADirectory => reason("it is not a directory".into()),
        _ => reason(error.to_string()),
    })?;
    if entries.next().is_some() {
        return Err(reason("it is not empty, and what is in it would be hidden".into()));
    }
    Ok(())
}

/// Has the helper mount, and takes the descriptor that it sends.
fn mount_by_helper(path: &Path, how: &How) -> Result<OwnedFd, MountError> {
    let failed = |reason: String| MountError::Helper { path: path.to_owned(), reason };
    let refused = |error: Errno| failed(format!("cannot be talked to: {error}"));
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(refused)?;
    // The helper inherits its end.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(refused)?;
    // A comma in a name would end the option.
    let source = how.source.replace('\\', "\\\\").replace(',', "\\,");
    let restrictions = how.restrictions | MountRestrictions::UNTRUSTED;
    let options = format!("fsname={source},subtype=larder,noatime,{restrictions}{}", how.rights());
    let ran = Command::new(HELPER)
        .args(["-o", &options])
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output();
    drop(theirs);
    let ran = ran.map_err(|error| failed(format!("cannot be run: {error}")))?;
    if !ran.status.success() {
        return Err(failed(format!("refuses: {}", said(&ran.stderr))));
    }
    received(&ours).map_err(refused)?.ok_or_else(|| failed("sends no descriptor".into()))
}

fn received(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket.as_fd(), &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let messages = ancillary.drain();
    let descriptors = messages.filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// What a helper said, on one line.
fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

impl Mount {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the restrictions that the mount has in any case.
    pub(super) fn own_restrictions(&self) -> MountRestrictions {
        if self.by_helper { MountRestrictions::UNTRUSTED } else { MountRestrictions::NONE }
    }

    /// Adds `restrictions` to those of the mount.
    ///
    /// # Errors
    /// If another file system is mounted there now, if the helper has mounted it (the helper cannot
    /// change a mount), or if the kernel refuses.
    pub(super) fn restrict(&self, restrictions: MountRestrictions) -> Result<(), Errno> {
        if self.by_helper {
            return Err(Errno::PERM);
        }
        // A remount replaces all restrictions, also those that the administrator has added.
        let own = own_line(&self.path).ok_or(Errno::NOENT)?;
        let restrictions = restrictions | own.restrictions;
        let flags = MountFlags::BIND | MountFlags::NOATIME | restrictions.flags();
        rustix::mount::mount_remount(&self.path, flags, c"")
    }

    /// Returns the device number of its file system, as long as it is mounted.
    pub(super) fn filesystem(&self) -> Option<u64> {
        own_line(&self.path).map(|mount| mount.filesystem)
    }

    /// Unmounts; `lazily` takes it out of sight at once, and those who use it keep it.
    ///
    /// # Errors
    /// If somebody uses it, or the kernel refuses.
    pub(super) fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        let path = self.path.clone();
        if !self.by_helper {
            let mut flags = UnmountFlags::NOFOLLOW;
            flags.set(UnmountFlags::DETACH, lazily);
            return match rustix::mount::unmount(&self.path, flags) {
                // Somebody else has unmounted it.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
                Err(Errno::BUSY) => Err(UnmountError::Busy(path)),
                Err(error) => Err(UnmountError::Refused { path, reason: error.to_string() }),
            };
        }
        let how: &[&OsStr] =
            if lazily { &["-u".as_ref(), "-z".as_ref()] } else { &["-u".as_ref()] };
        let ran = Command::new(HELPER).args(how).arg("--").arg(&self.path).output();
        match ran {
            Ok(ran) if ran.status.success() || !is_ours(&self.path) => Ok(()),
            Ok(ran) if said(&ran.stderr).contains("busy") => Err(UnmountError::Busy(path)),
            Ok(ran) => Err(UnmountError::Refused { path, reason: said(&ran.stderr) }),
            Err(error) => {
                let reason = format!("{HELPER} cannot be run: {error}");
                Err(UnmountError::Refused { path, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_device_is_told_how_to_get_it() {
        let said = |kind| MountError::NoDevice { source: io::Error::from(kind) }.to_string();
        assert!(said(io::ErrorKind::NotFound).contains("modprobe fuse"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("chmod 666 /dev/fuse"));
    }

    #[test]
    fn a_path_is_known_without_asking_its_last_part() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(absolute(&real.join("link/missing")), real.join("missing"));
        assert_eq!(absolute(Path::new("/")), Path::new("/"));
        let nowhere = Path::new("/no/such/folder");
        assert_eq!(absolute(nowhere), nowhere);
    }

    #[test]
    fn what_cannot_be_a_mountpoint_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let why = |path: &Path| check(path).unwrap_err().to_string();
        assert!(why(folder.path()).ends_with("it is not empty, and what is in it would be hidden"));
        assert!(why(&file).ends_with("it is not a directory"));
        assert!(
            why(&folder.path().join("x")).ends_with("there is no such directory; make it first")
        );
    }
}
