//! The files of a mount: one for each volume, added and removed while it is mounted.
//!
//! Invariants: a node's number is never reused, so what the kernel has cached of a removed file
//! never applies to another file; at most one file has a name.

use super::abi::{self, Attr};
use super::mount::MountError;
use crate::engine::ArenaVolume;
use crate::store::AllocationMap;
use larder_core::clock::{Clock, Nanos};
use larder_core::mode::WriteMode;
use rustix::io::Errno;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The longest name of a file.
pub(super) const NAME_BYTES_MAX: usize = 255;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// Checks that a volume of this name can be shown as a file.
///
/// # Errors
/// If no file can have this name.
pub fn check_name(name: &str) -> Result<(), MountError> {
    let refused = |reason| Err(MountError::Name { name: name.to_owned(), reason });
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return refused("no file can be called so; name it with NAME=PATH");
    }
    if name.len() > NAME_BYTES_MAX {
        return refused("the name is longer than 255 bytes; name it with NAME=PATH");
    }
    Ok(())
}

/// Permissions and owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Permissions {
    mode: u32,
    uid: u32,
    gid: u32,
}

/// A volume, shown as a file.
pub(in crate::front) struct VolumeFile {
    pub(super) node: u64,
    pub(super) name: String,
    pub(super) volume: Arc<ArenaVolume>,
    pub(super) map: Arc<dyn AllocationMap>,
    /// Length in bytes; it does not change.
    pub(super) length: u64,
    permissions: Mutex<Permissions>,
    created_at: SystemTime,
    /// Time of the last write, by the engine's clock; 0 if there was none.
    written_at: AtomicU64,
    /// Number of opens of the file.
    pub(super) opens: AtomicUsize,
    /// Number of sessions on its volume.
    pub(super) sessions: AtomicUsize,
    /// True if the file was removed: further requests are refused.
    removed: AtomicBool,
    /// True if the requests in flight are cancelled.
    cancelled: AtomicBool,
}

impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns seconds and nanoseconds since 1970.
fn since_epoch(time: SystemTime) -> (u64, u32) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

impl VolumeFile {
    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(super) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.volume.write_mode() == WriteMode::ReadOnly
    }

    pub(super) fn record_write(&self, now: Nanos) {
        self.written_at.store(now.max(1), Ordering::Relaxed);
    }

    pub(super) fn attr(&self, clock: &dyn Clock) -> Attr {
        let written = match self.written_at.load(Ordering::Relaxed) {
            0 => self.created_at,
            at => {
                let since = clock.now().saturating_sub(at);
                // The time between the two clock reads makes the result later, never older than the
                // write.
                SystemTime::now() - Duration::from_nanos(since)
            }
        };
        let (created_at, created_ns) = since_epoch(self.created_at);
        let (written, written_ns) = since_epoch(written);
        let permissions = *self.permissions.lock().expect("no holder panics");
        Attr {
            ino: self.node,
            size: self.length,
            blocks: self.length.div_ceil(512),
            atime: created_at,
            mtime: written,
            ctime: written,
            atime_ns: created_ns,
            mtime_ns: written_ns,
            ctime_ns: written_ns,
            mode: REGULAR | permissions.mode,
            nlink: 1,
            uid: permissions.uid,
            gid: permissions.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Changes mode and owner. Times are those of writes and are not changed.
    ///
    /// # Errors
    /// If the size is to change.
    pub(super) fn change(&self, args: &abi::SetattrIn) -> Result<(), Errno> {
        let sets = |bit: u32| args.valid & bit != 0;
        if sets(abi::attribute::SIZE) && args.size != self.length {
            return Err(Errno::PERM);
        }
        let mut permissions = self.permissions.lock().expect("no holder panics");
        if sets(abi::attribute::MODE) {
            permissions.mode = args.mode & 0o777;
        }
        if sets(abi::attribute::UID) {
            permissions.uid = args.uid;
        }
        if sets(abi::attribute::GID) {
            permissions.gid = args.gid;
        }
        Ok(())
    }
}

/// The current files.
#[derive(Debug)]
pub(super) struct Files {
    list: Mutex<Vec<Arc<VolumeFile>>>,
    next_node: AtomicU64,
    created_at: SystemTime,
    uid: u32,
    gid: u32,
}

impl Files {
    pub(super) fn new() -> Self {
        Files {
            list: Mutex::new(Vec::new()),
            next_node: AtomicU64::new(abi::ROOT + 1),
            created_at: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Adds a file for a volume, under the volume's name.
    ///
    /// # Errors
    /// If that cannot be the name of a file, or another file has it.
    pub(super) fn add(
        &self,
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
    ) -> Result<(), MountError> {
        let name = volume.name().to_owned();
        check_name(&name)?;
        let mut list = self.list.lock().expect("no holder panics");
        if list.iter().any(|file| file.name == name) {
            return Err(MountError::Name { name, reason: "there is a file of this name" });
        }
        let mode = if volume.geometry().read_only { 0o400 } else { 0o600 };
        list.push(Arc::new(VolumeFile {
            node: self.next_node.fetch_add(1, Ordering::Relaxed),
            name,
            length: volume.geometry().length,
            volume,
            map,
            permissions: Mutex::new(Permissions { mode, uid: self.uid, gid: self.gid }),
            created_at: SystemTime::now(),
            written_at: AtomicU64::new(0),
            opens: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            removed: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        }));
        Ok(())
    }

    /// Removes and returns the file of this name.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<VolumeFile>> {
        let mut list = self.list.lock().expect("no holder panics");
        let index = list.iter().position(|file| file.name == name)?;
        let file = list.remove(index);
        file.remove();
        Some(file)
    }

    pub(super) fn by_name(&self, name: &[u8]) -> Option<Arc<VolumeFile>> {
        let list = self.list.lock().expect("no holder panics");
        list.iter().find(|file| file.name.as_bytes() == name).cloned()
    }

    pub(super) fn by_node(&self, node: u64) -> Option<Arc<VolumeFile>> {
        let list = self.list.lock().expect("no holder panics");
        list.iter().find(|file| file.node == node).cloned()
    }

    /// Returns the current files.
    pub(super) fn list(&self) -> Vec<Arc<VolumeFile>> {
        self.list.lock().expect("no holder panics").clone()
    }

    /// Returns the attributes of the directory itself.
    pub(super) fn attr(&self) -> Attr {
        let (created_at, created_ns) = since_epoch(self.created_at);
        Attr {
            ino: abi::ROOT,
            size: 0,
            blocks: 0,
            atime: created_at,
            mtime: created_at,
            ctime: created_at,
            atime_ns: created_ns,
            mtime_ns: created_ns,
            ctime_ns: created_ns,
            mode: DIRECTORY | 0o755,
            nlink: 2,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Returns the directory entries from `offset` on, at most `bytes_max` bytes of them.
    pub(super) fn entries(&self, offset: u64, bytes_max: usize) -> Vec<u8> {
        use zerocopy::IntoBytes;
        let list = self.list();
        let dots = [(abi::ROOT, ".", DIRECTORY), (abi::ROOT, "..", DIRECTORY)];
        let files = list.iter().map(|file| (file.node, file.name.as_str(), REGULAR));
        let mut bytes = Vec::new();
        for (node, name, mode) in dots.into_iter().chain(files) {
            // The offset of an entry follows from its node number, which only increases: removed
            // files do not make a listing skip others.
            let cookie = if name == "." { 1 } else { node + 1 };
            let cookie = if name == ".." { 2 } else { cookie };
            if cookie <= offset {
                continue;
            }
            let namelen = u32::try_from(name.len()).expect("at most 255");
            let head = abi::Dirent { ino: node, off: cookie, namelen, kind: mode >> 12 };
            let end = (bytes.len() + size_of_val(&head) + name.len()).next_multiple_of(8);
            if end > bytes_max {
                break;
            }
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(end, 0);
        }
        bytes
    }
}
