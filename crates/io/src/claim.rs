//! Claims of cached data: each volume and each mount claims the data that it caches, down to the
//! disks below, and a second claim of the same data is refused.
//!
//! A claim is a file in the runtime directory that holds the footprint of the data (`footprint`).
//! The process keeps it locked as long as it lives. A process publishes its claim before it reads
//! the claims of others, so of two that start at the same time at least one sees the other. Until
//! they are compared, the claim is pending: it refuses other claims, and has no other effect.
//! Processes of one user take turns. Root reads the claims of all users, and trusts one only if its
//! process has the data open. Other users and containers are excluded by the flock(2) locks of
//! files and directories, see [`crate::store`].
//!
//! Invariant: the claim of a killed process refuses nothing, since the kernel has released its
//! lock.

mod footprint;
mod links;
mod machine;
mod record;
mod registry;
mod watch;

pub use watch::ClaimWatch;

use footprint::{CachedData, Footprint, UnresolvedLayer, footprint};
use machine::LocalMachine;
use registry::Registry;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time that a new mount waits for a process that still writes although its mount is gone.
const ENDING_WAIT: Duration = Duration::from_mins(1);
/// Maximum number of characters of another process's text that a message repeats.
const TEXT_CHARS_MAX: usize = 400;

/// A cache that was refused. The message reads as an operation after "cannot".
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {reason}")]
pub struct ClaimError {
    /// The operation, with the data.
    pub operation: String,
    /// The reason.
    pub reason: ClaimRefusal,
}

/// A reason to refuse a cache.
#[derive(Debug, thiserror::Error)]
pub enum ClaimRefusal {
    /// Another cache has the data.
    #[error("{}", held(.0))]
    Held(CacheProcess),
    /// Another cache may have the data under another name of the file.
    #[error(
        "there are files with several names (hard links), and {0} may cache one of them by another \
         name; stop it first, or cache a copy"
    )]
    Linked(CacheProcess),
    /// Another cache has the data; its mount is already gone.
    #[error(
        "{0} caches the same data; its mount is gone, but it is still used or still writes; try \
         again when the process has ended"
    )]
    Ending(CacheProcess),
    /// The kernel has a file system on the data, which is mounted at this path.
    #[error(
        "it holds the file system that is mounted at {0}, whose changes the cache would not see; \
         unmount that first"
    )]
    Mounted(String),
    /// The kernel uses the data through this loop device, for a file system that it does not list
    /// here.
    #[error(
        "{} uses it for a file system that is mounted in another mount namespace or was unmounted \
         while it was open, or for another program; stop the programs that use the device first",
        .0.display()
    )]
    InUse(PathBuf),
    /// A layer of an overlay cannot be found.
    #[error(
        "the layer {} of the overlay at {} cannot be found, since its name is relative or leads \
         elsewhere by now, so another cache of the layer would not be refused; mount the overlay \
         again with absolute paths, or cache the layer itself",
        printable(&name.to_string_lossy()),
        printable(&at.to_string_lossy())
    )]
    Layer {
        /// The name of the layer.
        name: PathBuf,
        /// A mountpoint of the overlay.
        at: PathBuf,
    },
    /// A mountpoint lies in a directory that is cached.
    #[error(
        "{0} caches this directory or one above it, so the files of the mount would be cached \
         twice; choose another mountpoint"
    )]
    Mountpoint(CacheProcess),
    /// The claim cannot be published in this directory.
    #[error(
        "cannot publish that in {directory}: {1}; a second cache of the same data would not be \
         refused", directory = .0.display()
    )]
    Publish(PathBuf, io::Error),
    /// The data cannot be identified.
    #[error("{0}")]
    Locate(io::Error),
}

impl ClaimError {
    /// Returns the error for data that cannot be identified.
    fn locate(data: &str, error: io::Error) -> Self {
        let operation = format!("determine the location of {data}");
        ClaimError { operation, reason: ClaimRefusal::Locate(error) }
    }
}

impl ClaimRefusal {
    /// Returns the error of a claim of this data.
    fn of(self, data: &str) -> ClaimError {
        ClaimError { operation: format!("cache {data}"), reason: self }
    }
}

/// A process that caches data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheProcess {
    /// Process ID.
    pub pid: u32,
    /// The data that it caches, as the process describes it; empty if unknown.
    pub data: String,
}

impl fmt::Display for CacheProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == std::process::id() {
            f.write_str("this process")?;
        } else {
            write!(f, "process {}", self.pid)?;
            if let Ok(name) = std::fs::read(format!("/proc/{}/comm", self.pid)) {
                let name = String::from_utf8_lossy(&name);
                write!(f, " ({})", printable(name.trim_end()))?;
            }
        }
        if self.data.is_empty() { Ok(()) } else { write!(f, " with {}", printable(&self.data)) }
    }
}

/// Returns the reason why data that a process caches cannot be cached once more.
fn held(holder: &CacheProcess) -> String {
    let advice = if holder.pid == std::process::id() {
        "name it once"
    } else {
        "use that cache or stop it first"
    };
    format!(
        "{holder} caches the same data; {advice}, since two caches of the same data lose changes"
    )
}

/// Returns text of another process without control characters, which a terminal would interpret.
fn printable(text: &str) -> String {
    let shown = |character: char| if character.is_control() { '?' } else { character };
    text.chars().take(TEXT_CHARS_MAX).map(shown).collect()
}

/// The data of one cache, claimed until it is dropped.
#[derive(Debug)]
pub struct Claim {
    registry: Arc<Registry>,
    number: u64,
}

/// Claimed data, kept to compute its footprint again when mounts have changed.
#[derive(Debug)]
enum Source {
    /// A file, a block device or a directory.
    Open(OwnedFd),
    /// An export of an NBD server.
    Export(String),
    /// A file system that this process has mounted, by its number, and its mountpoint.
    Mount(u64, PathBuf),
}

/// The data that a cache depends on now.
struct DataUse {
    footprint: Footprint,
    /// The file systems that are mounted in a claimed directory, each with its device number and
    /// mountpoint.
    nested: Vec<(u64, PathBuf)>,
}

impl Source {
    fn trace(&self, machine: &LocalMachine) -> io::Result<DataUse> {
        let mut is_in_unlisted_overlay = false;
        let data = match self {
            Source::Export(name) => CachedData::Export(name.clone()),
            Source::Mount(number, _) => CachedData::FileSystem(*number),
            Source::Open(descriptor) => {
                let located = machine.locate(descriptor)?;
                is_in_unlisted_overlay = located.is_in_unlisted_overlay;
                located.into_data()
            }
        };
        let nested = match &data {
            CachedData::Tree { at, .. } => machine.filesystems_below(at),
            _ => Vec::new(),
        };
        let mut footprint = footprint(&data, machine);
        if is_in_unlisted_overlay {
            let [name, at] = ["(unknown)", "(unmounted)"].map(PathBuf::from);
            footprint.unresolved.push(UnresolvedLayer { name, at });
        }
        Ok(DataUse { footprint, nested })
    }
}

impl Claim {
    /// Claims the regular file, block device or directory that a descriptor refers to. With
    /// `read_only`, other read-only caches may claim it too. Waits for a bounded time for data
    /// whose last mount is gone.
    pub(crate) fn of_open(
        descriptor: impl AsFd,
        path: &Path,
        read_only: bool,
    ) -> Result<Self, ClaimError> {
        Claim::of_open_in(&Registry::of_process(), descriptor, path, read_only)
    }

    fn of_open_in(
        registry: &Arc<Registry>,
        descriptor: impl AsFd,
        path: &Path,
        read_only: bool,
    ) -> Result<Self, ClaimError> {
        let located = LocalMachine::read().and_then(|machine| machine.locate(descriptor.as_fd()));
        let word = match located.map(|located| located.kind) {
            Ok(FileType::BlockDevice) => "the device",
            Ok(FileType::Directory) => "the directory",
            _ => "the file",
        };
        let data = format!("{word} {}", path.display());
        let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, 0);
        let source = copy.map_err(|error| ClaimError::locate(&data, error.into()));
        let source = Source::Open(source?);
        registry.acquire(source, &data, read_only, ENDING_WAIT)
    }

    /// Claims an export of an NBD server. Equal identities are the same export.
    pub(crate) fn of_export(
        identity: &str,
        uri: &str,
        read_only: bool,
    ) -> Result<Self, ClaimError> {
        let (source, data) = (Source::Export(identity.to_owned()), format!("the export {uri}"));
        Registry::of_process().acquire(source, &data, read_only, Duration::ZERO)
    }

    /// Claims the files that this process has just mounted at a path, so that no other cache caches
    /// them again. `filesystem` is the device number of the mount in stat(2).
    pub(crate) fn of_mount(at: &Path, filesystem: u64) -> Result<Self, ClaimError> {
        let data = format!("the files mounted at {}", at.display());
        let source = Source::Mount(filesystem, at.to_owned());
        Registry::of_process().acquire(source, &data, false, Duration::ZERO)
    }

    /// Records that the data is visible at mountpoint `at`, as the file system with this number.
    pub(crate) fn mounted(&self, at: &Path, filesystem: u64) {
        self.registry.mounted(self.number, at, filesystem);
    }

    /// Checks that a mountpoint does not lie in a directory that another process caches.
    pub(crate) fn check_mountpoint(at: &Path) -> Result<(), ClaimError> {
        Registry::of_process().check_mountpoint(at)
    }

    /// Returns the holder of another claim whose data is now this file, or all files below this
    /// directory. Called when a file of a claimed directory is opened, and when a directory in it
    /// is looked up.
    pub(crate) fn other_holder(&self, device: u64, inode: u64) -> Option<CacheProcess> {
        self.registry.other_holder(self.number, (device, inode))
    }

    /// Returns a sentence for each second cache of the data of this process that would not be
    /// refused.
    #[must_use]
    pub fn notes() -> Vec<String> {
        let registry = Registry::of_process();
        let unpublished = registry.problem().map(|problem| {
            format!("other Larder processes cannot see the claims of this one: cannot {problem}")
        });
        unpublished.into_iter().chain(registry.notes()).collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.release(self.number);
    }
}

/// Describes the process that holds the flock(2) lock of an open file or directory, as far as the
/// kernel shows it.
pub(crate) fn lock_holder(descriptor: impl AsFd) -> String {
    let located = LocalMachine::read().and_then(|machine| machine.locate(descriptor));
    let pid = located.ok().and_then(|located| machine::lock_holder(&located));
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| CacheProcess { pid, data: String::new() }.to_string(),
    )
}

#[cfg(test)]
mod tests;
