//! Mounting and unmounting: by this process where it has the permission, else by the helper of the
//! package fuse3.
//!
//! Invariants: a mount never hides files; of stale mounts, only dead mounts of Larder are
//! unmounted. A mount is identified by its ID and not by its path: users may rename directories
//! above the mountpoint, and mount other file systems at the old path.

use super::device;
use crate::claim::ClaimError;
use crate::mount_table::{self, MountLine, MountRestrictions};
use crate::store::files::link_to;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_set_flag,
    fsconfig_set_string,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// File system type in the mount table.
const TYPE: &str = mount_table::LARDER;
/// Maximum length of a string that fsconfig(2) takes.
const CONFIG_BYTES_MAX: usize = 255;
/// Reason why a covered mount cannot be changed.
const COVERED: &str = "another mount covers it and was not changed; unmount both with umount";
/// Program that mounts for users without the permission.
const HELPER: &str = "fusermount3";
/// Maximum number of mounts at one path that are unmounted.
const COVERING_MAX: usize = 64;

/// Failure to mount. Each message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The FUSE device cannot be opened.
    #[error("open {}: {source}; {}", device::PATH, device_advice(.source))]
    NoDevice {
        /// Reason of the failure.
        source: io::Error,
    },
    /// The path cannot be a mountpoint, or this process has no permission to mount and the helper
    /// fails.
    #[error("mount at {}: {reason}", path.display())]
    Mountpoint {
        /// Path of the mountpoint.
        path: PathBuf,
        /// Reason of the failure.
        reason: String,
    },
    /// The kernel reports an error.
    #[error("mount at {}: {source}", path.display())]
    Refused {
        /// Path of the mountpoint.
        path: PathBuf,
        /// Reason of the failure.
        source: io::Error,
    },
    /// A volume cannot be shown as a file.
    #[error("show the volume \"{name}\" as a file: {reason}")]
    Name {
        /// Name of the volume.
        name: String,
        /// Reason of the failure.
        reason: &'static str,
    },
    /// Another cache has claimed the data.
    #[error(transparent)]
    Claimed(#[from] ClaimError),
}

/// Returns advice for a user who cannot open the device.
fn device_advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        "only root may open it here; to let all users mount, run chmod 666 /dev/fuse as root"
    } else {
        "it comes with the kernel's module fuse (modprobe fuse), and a container must be given it"
    }
}

/// Failure to unmount.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// A program uses the mount.
    #[error("unmount {}: it is in use", .0.display())]
    Busy(PathBuf),
    /// The kernel or the helper reports an error.
    #[error("unmount {}: {reason}", path.display())]
    Refused {
        /// Path of the mountpoint.
        path: PathBuf,
        /// Reason of the failure.
        reason: String,
    },
}

/// A mount that a Larder process has made.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    mountpoint: Mountpoint,
    /// ID of the mount and device number of its file system, as in the mount table.
    id: u64,
    filesystem: u64,
    /// Distinguishes it from later mounts with the same numbers; none before Linux 6.8.
    unique_id: Option<u64>,
    by_helper: bool,
}

/// Directory entry of a mountpoint. It stays valid when directories above it are renamed.
#[derive(Clone, Debug)]
struct Mountpoint {
    /// Path at the time of the open, for messages.
    path: PathBuf,
    /// Directory that holds the entry. Unlike a descriptor in the mount, it does not keep the mount
    /// in use.
    parent: Arc<OwnedFd>,
    name: OsString,
}

#[derive(Clone, Debug)]
pub(super) struct MountOptions {
    /// Source in the mount table.
    pub(super) source: String,
    /// True if other users may use the mount, where that option is permitted.
    pub(super) allow_other: bool,
    /// True if the kernel checks the permissions of files.
    pub(super) check_permissions: bool,
    /// Restrictions of the mount. A mount by the helper always has those of `UNTRUSTED`.
    pub(super) restrictions: MountRestrictions,
    /// True if requests come through the device, even where io_uring is available.
    pub(super) plain: bool,
}

impl MountOptions {
    fn rights(&self) -> impl Iterator<Item = &'static str> {
        let options =
            [(self.check_permissions, "default_permissions"), (self.allow_other, "allow_other")];
        options.into_iter().filter_map(|(is_set, option)| is_set.then_some(option))
    }
}

/// Mounts at `path`. Returns the descriptor of the connection, the mount, and true if a dead mount
/// was replaced.
pub(super) fn mount(
    path: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, Mount, bool), MountError> {
    let mountpoint = Mountpoint::open(path).map_err(|error| unusable(path, &error))?;
    let refused = |source: Errno| MountError::Refused {
        path: mountpoint.path.clone(),
        source: source.into(),
    };
    let replaced_stale = unmount_stale(&mountpoint)?;
    let directory = mountpoint.open_empty()?;
    let descriptor =
        device::open().map_err(|error| MountError::NoDevice { source: error.into() })?;
    if rustix::process::geteuid().is_root() {
        match attach(&directory, &descriptor, options) {
            Ok((id, filesystem, unique_id)) => {
                let mount = Mount { mountpoint, id, filesystem, unique_id, by_helper: false };
                return Ok((descriptor, mount, replaced_stale));
            }
            // Root in a container may lack the permission, as other users do.
            Err(Errno::PERM | Errno::NOSYS) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    drop((descriptor, directory));
    let descriptor = mount_by_helper(&mountpoint, options)?;
    let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(refused)?;
    rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK).map_err(refused)?;
    let Some(mount) = Mount::existing(&mountpoint, true) else {
        let reason = "has mounted elsewhere: a directory above was renamed";
        return Err(helper_failed(&mountpoint, reason));
    };
    Ok((descriptor, mount, replaced_stale))
}

/// Mounts the file system of `device` at `directory`; returns the ID of the mount, the device
/// number, and the unique ID.
fn attach(
    directory: &OwnedFd,
    device: &OwnedFd,
    options: &MountOptions,
) -> Result<(u64, u64, Option<u64>), Errno> {
    let context = rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
    set("source", &options.source[..options.source.floor_char_boundary(CONFIG_BYTES_MAX)])?;
    set("subtype", "larder")?;
    set("fd", &device.as_raw_fd().to_string())?;
    set("rootmode", "40000")?;
    set("user_id", &rustix::process::getuid().as_raw().to_string())?;
    set("group_id", &rustix::process::getgid().as_raw().to_string())?;
    let read_only = options.restrictions.contains(MountRestrictions::READ_ONLY).then_some("ro");
    for flag in options.rights().chain(read_only) {
        fsconfig_set_flag(&context, flag)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = options.restrictions.attributes() | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let (id, device) = mount_table::mount_and_device(&mount).ok_or(Errno::NOSYS)?;
    let unique_id = mount_table::unique_mount_id(&mount, OsStr::new(""));
    let by_descriptors =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(&mount, "", directory, "", by_descriptors)?;
    Ok((id, device, unique_id))
}

/// Returns the path without symbolic links above its last component, which may be a dead mount.
fn absolute(path: &Path) -> PathBuf {
    if path.file_name().is_none() || path.read_link().is_ok() {
        return path.canonicalize().unwrap_or_else(|_| path.to_owned());
    }
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

/// Unmounts the dead mount that a killed Larder process left at a mountpoint. Returns true if there
/// was one.
fn unmount_stale(mountpoint: &Mountpoint) -> Result<bool, MountError> {
    // Not stat(2), whose answer the kernel may have cached.
    let is_dead =
        matches!(rustix::fs::statfs(mountpoint.link()), Err(Errno::NOTCONN | Errno::CONNABORTED));
    let reason = |reason: String| MountError::Mountpoint { path: mountpoint.path.clone(), reason };
    match (Mount::existing(mountpoint, !rustix::process::geteuid().is_root()), is_dead) {
        (None, false) => Ok(false),
        (Some(_), false) => Err(reason("a larder that runs has it mounted".into())),
        (None, true) => {
            let text = "a FUSE file system that is dead is mounted there, and it is not of larder";
            Err(reason(format!("{text}; umount it first")))
        }
        (Some(mount), true) => {
            let unmounted = mount.unmount(true);
            unmounted.map_err(|error| {
                reason(format!("the file system mounted there does not respond; {error}"))
            })?;
            Ok(true)
        }
    }
}

/// Lazily unmounts the mounts of Larder processes at `path`, even if programs use them. Returns
/// true if there was one. For callers that started that process and know that the mount is not
/// needed any more.
///
/// # Errors
/// If the kernel reports an error.
pub fn detach_ours(path: &Path) -> Result<bool, UnmountError> {
    let by_helper = !rustix::process::geteuid().is_root();
    let topmost = || {
        Mountpoint::open(path).ok().and_then(|mountpoint| Mount::existing(&mountpoint, by_helper))
    };
    let mut is_unmounted = false;
    // A program may have bound the mount to its own mountpoint.
    for _ in 0..COVERING_MAX {
        let Some(mount) = topmost() else { break };
        mount.unmount(true)?;
        is_unmounted = true;
    }
    Ok(is_unmounted)
}

/// Returns the error for a path that cannot be a mountpoint.
fn unusable(path: &Path, error: &io::Error) -> MountError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "there is no such directory; make it first".to_owned(),
        io::ErrorKind::NotADirectory => "it is not a directory".to_owned(),
        _ => error.to_string(),
    };
    MountError::Mountpoint { path: path.to_owned(), reason }
}

impl Mountpoint {
    fn open(path: &Path) -> io::Result<Self> {
        let path = absolute(path);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("it is the root directory"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = Arc::new(rustix::fs::open(parent, flags, Mode::empty())?);
        let name = name.to_owned();
        Ok(Mountpoint { path, parent, name })
    }

    fn open_empty(&self) -> Result<OwnedFd, MountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.parent, &self.name, flags, Mode::empty());
        let directory = opened.map_err(|error| unusable(&self.path, &error.into()))?;
        let entries = std::fs::read_dir(link_to(&directory));
        if entries.map_err(|error| unusable(&self.path, &error))?.next().is_some() {
            let reason =
                "it is not empty, and the mount would hide its content; use an empty one".into();
            return Err(MountError::Mountpoint { path: self.path.clone(), reason });
        }
        Ok(directory)
    }

    /// Returns the ID of the mount that is visible here.
    fn mount_id(&self) -> Option<u64> {
        mount_table::mount_id_at(&self.parent, &self.name)
    }

    /// Returns the unique ID of that mount; none before Linux 6.8.
    fn unique_mount_id(&self) -> Option<u64> {
        mount_table::unique_mount_id(&self.parent, &self.name)
    }

    /// Returns a path that no rename above changes, for calls that take no descriptor.
    fn link(&self) -> PathBuf {
        Path::new(&link_to(&self.parent)).join(&self.name)
    }

    /// Returns the current path, for another process.
    fn path_now(&self) -> PathBuf {
        let parent = std::fs::read_link(link_to(&self.parent));
        parent.map_or_else(|_| self.path.clone(), |parent| parent.join(&self.name))
    }
}

fn helper_failed(mountpoint: &Mountpoint, failure: &str) -> MountError {
    let reason = format!("only root mounts by itself, and {HELPER} (package fuse3) {failure}");
    MountError::Mountpoint { path: mountpoint.path.clone(), reason }
}

/// Runs the helper to mount, and receives the descriptor that it sends.
fn mount_by_helper(mountpoint: &Mountpoint, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |reason: String| helper_failed(mountpoint, &reason);
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
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let restrictions = options.restrictions | MountRestrictions::UNTRUSTED;
    let mut option_list = format!("fsname={source},subtype=larder,noatime,{restrictions}");
    for option in options.rights() {
        option_list = option_list + "," + option;
    }
    let run = Command::new(HELPER)
        .args(["-o", &option_list])
        .arg("--")
        .arg(mountpoint.path_now())
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output();
    drop(theirs);
    let run = run.map_err(|error| failed(format!("cannot be run: {error}")))?;
    if !run.status.success() {
        return Err(failed(format!("refuses: {}", error_text(&run.stderr))));
    }
    receive_descriptor(&ours).map_err(refused)?.ok_or_else(|| failed("sends no descriptor".into()))
}

fn receive_descriptor(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
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

fn error_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

impl Mount {
    /// Returns the Larder mount that is visible at a mountpoint.
    fn existing(mountpoint: &Mountpoint, by_helper: bool) -> Option<Self> {
        let (id, table) = (mountpoint.mount_id()?, mount_table::read().ok()?);
        let line = table.into_iter().find(|line| line.id == id && line.is_of(TYPE))?;
        let (filesystem, unique_id) = (line.filesystem, mountpoint.unique_mount_id());
        Some(Mount { mountpoint: mountpoint.clone(), id, filesystem, unique_id, by_helper })
    }

    pub(super) fn path(&self) -> &Path {
        &self.mountpoint.path
    }

    /// Returns the restrictions that the mount has regardless of its options.
    pub(super) fn inherent_restrictions(&self) -> MountRestrictions {
        if self.by_helper { MountRestrictions::UNTRUSTED } else { MountRestrictions::NONE }
    }

    pub(super) fn filesystem(&self) -> u64 {
        self.filesystem
    }

    /// Returns its line of the mount table; none once it is unmounted.
    fn line(&self) -> Result<Option<MountLine>, Errno> {
        let is_this = |line: &MountLine| (line.id, line.filesystem) == (self.id, self.filesystem);
        Ok(mount_table::read()?.into_iter().find(is_this))
    }

    /// Returns the current mountpoint, which may have been moved; none if the mount is unmounted.
    /// Another mount can replace it afterwards only by a rename of the mountpoint itself in another
    /// mount namespace.
    ///
    /// # Errors
    /// If another mount covers it, or the mount table cannot be read.
    fn current_mountpoint(&self) -> io::Result<Option<Mountpoint>> {
        let Some(line) = self.line()? else { return Ok(None) };
        let has_id = |mountpoint: &Mountpoint| mountpoint.mount_id() == Some(self.id);
        let is_this = |mountpoint: &Mountpoint| mountpoint.unique_mount_id() == self.unique_id;
        if has_id(&self.mountpoint) && is_this(&self.mountpoint) {
            return Ok(Some(self.mountpoint.clone()));
        }
        // Without unique IDs, a later mount may have the numbers of this one.
        let has_moved = |mountpoint: &Mountpoint| self.unique_id.is_some() && has_id(mountpoint);
        let Some(mountpoint) = Mountpoint::open(&line.at).ok().filter(has_moved) else {
            return Err(io::Error::other(COVERED));
        };
        Ok(is_this(&mountpoint).then_some(mountpoint))
    }

    /// Adds `restrictions` to those of the mount.
    ///
    /// # Errors
    /// If the mount does not have them afterwards: it is unmounted or covered, the helper has
    /// mounted it (the helper cannot change a mount), or the kernel reports an error.
    pub(super) fn restrict(&self, restrictions: MountRestrictions) -> io::Result<()> {
        if self.by_helper {
            return Err(Errno::PERM.into());
        }
        let mountpoint = self.current_mountpoint()?.ok_or(Errno::NOENT)?;
        add_attributes(&mountpoint, restrictions.attributes())?;
        match self.line()? {
            Some(line) if line.restrictions.contains(restrictions) => Ok(()),
            _ => Err(io::Error::other("the mount was moved meanwhile")),
        }
    }

    /// Unmounts. With `lazily`, the mount disappears at once, and programs that use it keep it
    /// until they close their files.
    ///
    /// # Errors
    /// If a program uses it, another mount covers it, or the kernel reports an error.
    pub(super) fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        let path = self.mountpoint.path.clone();
        let refused = |reason| Err(UnmountError::Refused { path: path.clone(), reason });
        let mountpoint = match self.current_mountpoint() {
            Ok(Some(mountpoint)) => mountpoint,
            // Another program has unmounted it.
            Ok(None) => return Ok(()),
            Err(error) => return refused(error.to_string()),
        };
        if !self.by_helper {
            let mut flags = UnmountFlags::NOFOLLOW;
            flags.set(UnmountFlags::DETACH, lazily);
            return match rustix::mount::unmount(mountpoint.link(), flags) {
                // Another program has unmounted it.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
                Err(Errno::BUSY) => Err(UnmountError::Busy(path)),
                Err(error) => refused(error.to_string()),
            };
        }
        let flags: &[&str] = if lazily { &["-u", "-z"] } else { &["-u"] };
        let run = Command::new(HELPER).args(flags).arg("--").arg(mountpoint.path_now()).output();
        match run {
            Ok(run) if run.status.success() || matches!(self.line(), Ok(None)) => Ok(()),
            Ok(run) if error_text(&run.stderr).contains("busy") => Err(UnmountError::Busy(path)),
            Ok(run) => refused(error_text(&run.stderr)),
            Err(error) => refused(format!("{HELPER} cannot be run: {error}")),
        }
    }
}

/// Adds attributes to the mount that is visible at a mountpoint; it keeps those that it has.
fn add_attributes(mountpoint: &Mountpoint, attributes: MountAttrFlags) -> io::Result<()> {
    let name = CString::new(mountpoint.name.as_bytes())?;
    let change = libc::mount_attr {
        attr_set: attributes.bits().into(),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the descriptor, the name and the structure live during the call, which only reads
    // them; the length is that of the structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mountpoint.parent.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_device_is_told_how_to_get_it() {
        let message = |kind| MountError::NoDevice { source: io::Error::from(kind) }.to_string();
        assert!(message(io::ErrorKind::NotFound).contains("modprobe fuse"));
        assert!(message(io::ErrorKind::PermissionDenied).contains("chmod 666 /dev/fuse"));
    }

    #[test]
    fn a_path_is_known_without_asking_its_last_part() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(absolute(&real.join("link/missing")), real.join("missing"));
        assert_eq!(absolute(&real.join("link")), real);
        assert_eq!(absolute(Path::new("/")), Path::new("/"));
        let nowhere = Path::new("/no/such/directory");
        assert_eq!(absolute(nowhere), nowhere);
    }

    #[test]
    fn what_cannot_be_a_mountpoint_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let reason_of =
            |path: &Path| Mountpoint::open(path).unwrap().open_empty().unwrap_err().to_string();
        assert!(
            reason_of(directory.path())
                .ends_with("and the mount would hide its content; use an empty one")
        );
        assert!(reason_of(&file).ends_with("it is not a directory"));
        assert!(
            reason_of(&directory.path().join("x"))
                .ends_with("there is no such directory; make it first")
        );
    }
}
