//! A directory with a cache: requests about names and attributes are passed through to it, and its
//! data goes through the cache.
//!
//! A node of the mount is an inode of the directory, identified by an `O_PATH` descriptor. So every
//! operation on names is a system call with a descriptor and a name: renames of directories above
//! it have no effect on it, and an open file survives the removal of its name. Blocking workers,
//! which are threads that may wait, handle requests that wait for the cache (truncating, holes,
//! renaming unwritten data).
//!
//! Invariants: a node that the kernel has looked up stays known until the kernel forgets it; data
//! of a file that no program can reach any more is never written.

mod answer;
mod attributes;
mod blocking_pool;
mod change_watcher;
mod crossing;
mod data;
mod descriptor_limit;
mod entries;
mod generation;
mod mount;
mod names;
mod nodes;
mod removal;
mod requests;
mod rules;
mod sections;
mod unnamed;

pub(super) use answer::{Answer, AnswerResult, is_lookup, reply};
pub(super) use blocking_pool::unshare_umask;
pub use change_watcher::ChangeEvents;
pub(super) use data::{
    RecentNodes, begin_write, check_alignment, clear_privileges, pad_to_sector, read_bound,
    segments, to_last_block,
};
pub(super) use requests::{is_release, needs_no_disk};
pub use rules::{FileGlob, FileOptions, FileRule, KernelPages};
pub(super) use sections::{CachedSection, Section};

use super::abi::{InHeader, capability};
use super::handshake;
use super::notify::KernelNotifier;
use super::passthrough::Passthrough;
use crate::claim::{Claim, ClaimError};
use crate::mount_table::MountRestrictions;
use crate::store::EngineStore;
use crate::store::directory::{LockError, LockedDirectory};
use crate::store::file_size_limit;
use crate::store::files::{FileTable, SourceFile, link_to};
use blocking_pool::{BlockingPool, CoveredWrite, Job};
use change_watcher::ChangeWatcher;
use descriptor_limit::DescriptorLimit;
use entries::Listing;
use larder_core::clock::Clock;
use nodes::{Node, Nodes};
use rules::Rules;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Failure to open a directory. Each message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory is missing, or the permission is missing.
    #[error("open the directory {}: {source}", path.display())]
    Open {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Another process has locked the directory.
    #[error("lock {}: {holder} uses it; one cache per data, or data would be lost", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
        /// The other process, if the kernel reports it.
        holder: String,
    },
    /// Another cache has claimed some of its data.
    #[error(transparent)]
    Claimed(#[from] ClaimError),
    /// The mountpoint is inside of the directory.
    #[error(
        "mount {} at {}: the mountpoint is inside the directory; choose another one",
        directory.display(), at.display()
    )]
    Inside {
        /// The directory.
        directory: PathBuf,
        /// The mountpoint.
        at: PathBuf,
    },
}

/// Options of a mounted directory.
#[derive(Clone, Debug, Default)]
pub struct DirectoryOptions {
    /// True if the mount permits no changes.
    pub read_only: bool,
    /// Restrictions of the mount in addition to those of SOURCE's mount.
    pub restrictions: MountRestrictions,
    /// Time for which the kernel may cache names and attributes, and age at which cached data is
    /// checked against the directory where changes by other processes are not reported.
    pub ttl: Duration,
    /// True if other processes change the directory too: the kernel may cache neither names nor
    /// attributes unless a [`news`](super::DirectoryMount::news) reports these changes.
    pub shared: bool,
    /// True if plain system calls are used even where io_uring is available.
    pub plain: bool,
    /// Rules for files by name; the first one that matches a file applies.
    pub rules: Vec<FileRule>,
    /// Options of all other files.
    pub rest: FileOptions,
}

/// A locked directory that can be mounted.
pub struct Directory {
    /// The directory, locked and claimed.
    root: Arc<LockedDirectory>,
    /// Queues of the threads that may block.
    pub(super) pool: BlockingPool,
    /// True if it is on a network file system, which other clients can change.
    is_remote: bool,
    /// Section of the files without a rule, then one for each rule.
    pub(super) sections: Vec<Section>,
    pub(super) path: PathBuf,
    pub(super) options: DirectoryOptions,
    pub(super) nodes: Nodes,
    /// Backing files that the kernel reads and writes itself.
    passthrough: Passthrough,
    kernel: KernelNotifier,
    /// State of the reports of changes by other processes.
    change_watcher: ChangeWatcher,
    /// Notices of degraded modes that are known only after the mount.
    pub(super) notes: Mutex<Vec<String>>,
    /// Directories that are open for listing.
    listings: Mutex<HashMap<u64, Arc<Listing>>>,
    next_listing: AtomicU64,
    /// Maximum number of nodes that the kernel has forgotten and that have cached data.
    still_cached_max: usize,
    descriptor_limit: DescriptorLimit,
    /// User and, below, group of this process, who own the files that it creates.
    uid: u32,
    gid: u32,
    /// True if the kernel checks the permissions and ACLs of files. Else it permits access only for
    /// the user of this process, whom the directory's file system permits everything.
    pub(super) check_permissions: bool,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).finish_non_exhaustive()
    }
}

/// An opened directory, and the stores of its files.
pub struct OpenedDirectory {
    /// The directory, which can be mounted.
    pub directory: Directory,
    /// Stores, each of which becomes a volume: of the files without a rule, then of each rule whose
    /// files are cached.
    pub stores: Vec<Box<dyn EngineStore>>,
    /// Notices of degraded modes, a sentence each.
    pub notes: Vec<String>,
}

impl fmt::Debug for OpenedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDirectory")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Checks that a path leads to an open directory. The canonical path of a directory in another
/// mount namespace, which is reached through /proc, may be that of another directory in this
/// namespace.
fn check_identity(path: &Path, opened: &LockedDirectory) -> Result<(), DirectoryError> {
    let failed = |source| DirectoryError::Open { path: path.to_owned(), source };
    let given = rustix::fs::stat(path).map_err(|error| failed(error.into()))?;
    let opened = rustix::fs::fstat(opened).map_err(|error| failed(error.into()))?;
    if (given.st_dev, given.st_ino) == (opened.st_dev, opened.st_ino) {
        return Ok(());
    }
    Err(failed(io::Error::other(
        "it has no path in this mount namespace; run larder in the namespace of the directory \
         (nsenter --mount)",
    )))
}

impl Directory {
    /// Opens and locks a directory.
    ///
    /// # Errors
    /// One sentence: the directory is missing, is not a directory, or another cache has some of its
    /// data.
    pub fn open(
        path: &Path,
        options: DirectoryOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<OpenedDirectory, DirectoryError> {
        let given = path;
        let failed = |path: &Path, source| DirectoryError::Open { path: path.to_owned(), source };
        let path = given.canonicalize().map_err(|error| failed(given, error))?;
        let root =
            LockedDirectory::open(&path, options.read_only).map_err(|error| match error {
                LockError::Refused(error) => failed(&path, error.into()),
                LockError::Busy(holder) => DirectoryError::Busy { path: path.clone(), holder },
                LockError::Claimed(error) => error.into(),
            })?;
        check_identity(given, &root)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_path = rustix::fs::openat(&root, ".", flags, Mode::empty());
        let reopens = rustix::process::geteuid().is_root();
        let rules = Rules::new(&options.rules, link_to(&root));
        let nodes = root_path.and_then(|root| Nodes::new(root, rules, reopens));
        let nodes = nodes.map_err(|error| failed(&path, error.into()))?;
        let descriptors = raise_descriptor_limit();
        let change_watcher = ChangeWatcher::new(nodes.device);
        let root = Arc::new(root);
        let (mut stores, mut of_store) = (Vec::new(), None);
        let section = |files: FileOptions| {
            let table = (!files.uncached).then(|| {
                let table = FileTable::new(Arc::clone(&root), path.clone(), options.read_only);
                let table = Arc::new(table);
                // The notice is the same for all sections.
                let (store, note) = table.store(Arc::clone(clock), options.plain);
                stores.push(store);
                of_store = note;
                table
            });
            Section::new(files, table)
        };
        let of_rules = options.rules.iter().map(|rule| rule.files);
        let sections = std::iter::once(options.rest).chain(of_rules).map(section).collect();
        let directory = Directory {
            pool: BlockingPool::default(),
            is_remote: is_remote(&root),
            root,
            sections,
            path,
            options,
            nodes,
            passthrough: Passthrough::default(),
            kernel: KernelNotifier::default(),
            change_watcher,
            notes: Mutex::default(),
            listings: Mutex::default(),
            next_listing: AtomicU64::new(1),
            still_cached_max: descriptors / 4,
            descriptor_limit: DescriptorLimit::new(descriptors),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            check_permissions: true,
        };
        let limited = file_size_limit().filter(|_| !directory.options.read_only).map(|limit| {
            format!(
                "writes to files of {} beyond their first {limit} bytes will fail: that is the \
                 process's limit on the size of files (RLIMIT_FSIZE); raise it with ulimit -f or \
                 prlimit --fsize",
                directory.path.display()
            )
        });
        let notices = of_store.into_iter().chain(limited).collect();
        Ok(OpenedDirectory { directory, stores, notes: notices })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn claim(&self) -> &Claim {
        self.root.claim()
    }

    pub(super) fn capabilities(&self) -> u64 {
        let mut capabilities = handshake::DIRECTORY_CAPABILITIES;
        if self.has_uncached() {
            capabilities |= capability::PASSTHROUGH;
        }
        // With `POSIX_ACL`, the kernel always checks permissions.
        if self.check_permissions {
            capabilities |= capability::POSIX_ACL;
        }
        capabilities
    }

    /// Returns true if a request comes from a user without access. The kernel permits access by the
    /// user of the process; it does not check the user for which a thread acts (setfsuid(2), as an
    /// NFS server does) unless it checks permissions.
    pub(super) fn is_unauthorized(&self, header: &InHeader) -> bool {
        !self.check_permissions && header.uid != self.uid
    }

    fn has_uncached(&self) -> bool {
        self.sections.iter().any(|section| section.options.uncached)
    }

    /// Uses the connection of `device`, for which the capabilities `agreed` were negotiated.
    pub(super) fn set_connection(&self, agreed: u64, device: &OwnedFd) {
        self.kernel.connect(device);
        if !self.has_uncached() {
            return;
        }
        let begun = if agreed & capability::PASSTHROUGH == 0 {
            Err("the kernel has no FUSE passthrough (Linux 6.9)".to_owned())
        } else {
            self.passthrough.begin(device)
        };
        if let Err(reason) = begun {
            self.notes.lock().expect("no holder panics").push(format!(
                "files that are not cached are read and written by larder, past the cache, and not \
                 by the kernel itself: {reason}"
            ));
        }
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Subtracts `count` from the kernel's lookups of a node. If the kernel has forgotten a node
    /// that has cached data but no name, the cache retires it.
    fn forget(&self, id: u64, count: u64) {
        let Some(node) = self.nodes.forget(id, count) else { return };
        if node.has_no_name() {
            node.file.die();
            self.pool.send(Job::Retire(node));
        } else if self.is_remote && removal::is_hidden(&node.file) {
            self.pool.send(Job::Retire(node));
        } else if let Some(oldest) = self.nodes.add_cached(&node, self.still_cached_max) {
            self.pool.send(Job::Retire(oldest));
        }
    }
}

/// Returns true if a directory is on NFS or SMB, by the numbers that statfs(2) reports for NFS, SMB
/// 1, and SMB 2 and 3.
fn is_remote(directory: impl AsFd) -> bool {
    let found = rustix::fs::fstatfs(directory);
    found.is_ok_and(|found| matches!(found.f_type, 0x6969 | 0xff53_4d42 | 0xfe53_4d42))
}

/// Raises the limit of file descriptors to the permitted maximum, since every inode that the kernel
/// knows takes one. Returns the limit.
fn raise_descriptor_limit() -> usize {
    let now = rustix::process::getrlimit(Resource::Nofile);
    // Root may raise the limit to the maximum of a process, other users to their hard limit.
    let text = std::fs::read_to_string("/proc/sys/fs/nr_open").unwrap_or_default();
    let maximum = text.trim().parse().ok();
    for wanted in [maximum.or(now.maximum), now.maximum] {
        let limit = Rlimit { current: wanted, maximum: wanted };
        if wanted.is_some() && rustix::process::setrlimit(Resource::Nofile, limit).is_ok() {
            break;
        }
    }
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let limit = usize::try_from(limit.unwrap_or(1 << 20)).unwrap_or(1 << 20);
    reserve_descriptor_table(limit);
    limit
}

/// Number of descriptors for which the kernel's table of this process has room from the start.
const DESCRIPTOR_TABLE_MIN: usize = 1 << 16;

/// Makes the kernel enlarge the descriptor table before files are created: with several threads,
/// each doubling of the table takes about ten milliseconds, in which no descriptor can be opened.
fn reserve_descriptor_table(limit: usize) {
    let last = limit.min(DESCRIPTOR_TABLE_MIN).saturating_sub(1);
    let Ok(last) = RawFd::try_from(last) else { return };
    // The table stays large after the close. A failure only costs time later.
    let any = std::io::stderr();
    if let Err(error) = rustix::io::fcntl_dupfd_cloexec(any, last) {
        tracing::debug!(%error, "the table of descriptors grows when it has to");
    }
}

impl Directory {
    fn close_listings(&self) {
        let closed = std::mem::take(&mut *self.listings.lock().expect("no holder panics"));
        // Closing a directory may delete it, which takes longer than the lock should be held.
        drop(closed);
    }

    pub(super) fn section(&self, file: &SourceFile) -> &Section {
        &self.sections[file.section()]
    }

    fn node(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.nodes.by_id(id)
    }
}
