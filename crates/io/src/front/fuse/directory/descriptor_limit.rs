//! File descriptors of a mount: each inode that the kernel knows takes one, and the process has a
//! limit.
//!
//! The server makes the kernel forget files that no program has open, least recently looked up
//! first, as soon as inodes take half of the limit, and then closes their descriptors. At three
//! quarters, lookups wait for that. Directories are kept: the working directory of a program must
//! keep its name.

use super::answer::AnswerResult;
use super::{Directory, Job, Node};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Thresholds for forgetting inodes.
#[derive(Debug)]
pub(super) struct DescriptorLimit {
    /// Target number of inodes.
    nodes_max: usize,
    /// Number of inodes above which the kernel is next made to forget some; above the target while
    /// all are in use.
    prune_above: AtomicUsize,
    is_pruning: AtomicBool,
    /// Number of inodes at which lookups fail: the remaining descriptors are for data.
    full_at: usize,
}

impl DescriptorLimit {
    /// Returns the thresholds for a process with this limit of file descriptors.
    pub(super) fn new(limit: usize) -> Self {
        let nodes_max = limit / 2;
        let prune_above = AtomicUsize::new(nodes_max);
        let full_at = limit - limit / 4;
        DescriptorLimit { nodes_max, prune_above, is_pruning: AtomicBool::new(false), full_at }
    }

    pub(super) fn check_room(&self, nodes: usize) -> Result<(), Errno> {
        if nodes < self.full_at { Ok(()) } else { Err(Errno::MFILE) }
    }

    /// Returns true if the kernel has to forget some of `nodes` inodes.
    pub(super) fn exceeds_target(&self, nodes: usize) -> bool {
        if nodes <= self.nodes_max {
            self.prune_above.store(self.nodes_max, Ordering::Relaxed);
        }
        nodes > self.prune_above.load(Ordering::Relaxed)
    }
}

impl Directory {
    /// Starts forgetting inodes if there are too many, or if `result` reports that no descriptor
    /// is left; returns true in the latter case.
    pub(crate) fn prune_if_short(&self, result: &AnswerResult) -> bool {
        let is_short = matches!(result, Err(Errno::MFILE | Errno::NFILE));
        let must_prune = is_short || self.descriptor_limit.exceeds_target(self.nodes.len());
        if must_prune && !self.descriptor_limit.is_pruning.swap(true, Ordering::AcqRel) {
            self.pool.queue_notification(Job::PruneIdle);
        }
        is_short
    }

    /// Makes the kernel forget files. May wait for requests, so the calling thread must answer
    /// none.
    pub(super) fn prune_idle(&self) {
        let idle = self.nodes.idle(self.descriptor_limit.nodes_max / 4);
        for node in &idle {
            node.file.rest();
        }
        let numbers: Vec<_> = idle.iter().map(|node| node.id).collect();
        if !self.kernel.prune(&numbers) {
            self.invalidate_names(&idle);
        }
        // Files that the kernel still knows are in use; it is notified again when there are more.
        let more = self.descriptor_limit.nodes_max / 16 + 1;
        let next = (self.nodes.len() + more).max(self.descriptor_limit.nodes_max);
        self.descriptor_limit.prune_above.store(next, Ordering::Relaxed);
        self.descriptor_limit.is_pruning.store(false, Ordering::Release);
    }

    /// Makes kernels before Linux 6.18 forget files. This waits for the lock of a directory, which
    /// a lookup that waits for descriptors holds until it times out.
    pub(super) fn invalidate_names(&self, idle: &[Arc<Node>]) {
        for (directory, name) in idle.iter().filter_map(|node| self.parent_and_name(node)) {
            self.kernel.invalidate_entry(directory, &name);
        }
    }

    /// Returns the directory and the name under which the kernel is likely to know a file.
    fn parent_and_name(&self, node: &Node) -> Option<(u64, CString)> {
        let target = rustix::fs::readlink(node.file.link(), Vec::new()).ok()?;
        let target = target.as_bytes();
        // The kernel appends this to the last name of a deleted file.
        let deleted = target.strip_suffix(b" (deleted)").filter(|_| node.has_no_name());
        let path = Path::new(std::ffi::OsStr::from_bytes(deleted.unwrap_or(target)));
        let name = CString::new(path.file_name()?.as_bytes()).ok()?;
        let parent = rustix::fs::statat(CWD, path.parent()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let parent = self.nodes.by_inode(parent.st_dev, parent.st_ino)?;
        Some((parent.id, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_not_asked_again_and_again_for_what_it_uses() {
        let descriptors = DescriptorLimit::new(1000);
        assert!(!descriptors.exceeds_target(500) && descriptors.exceeds_target(501));
        descriptors.prune_above.store(560, Ordering::Relaxed);
        assert!(!descriptors.exceeds_target(560), "all of these are used");
        assert!(descriptors.exceeds_target(561), "these may not be");
        assert!(!descriptors.exceeds_target(400));
        assert!(descriptors.exceeds_target(501), "it had got fewer meanwhile");
    }
}
