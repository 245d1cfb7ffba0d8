//! Identities of files of other processes, without requests to the servers of their file systems.
//!
//! A user can mount FUSE, and overlayfs over FUSE, in a user namespace: stat(2) of such a file
//! sends a request to a program of the user, and a thread that waits for the reply to a request
//! cannot be killed. `AT_STATX_DONT_SYNC` returns the attributes that the kernel has, and
//! `RESOLVE_CACHED` finds only names that it has. Invariants: no function sends a request for
//! attributes or names, and none follows a symbolic link of a path, which may lead through procfs
//! into another mount namespace.

use crate::{device, mounts};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Attempts to find a name that the kernel has: a rename anywhere on the machine can disturb one.
const CACHED_TRIES: usize = 3;

/// Device and inode number of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number of stat(2), see [`crate::device::encode`].
    pub(crate) dev: u32,
    pub(crate) ino: u64,
}

/// Attributes of a file that the kernel has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForeignFile {
    pub(crate) identity: FileIdentity,
    pub(crate) is_regular: bool,
    /// Number of names.
    pub(crate) links: u32,
    /// Mount of the path or descriptor (proc(5), mountinfo); 0 before Linux 5.8.
    pub(crate) mount: u64,
}

impl ForeignFile {
    /// Returns the file to which a link in procfs leads.
    pub(crate) fn behind(link: &Path) -> rustix::io::Result<ForeignFile> {
        ForeignFile::query(CWD, link, AtFlags::empty())
    }

    /// Opens the file that a path without symbolic links names here, without access to its data.
    /// Fails with `EAGAIN` if the kernel would have to ask the file system for a name, and before
    /// Linux 5.12 with `EINVAL`.
    pub(crate) fn open(path: &Path) -> rustix::io::Result<(OwnedFd, ForeignFile)> {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED;
        let mut tries = (0..CACHED_TRIES).map(|_| ForeignFile::resolve(CWD, path, resolve));
        let is_final = |found: &rustix::io::Result<_>| !matches!(found, Err(Errno::AGAIN));
        tries.find(is_final).unwrap_or(Err(Errno::AGAIN))
    }

    /// Opens a file by its path below a directory, on the mount of the directory.
    pub(crate) fn open_below(
        directory: &OwnedFd,
        path: &Path,
    ) -> rustix::io::Result<(OwnedFd, ForeignFile)> {
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        ForeignFile::resolve(directory, path, ResolveFlags::NO_SYMLINKS | inside)
    }

    fn resolve(
        at: impl AsFd,
        path: &Path,
        resolve: ResolveFlags,
    ) -> rustix::io::Result<(OwnedFd, ForeignFile)> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)?;
        let found = ForeignFile::of(&file)?;
        Ok((file, found))
    }

    /// Returns the attributes of an open file.
    pub(crate) fn of(file: impl AsFd) -> rustix::io::Result<ForeignFile> {
        ForeignFile::query(file, Path::new(""), AtFlags::EMPTY_PATH)
    }

    fn query(at: impl AsFd, path: &Path, flags: AtFlags) -> rustix::io::Result<ForeignFile> {
        let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let mask = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK | StatxFlags::MNT_ID;
        let found = rustix::fs::statx(at, path, flags, mask)?;
        Ok(ForeignFile {
            identity: FileIdentity {
                dev: device::encode(found.stx_dev_major, found.stx_dev_minor),
                ino: found.stx_ino,
            },
            is_regular: FileType::from_raw_mode(found.stx_mode.into()).is_file(),
            links: found.stx_nlink,
            mount: found.stx_mnt_id,
        })
    }

    /// Returns true if the path names this file here.
    pub(crate) fn has_path(&self, path: &Path) -> bool {
        ForeignFile::open(path).is_ok_and(|(_, found)| found.identity == self.identity)
    }

    /// Returns the mount of the file, if it is one of this mount namespace.
    pub(crate) fn mount_here(&self) -> Option<mounts::Mount> {
        mounts::all().into_iter().find(|mount| mount.id == self.mount)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    /// Prints a line after `sys.argv[1]` in its mount namespace is the file `sys.argv[2]`, which it
    /// has open, and waits.
    const HIDER: &str = r"
import ctypes, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
path, other = (name.encode() for name in sys.argv[1:])
is_other = (libc.unshare(0x10020000) == 0 and libc.mount(None, b'/', None, 0x44000, None) == 0
            and libc.mount(other, path, None, 0x1000, None) == 0)
file = open(path)
mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print('ready' if is_other else 'refused', flush=True)
sys.stdin.readline()
";

    /// A process that has `other` open and maps it, as `here` in its mount namespace.
    pub(crate) struct Hider {
        pub(crate) process: Child,
        pub(crate) here: PathBuf,
        pub(crate) other: PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Hider {
        /// Starts the process; `None`, after a note, if the machine does not permit it.
        pub(crate) fn start() -> Option<Hider> {
            let directory = tempfile::tempdir().unwrap();
            let [here, other] = ["here", "other"].map(|name| directory.path().join(name));
            for path in [&here, &other] {
                std::fs::write(path, path.to_str().unwrap()).unwrap();
            }
            let mut command = Command::new("python3");
            command.args(["-c", HIDER]).args([&here, &other]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let Ok(mut process) = command.spawn() else {
                larder_testing::skip("python3 is needed");
                return None;
            };
            let mut line = String::new();
            BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let hider = Hider { process, here, other, _directory: directory };
            if line != "ready\n" {
                larder_testing::skip("this process may not make a mount namespace");
                return None;
            }
            Some(hider)
        }
    }

    impl Drop for Hider {
        fn drop(&mut self) {
            drop(self.process.stdin.take());
            drop(self.process.wait());
        }
    }

    #[test]
    fn no_file_system_is_asked_for_a_name() {
        let own_pid = std::process::id();
        let unknown = format!("/proc/{own_pid}/task/{own_pid}/attr/prev");
        assert_eq!(ForeignFile::open(Path::new(&unknown)).unwrap_err(), Errno::AGAIN);
        let root = std::fs::File::open("/").unwrap().into();
        let inside = ForeignFile::open_below(&root, Path::new("proc/self")).unwrap_err();
        assert_eq!(inside, Errno::XDEV, "another mount");
        assert!(ForeignFile::open_below(&root, Path::new("..")).is_err());
    }

    #[test]
    fn a_file_has_one_identity_by_link_descriptor_and_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let link = format!("/proc/self/fd/{}", file.as_file().as_raw_fd());
        let behind = ForeignFile::behind(Path::new(&link)).unwrap();
        let opened = ForeignFile::of(file.as_file()).unwrap();
        assert!(behind.is_regular && behind.links == 1 && behind.has_path(&path));
        assert_eq!(behind.identity, opened.identity);
        let mount = behind.mount_here().unwrap();
        assert!(path.starts_with(&mount.point), "{mount:?}");
        let directory = tempfile::tempdir().unwrap();
        let symbolic_link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &symbolic_link).unwrap();
        assert!(!behind.has_path(&symbolic_link), "a path of the kernel has no symbolic links");
        drop(file);
        assert!(!behind.has_path(&path));
    }
}
