//! One cache per data: each volume and each mount claims what it caches, down to the disks below,
//! and a second claim of the same data is refused.
//!
//! A claim is a file in the runtime directory, locked as long as the process lives, that holds the
//! footprint of the data (`footprint`). Whoever claims something publishes first and then reads
//! the claims of others, so of two that begin in the same moment at least one sees the other.
//! Processes of one user take turns. Root reads the claims of all users, and believes one only if
//! its process has the data open. Beyond that (other users, containers) the flock(2) locks of files
//! and directories hold, see [`crate::store`].
//!
//! Invariant: the claim of a killed process refuses nothing, since its lock is gone.

mod footprint;
mod links;
mod machine;
mod record;
mod registry;
mod watch;

pub use watch::ClaimWatch;

use footprint::{Part, Subject, footprint};
use machine::{Located, ThisMachine};
use registry::Registry;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A new mount waits so long for a process whose mount is gone and which still writes.
const ENDING_WAIT: Duration = Duration::from_mins(1);
/// Longest text of another process that a message repeats.
const WORDS_MAX: usize = 400;

/// A reason to refuse a cache. Each message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another cache has the data.
    #[error(
        "cache {what}: {holder} caches the same data; use that cache or stop it first, since two \
         caches of the same data lose changes"
    )]
    Held {
        /// The data, in words.
        what: String,
        /// The other cache.
        holder: Holder,
    },
    /// Another cache may have the data, by another name of the file.
    #[error(
        "cache {what}: there are files with several names (hard links), and {holder} may cache one \
         of them by another name; stop it first, or cache a copy"
    )]
    Linked {
        /// The data, in words.
        what: String,
        /// The other cache.
        holder: Holder,
    },
    /// Another cache has the data, and its mount is gone already.
    #[error(
        "cache {what}: {holder} caches the same data; its mount is gone, but it is still used or \
         still writes; try again when the process has ended"
    )]
    Ending {
        /// The data, in words.
        what: String,
        /// The other cache.
        holder: Holder,
    },
    /// The kernel has a file system on the data.
    #[error(
        "cache {what}: it holds the file system that is mounted at {at}, whose changes the cache \
         would not see; unmount that first"
    )]
    Mounted {
        /// The data, in words.
        what: String,
        /// A mountpoint.
        at: String,
    },
    /// A mountpoint lies in a directory that is cached.
    #[error(
        "mount at {at}: it lies in what {holder} caches, where its files would be cached twice; \
         choose another mountpoint"
    )]
    Mountpoint {
        /// The mountpoint.
        at: String,
        /// The other cache.
        holder: Holder,
    },
    /// The data cannot be identified.
    #[error("find out where {what} lies: {source}")]
    Locate {
        /// The data, in words.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A process that caches data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its data, in its own words; empty if that is not known.
    pub what: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == std::process::id() {
            f.write_str("this process")?;
        } else {
            write!(f, "process {}", self.pid)?;
            if let Ok(name) = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)) {
                write!(f, " ({})", printable(name.trim_end()))?;
            }
        }
        if self.what.is_empty() { Ok(()) } else { write!(f, " with {}", printable(&self.what)) }
    }
}

/// Words of another process, without what a terminal would obey.
fn printable(text: &str) -> String {
    let shown = |character: char| if character.is_control() { '?' } else { character };
    text.chars().take(WORDS_MAX).map(shown).collect()
}

/// The data of one cache, claimed until it is dropped.
pub struct Claim {
    registry: Arc<Registry>,
    number: u64,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What is claimed, for finding its footprint again when mounts have changed.
#[derive(Debug)]
enum Source {
    /// A file, a block device or a directory.
    Open(OwnedFd),
    /// An export of an NBD server.
    Export(String),
    /// A file system that this process has mounted.
    Mount(u64),
}

impl Source {
    fn subject(&self, machine: &ThisMachine) -> io::Result<Subject> {
        let descriptor = match self {
            Source::Open(descriptor) => descriptor,
            Source::Export(name) => return Ok(Subject::Export(name.clone())),
            Source::Mount(number) => return Ok(Subject::FileSystem(*number)),
        };
        let Located { inode, kind, device, links, place, at } = machine.locate(descriptor)?;
        Ok(match kind {
            FileType::BlockDevice => Subject::Disk(device),
            FileType::Directory => Subject::Tree { inode, place, at },
            _ => Subject::File { inode, place, links },
        })
    }

    fn footprint(&self, machine: &ThisMachine) -> io::Result<Vec<Part>> {
        Ok(footprint(&self.subject(machine)?, machine))
    }
}

impl Claim {
    /// Claims the regular file, block device or directory that a descriptor has open. With
    /// `read_only` others may claim it so as well. Data whose last mount is gone is waited for,
    /// for a bounded time.
    ///
    /// # Errors
    /// Another cache has some of the data, or the kernel has a file system mounted on it.
    pub fn of_open(
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
        let located = ThisMachine::look().locate(descriptor.as_fd());
        let word = match located.map(|located| located.kind) {
            Ok(FileType::BlockDevice) => "the device",
            Ok(FileType::Directory) => "the directory",
            _ => "the file",
        };
        let what = format!("{word} {}", path.display());
        let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, 0);
        let failed = |source| ClaimError::Locate { what: what.clone(), source };
        let source = Source::Open(copy.map_err(|error| failed(error.into()))?);
        registry.take_in_turn(source, &what, read_only, ENDING_WAIT)
    }

    /// Claims an export of an NBD server, which is the same for equal identities.
    ///
    /// # Errors
    /// Another cache of this machine has the export.
    pub fn of_export(identity: &str, uri: &str, read_only: bool) -> Result<Self, ClaimError> {
        let (source, what) = (Source::Export(identity.to_owned()), format!("the export {uri}"));
        Registry::of_process().take_in_turn(source, &what, read_only, Duration::ZERO)
    }

    /// Claims the files that this process has just mounted at a path, so that they are not cached
    /// once more. Their number is that of their file system in stat(2).
    ///
    /// # Errors
    /// Another cache has them.
    pub(crate) fn of_mount(at: &Path, filesystem: u64) -> Result<Self, ClaimError> {
        let what = format!("the files mounted at {}", at.display());
        let registry = Registry::of_process();
        registry.take_in_turn(Source::Mount(filesystem), &what, false, Duration::ZERO)
    }

    /// Notes that the data is seen at a mountpoint, as the file system of this number, from now on.
    pub(crate) fn mounted(&self, at: &Path, filesystem: u64) {
        self.registry.mounted(self.number, at, filesystem);
    }

    /// Checks that a mountpoint does not lie in a directory that another process caches.
    ///
    /// # Errors
    /// It does.
    pub(crate) fn check_mountpoint(at: &Path) -> Result<(), ClaimError> {
        Registry::of_process().check_mountpoint(at)
    }

    /// The other process that claims a file as such, at this moment; to be asked when a file of a
    /// claimed directory is opened.
    pub(crate) fn holder_of_file(&self, device: u64, inode: u64) -> Option<Holder> {
        self.registry.holder_of_file(self.number, (device, inode))
    }

    /// One sentence, if other processes cannot see the claims of this one.
    #[must_use]
    pub fn note() -> Option<String> {
        Registry::of_process().problem().map(|problem| {
            format!("other Larder processes cannot see what this one caches: failed to {problem}")
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.release(self.number);
    }
}

/// The process that holds the flock(2) lock of an open file or directory, in words; empty if the
/// kernel does not show it.
pub(crate) fn lock_holder(descriptor: impl AsFd) -> String {
    let located = ThisMachine::look().locate(descriptor);
    let pid = located.ok().and_then(|located| machine::lock_holder(&located));
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| Holder { pid, what: String::new() }.to_string(),
    )
}

#[cfg(test)]
mod tests;
