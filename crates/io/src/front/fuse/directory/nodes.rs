//! The nodes that the kernel knows, and those that have cached data.
//!
//! Invariants: an inode of the directory has one node as long as it is known, so that it is cached
//! once whatever its names are; a node's number is never reused. A node whose inode has no name any
//! more is dropped when the kernel has forgotten it. If a server reuses the number of an inode, the
//! new inode has a node of its own.

use super::super::abi;
use super::super::passthrough::BackingFile;
use super::crossing::RestrictionFollower;
use super::generation::Generation;
use super::is_remote;
use super::rules::Rules;
use crate::mount_table::mount_id;
use crate::store::files::{Attributes, SourceFile, link_to};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

pub(super) type InodeKey = (u64, u64);

/// An inode of the directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) file: Arc<SourceFile>,
    pub(super) backing: BackingFile,
    pub(super) key: InodeKey,
    /// Generation of the inode on a server, which may reuse its number.
    generation: Option<Generation>,
    kind: FileType,
    /// Lock on the inode as long as the node is known, if the inode has several names.
    lock: Mutex<Option<OwnedFd>>,
    /// True while a retirement of a node without a name waits for a thread.
    is_retiring: AtomicBool,
    /// Key of the node in [`NodeTable::still_cached`].
    forgotten_at: AtomicU64,
}

impl Node {
    /// Returns true if the inode has at most one name.
    pub(super) fn has_one_name(&self) -> bool {
        rustix::fs::fstat(self.file.path()).is_ok_and(|stat| stat.st_nlink < 2)
    }

    pub(super) fn has_no_name(&self) -> bool {
        rustix::fs::fstat(self.file.path()).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Returns true if the caller has to queue the retirement of the node: no other one is queued.
    pub(super) fn begin_retirement(&self) -> bool {
        !self.is_retiring.swap(true, Ordering::AcqRel)
    }

    /// Records the end of a retirement, successful or not.
    pub(super) fn end_retirement(&self) {
        self.is_retiring.store(false, Ordering::Release);
    }

    /// Locks an inode that has several names (hard links), since another name may lie in a
    /// directory that another process caches. It stays locked as long as some of its data may be
    /// cached. `has_one_name` has just been read.
    ///
    /// # Errors
    /// If another process has locked it; returns the descriptor, whose lock is the other one.
    pub(super) fn lock_links(&self, read_only: bool, has_one_name: bool) -> Result<(), OwnedFd> {
        if has_one_name || !self.is_regular() {
            return Ok(());
        }
        // Held until the lock is stored: to another request of this process it would look like the
        // lock of another process.
        let mut slot = self.lock_slot();
        if slot.is_some() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Without read permission, only data written through the mount can be in the cache.
        let opened = rustix::fs::open(self.file.link(), flags, Mode::empty());
        let Ok(descriptor) = opened else { return Ok(()) };
        let lock = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        if rustix::fs::flock(&descriptor, lock) == Err(Errno::AGAIN) {
            return Err(descriptor);
        }
        *slot = Some(descriptor);
        Ok(())
    }

    /// Unlocks the inode, although a thread may still use the node.
    fn unlock_links(&self) {
        if let Some(descriptor) = self.lock_slot().as_ref() {
            let unlocked = rustix::fs::flock(descriptor, FlockOperation::Unlock);
            debug_assert!(unlocked.is_ok(), "{unlocked:?}");
        }
    }

    fn lock_slot(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.lock.lock().expect("no holder panics")
    }

    pub(super) fn is_regular(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(super) fn device(&self) -> u64 {
        self.key.0
    }

    pub(super) fn is_link(&self) -> bool {
        self.kind == FileType::Symlink
    }
}

#[derive(Debug, Default)]
struct NodeTable {
    /// Nodes, each with the number of lookups that the kernel has not forgotten.
    by_id: HashMap<u64, (Arc<Node>, u64)>,
    by_key: HashMap<InodeKey, u64>,
    /// Named nodes that the kernel has forgotten and that have cached data, in the order in which
    /// it forgot them.
    still_cached: BTreeMap<u64, Arc<Node>>,
    /// Next key of `still_cached`.
    next_forgotten: u64,
    next: u64,
    /// True if files can be reopened whatever their modes become.
    reopens: bool,
}

pub(crate) struct Nodes {
    table: Mutex<NodeTable>,
    len: AtomicUsize,
    /// Rules that assign files to sections.
    pub(super) rules: Rules,
    /// Device of the directory itself.
    pub(super) device: u64,
    is_remote: bool,
    /// See [`Nodes::deferred_size_max`].
    deferred_size_max: u64,
    /// Checks names that lead into other mounts; set before any request is answered.
    pub(super) follower: OnceLock<Arc<RestrictionFollower>>,
}

pub(super) fn key_of(stat: &Stat) -> InodeKey {
    (stat.st_dev, stat.st_ino)
}

/// Returns a descriptor of the file that a name leads to; a symbolic link is not followed.
pub(super) fn open_path(parent: &Node, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent.file.path(), name, flags, Mode::empty())
}

pub(super) fn with_stat(path: OwnedFd) -> Result<(OwnedFd, Stat), Errno> {
    let stat = rustix::fs::fstat(&path)?;
    Ok((path, stat))
}

impl Nodes {
    /// Returns the table with the root node, which is never forgotten.
    pub(super) fn new(root: OwnedFd, rules: Rules, reopens: bool) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let mut table = NodeTable { next: abi::ROOT, reopens, ..NodeTable::default() };
        let deferred_size_max = deferred_size_max(&root)?;
        let is_remote = is_remote(&root);
        let generation = is_remote.then(|| Generation::of(&root));
        table.add(root, &stat, generation, &rules);
        let (table, len) = (Mutex::new(table), AtomicUsize::new(1));
        let (device, follower) = (stat.st_dev, OnceLock::new());
        Ok(Nodes { table, len, rules, device, is_remote, deferred_size_max, follower })
    }

    fn table(&self) -> MutexGuard<'_, NodeTable> {
        self.table.lock().expect("no holder panics")
    }

    pub(super) fn by_id(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.table().by_id.get(&id).map(|(node, _)| Arc::clone(node)).ok_or(Errno::STALE)
    }

    pub(super) fn by_inode(&self, device: u64, ino: u64) -> Option<Arc<Node>> {
        let table = self.table();
        let id = table.by_key.get(&(device, ino))?;
        table.by_id.get(id).map(|(node, _)| Arc::clone(node))
    }

    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.table().by_id.values().map(|(node, _)| Arc::clone(node)).collect()
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.table().by_id.keys().copied().collect()
    }

    /// Returns the nodes of these numbers that still exist, each with true if the kernel knows it.
    pub(super) fn by_ids(&self, numbers: &[u64]) -> Vec<(Arc<Node>, bool)> {
        let table = self.table();
        let found = numbers.iter().filter_map(|id| table.by_id.get(id));
        found.map(|(node, count)| (Arc::clone(node), *count > 0)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns nodes other than directories that the kernel knows and no program has open: at most
    /// `count_max`, least recently looked up first.
    pub(super) fn idle(&self, count_max: usize) -> Vec<Arc<Node>> {
        let table = self.table();
        let is_idle = |node: &Node| node.kind != FileType::Directory && !node.file.is_open();
        let idle = table.by_id.values().filter(|(node, count)| *count > 0 && is_idle(node));
        let mut idle: Vec<_> = idle.map(|(node, _)| Arc::clone(node)).collect();
        drop(table);
        idle.sort_unstable_by_key(|node| node.id);
        idle.truncate(count_max);
        idle
    }

    /// Returns the node that a name leads to, if it is known, without counting a lookup.
    pub(super) fn known_by_name(
        &self,
        parent: &Node,
        name: &CStr,
    ) -> Result<Option<Arc<Node>>, Errno> {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(parent.file.path(), name, flags)?;
        let Some(node) = self.by_inode(stat.st_dev, stat.st_ino) else { return Ok(None) };
        let is_same = node.generation.is_none()
            || node.generation == self.generation(&open_path(parent, name)?, &stat);
        Ok(is_same.then_some(node))
    }

    /// Returns the generation of an inode on a server; a local one is known by its number alone.
    fn generation(&self, path: &OwnedFd, stat: &Stat) -> Option<Generation> {
        let is_remote = if stat.st_dev == self.device { self.is_remote } else { is_remote(path) };
        is_remote.then(|| Generation::of(path))
    }

    /// Does the same as [`open_path`]. A name that leads into another mount is checked first.
    fn path_beyond_mounts(&self, parent: &Node, name: &CStr) -> Result<OwnedFd, Errno> {
        let Some(follower) = self.follower.get() else { return open_path(parent, name) };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (parent_path, mode) = (parent.file.path(), Mode::empty());
        match rustix::fs::openat2(parent_path, name, flags, mode, ResolveFlags::NO_XDEV) {
            // Containers may forbid openat2(2).
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM) => {
                let path = open_path(parent, name)?;
                if mount_id(parent_path) != mount_id(&path) {
                    follower.cross(path.as_fd())?;
                }
                Ok(path)
            }
            opened => opened,
        }
    }

    /// Opens the inode that a name leads to, for [`Nodes::get_or_insert`].
    pub(super) fn open_by_name(
        &self,
        parent: &Node,
        name: &CStr,
    ) -> Result<(OwnedFd, Stat), Errno> {
        with_stat(self.path_beyond_mounts(parent, name)?)
    }

    /// Returns the node of the inode of `path`, whose stat(2) data is `stat`. It counts as looked
    /// up until the kernel has forgotten it as often.
    pub(super) fn get_or_insert(
        &self,
        path: OwnedFd,
        stat: Stat,
    ) -> Result<(Arc<Node>, Attributes), Errno> {
        let generation = self.generation(&path, &stat);
        let mut table = self.table();
        let id = table.by_key.get(&key_of(&stat)).copied();
        if let Some((node, count)) = id.and_then(|id| table.by_id.get_mut(&id))
            && node.generation == generation
        {
            *count += 1;
            let (node, is_known_again) = (Arc::clone(node), *count == 1);
            if is_known_again {
                table.remove_cached(&node);
            }
            drop(table);
            let attributes = node.file.attributes();
            if attributes.is_err() {
                // Of a node that no reply names the kernel knows nothing.
                self.forget(node.id, 1);
            }
            return Ok((node, attributes?));
        }
        let node = table.add(path, &stat, generation, &self.rules);
        self.len.store(table.by_id.len(), Ordering::Relaxed);
        drop(table);
        let attributes = node.file.attributes_from(stat);
        Ok((node, attributes))
    }

    /// Subtracts `count` from the kernel's lookups of a node that the kernel knows. Drops the node
    /// if the kernel knows it no more, but keeps and returns it if it has cached data.
    pub(super) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        let mut table = self.table();
        let (node, left) = table.by_id.get_mut(&id)?;
        if *left == 0 {
            return None;
        }
        *left = left.saturating_sub(count);
        if *left > 0 || id == abi::ROOT {
            return None;
        }
        if node.file.has_segments() {
            return Some(Arc::clone(node));
        }
        let gone = table.remove(id);
        self.len.store(table.by_id.len(), Ordering::Relaxed);
        drop(table);
        // Closing it may delete a file, which takes longer than the lock should be held.
        drop(gone);
        None
    }

    /// Records that the kernel has just forgotten a node with cached data. If there are more than
    /// `count_max` of such nodes, removes the one that it forgot first from the record and returns
    /// it.
    pub(super) fn add_cached(&self, node: &Arc<Node>, count_max: usize) -> Option<Arc<Node>> {
        let mut table = self.table();
        // Meanwhile the kernel may have looked it up.
        if !matches!(table.by_id.get(&node.id), Some((_, 0))) {
            return None;
        }
        table.remove_cached(node);
        let key = table.next_forgotten;
        table.next_forgotten += 1;
        node.forgotten_at.store(key, Ordering::Relaxed);
        table.still_cached.insert(key, Arc::clone(node));
        if table.still_cached.len() <= count_max {
            return None;
        }
        table.still_cached.pop_first().map(|(_, oldest)| oldest)
    }

    /// Drops a node without cached data, unless the kernel knows it again, or it was opened since
    /// the number of its opens was `openings`: then it may have cached data. Calls `on_drop` before
    /// the kernel can look the inode up again.
    pub(super) fn drop_unused(&self, node: &Node, openings: u64, on_drop: impl FnOnce()) {
        let mut table = self.table();
        let is_unused = !node.file.is_open() && node.file.openings() == openings;
        if is_unused && matches!(table.by_id.get(&node.id), Some((_, 0))) {
            table.remove(node.id);
            self.len.store(table.by_id.len(), Ordering::Relaxed);
            on_drop();
        }
    }

    /// Returns the size up to which a file grows in the cache first: the file system supports this
    /// size for every file. A write that makes the file longer extends it in the directory at once,
    /// and fails if the file system does not support the size.
    pub(crate) fn deferred_size_max(&self, node: &Node) -> u64 {
        if node.key.0 == self.device { self.deferred_size_max } else { DEFERRED_SIZE_MAX_DEFAULT }
    }

    /// Returns the number of an inode as programs see it: that of the directory, made unique where
    /// other file systems are mounted inside of it.
    pub(super) fn ino(&self, device: u64, ino: u64) -> u64 {
        if device == self.device {
            return ino;
        }
        // Any fixed mixture that keeps small numbers distinct.
        ino ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_0000_0000_0000
    }
}

/// As [`Nodes::deferred_size_max`], for file systems inside of the directory: the maximum size of a
/// file on the file systems in use that limit it most.
const DEFERRED_SIZE_MAX_DEFAULT: u64 = (2 << 30) - 1;

/// Returns [`Nodes::deferred_size_max`] of the file system of a directory.
fn deferred_size_max(directory: &OwnedFd) -> Result<u64, Errno> {
    // Magic numbers of include/uapi/linux/magic.h: XFS, btrfs, tmpfs, F2FS and overlayfs; and ext2
    // to ext4, where ext2 with small blocks holds less (fs/ext2/super.c).
    let system = rustix::fs::fstatfs(directory)?;
    let is_large = match system.f_type {
        0x5846_5342 | 0x9123_683e | 0x0102_1994 | 0xf2f5_2010 | 0x794c_7630 => true,
        0xef53 => system.f_bsize >= 4096,
        _ => is_remote(directory),
    };
    Ok(if is_large { 1 << 40 } else { DEFERRED_SIZE_MAX_DEFAULT })
}

impl NodeTable {
    fn add(
        &mut self,
        path: OwnedFd,
        stat: &Stat,
        generation: Option<Generation>,
        rules: &Rules,
    ) -> Arc<Node> {
        let (id, key) = (self.next, key_of(stat));
        self.next += 1;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_regular = kind == FileType::RegularFile;
        let section = if is_regular { rules.section(&link_to(&path)) } else { 0 };
        let file = Arc::new(SourceFile::new(path, section, self.reopens));
        let (backing, lock) = (BackingFile::default(), Mutex::new(None));
        let (is_retiring, forgotten_at) = (AtomicBool::new(false), AtomicU64::new(0));
        let node =
            Node { id, file, backing, key, generation, kind, lock, is_retiring, forgotten_at };
        let node = Arc::new(node);
        self.by_id.insert(id, (Arc::clone(&node), 1));
        self.by_key.insert(key, id);
        node
    }

    /// Removes a node. Its file is closed with its last reference; the next node of the inode can
    /// lock it at once.
    fn remove(&mut self, id: u64) -> Option<Arc<Node>> {
        let (node, _) = self.by_id.remove(&id)?;
        self.remove_cached(&node);
        node.unlock_links();
        if self.by_key.get(&node.key) == Some(&id) {
            self.by_key.remove(&node.key);
        }
        Some(node)
    }

    /// Removes a node from the record of forgotten nodes, if it is there.
    fn remove_cached(&mut self, node: &Node) {
        let key = node.forgotten_at.load(Ordering::Relaxed);
        if self.still_cached.get(&key).is_some_and(|it| it.id == node.id) {
            self.still_cached.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::directory::LockedDirectory;
    use crate::store::files::FileTable;
    use std::sync::Barrier;

    /// Returns the nodes of a directory with one file.
    fn nodes() -> (tempfile::TempDir, Nodes) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), "text").unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        let rules = Rules::new(&[], directory.path().display().to_string());
        (directory, Nodes::new(root, rules, true).unwrap())
    }

    fn look_up(nodes: &Nodes) -> Arc<Node> {
        let root = nodes.by_id(abi::ROOT).unwrap();
        let (path, stat) = nodes.open_by_name(&root, c"f").unwrap();
        nodes.get_or_insert(path, stat).unwrap().0
    }

    #[test]
    fn an_inode_of_a_server_that_has_the_number_of_another_has_its_own_node() {
        let (directory, mut nodes) = nodes();
        std::fs::write(directory.path().join("g"), "text").unwrap();
        nodes.is_remote = true;
        let root = nodes.by_id(abi::ROOT).unwrap();
        let old = look_up(&nodes);
        assert_eq!(old.id, look_up(&nodes).id);
        let (path, mut stat) = nodes.open_by_name(&root, c"g").unwrap();
        stat.st_ino = old.key.1;
        let (new, _) = nodes.get_or_insert(path, stat).unwrap();
        assert_ne!(old.id, new.id);
        assert!(nodes.known_by_name(&root, c"f").unwrap().is_none(), "its number is the other's");
        nodes.forget(old.id, 2);
        assert_eq!(nodes.by_inode(old.key.0, old.key.1).unwrap().id, new.id);
    }

    #[test]
    fn requests_that_open_a_file_with_several_names_together_share_its_lock() {
        let (_directory, nodes) = nodes();
        for _ in 0..larder_testing::budget(2_000, 20_000) {
            let (node, together) = (look_up(&nodes), Barrier::new(2));
            let lock = || {
                together.wait();
                node.lock_links(false, false).map_err(drop)
            };
            let locked = std::thread::scope(|scope| {
                let other = scope.spawn(lock);
                (lock(), other.join().unwrap())
            });
            assert_eq!(locked, (Ok(()), Ok(())));
            nodes.forget(node.id, 1);
        }
    }

    #[test]
    fn a_node_that_is_forgotten_unlocks_the_file_while_it_is_still_used() {
        let (_directory, nodes) = nodes();
        let node = look_up(&nodes);
        node.lock_links(false, false).unwrap();
        assert!(nodes.forget(node.id, 1).is_none());
        look_up(&nodes).lock_links(false, false).unwrap();
    }

    /// Returns nodes of new files of a directory that may have cached data, looked up once.
    fn nodes_with_data(
        directory: &tempfile::TempDir,
        nodes: &Nodes,
        names: &[&CStr],
    ) -> Vec<Arc<Node>> {
        let root = nodes.by_id(abi::ROOT).unwrap();
        let path = directory.path().canonicalize().unwrap();
        let locked = LockedDirectory::open(&path, false).unwrap();
        let files = FileTable::new(Arc::new(locked), path.clone(), false);
        let node = |name: &&CStr| {
            std::fs::write(path.join(name.to_str().unwrap()), "text").unwrap();
            let (path, stat) = nodes.open_by_name(&root, name).unwrap();
            let (node, _) = nodes.get_or_insert(path, stat).unwrap();
            files.place(&node.file, 0).unwrap();
            node
        };
        names.iter().map(node).collect()
    }

    #[test]
    fn the_node_that_was_forgotten_first_and_not_looked_up_again_leaves_first() {
        let (directory, nodes) = nodes();
        let known = nodes_with_data(&directory, &nodes, &[c"a", c"b", c"c"]);
        let forget = |node: &Arc<Node>| {
            let forgotten = nodes.forget(node.id, 1).expect("it may have cached data");
            nodes.add_cached(&forgotten, 2).map(|oldest| oldest.id)
        };
        let look_up = |name: &CStr| {
            let root = nodes.by_id(abi::ROOT).unwrap();
            let (path, stat) = nodes.open_by_name(&root, name).unwrap();
            nodes.get_or_insert(path, stat).unwrap();
        };
        assert_eq!((forget(&known[0]), forget(&known[1])), (None, None));
        for _ in 0..10 {
            look_up(c"a");
            assert_eq!(forget(&known[0]), None, "each node counts once");
        }
        assert_eq!(nodes.table().still_cached.len(), 2);
        assert_eq!(forget(&known[2]), Some(known[1].id));
        for node in &known {
            nodes.drop_unused(node, node.file.openings(), || {});
        }
        assert!(nodes.table().still_cached.is_empty(), "a node that is dropped leaves the record");
    }

    #[test]
    fn a_node_that_was_used_meanwhile_does_not_leave() {
        let (directory, nodes) = nodes();
        let look_up = || look_up(&nodes);
        let node = nodes_with_data(&directory, &nodes, &[c"f"]).remove(0);
        assert!(nodes.forget(node.id, 1).is_some());
        assert!(nodes.forget(node.id, 1).is_none(), "it is forgotten once");
        let before = node.file.openings();
        // These events follow after the data of the file was written and discarded from the cache.
        look_up();
        node.file.opened();
        nodes.drop_unused(&node, before, || panic!("the kernel knows it"));
        node.file.closed();
        assert!(nodes.forget(node.id, 1).is_some());
        nodes.drop_unused(&node, before, || panic!("something may be cached"));
        let mut has_left = false;
        nodes.drop_unused(&node, node.file.openings(), || has_left = true);
        assert!(has_left);
        assert!(nodes.by_id(node.id).is_err());
    }
}
