//! The files of a mount: one for each volume, added and removed while it is mounted.
//!
//! Invariants: a node's number is never reused, so what the kernel has cached of a removed file
//! never applies to another file; at most one file has a name.

use super::abi::{self, Attr, Dirent};
use super::mount::MountError;
use crate::engine::ArenaVolume;
use crate::store::AllocationMap;
use larder_core::clock::{Clock, Nanos};
use larder_core::mode::WriteMode;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

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
    pub(super) opens: AtomicUsize,
    pub(super) sessions: AtomicUsize,
    /// True if the file was removed: further requests are refused.
    pub(super) removed: AtomicBool,
    /// True if the requests in flight are cancelled.
    pub(super) cancelled: AtomicBool,
}

/// Returns attributes of which only the times and the block size are set.
fn attr_with_times(created_at: SystemTime, written_at: SystemTime) -> Attr {
    let [created, written] = [created_at, written_at]
        .map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    Attr {
        atime: created.as_secs(),
        mtime: written.as_secs(),
        ctime: written.as_secs(),
        atime_ns: created.subsec_nanos(),
        mtime_ns: written.subsec_nanos(),
        ctime_ns: written.subsec_nanos(),
        blksize: 4096,
        ..Attr::default()
    }
}

impl VolumeFile {
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
        let Permissions { mode, uid, gid } = *self.permissions.lock().expect("no holder panics");
        Attr {
            ino: self.node,
            size: self.length,
            blocks: self.length.div_ceil(512),
            mode: REGULAR | mode,
            nlink: 1,
            uid,
            gid,
            ..attr_with_times(self.created_at, written)
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

    pub(super) fn remove(&self, name: &str) -> Option<Arc<VolumeFile>> {
        let mut list = self.list.lock().expect("no holder panics");
        let index = list.iter().position(|file| file.name == name)?;
        let file = list.remove(index);
        file.removed.store(true, Ordering::Release);
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

    pub(super) fn list(&self) -> Vec<Arc<VolumeFile>> {
        self.list.lock().expect("no holder panics").clone()
    }

    pub(super) fn attr(&self) -> Attr {
        Attr {
            ino: abi::ROOT,
            mode: DIRECTORY | 0o755,
            nlink: 2,
            uid: self.uid,
            gid: self.gid,
            ..attr_with_times(self.created_at, self.created_at)
        }
    }

    /// Returns the directory entries from `offset` on, at most `bytes_max` bytes of them.
    pub(super) fn entries(&self, offset: u64, bytes_max: usize) -> Vec<u8> {
        let list = self.list();
        let dots = [(abi::ROOT, ".", DIRECTORY), (abi::ROOT, "..", DIRECTORY)];
        let files = list.iter().map(|file| (file.node, file.name.as_str(), REGULAR));
        let mut bytes = Vec::new();
        for (node, name, mode) in dots.into_iter().chain(files) {
            // The offset of an entry follows from its node number, which only increases: removed
            // files do not make a listing skip others.
            let cookie = match name {
                "." => 1,
                ".." => 2,
                _ => node + 1,
            };
            if cookie <= offset {
                continue;
            }
            if bytes.len() + Dirent::len(name.as_bytes()) > bytes_max {
                break;
            }
            Dirent::push(&mut bytes, node, cookie, mode >> 12, name.as_bytes());
        }
        bytes
    }
}
