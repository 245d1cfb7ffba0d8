//! Changes of the directory by other processes, as a watcher of the directory reports them.
//!
//! Invariant: the kernel caches names and attributes only while every change by other processes is
//! reported; once a change may have been missed, it does not.

use super::{Directory, Job, Node};
use larder_core::clock::Nanos;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// State of the reports of changes by other processes.
#[derive(Debug, Default)]
pub(super) struct ChangeWatcher {
    device: u64,
    is_connected: AtomicBool,
    has_missed: AtomicBool,
}

impl ChangeWatcher {
    /// Returns the state for files on a device, without reports yet.
    pub(super) fn new(device: u64) -> Self {
        ChangeWatcher { device, ..ChangeWatcher::default() }
    }

    /// Returns true if changes by other processes on a device are reported.
    pub(super) fn covers(&self, device: u64) -> bool {
        let is_connected =
            self.is_connected.load(Ordering::Acquire) && !self.has_missed.load(Ordering::Acquire);
        is_connected && device == self.device
    }
}

impl Directory {
    /// Returns true if other processes may change a node without a report. The kernel does not
    /// report changes by other clients of a network file system.
    pub(super) fn is_unwatched(&self, node: &Node) -> bool {
        self.is_remote || self.options.shared && !self.change_watcher.covers(node.device())
    }

    /// Returns true if a file has to be checked for changes before its cached data is read.
    pub(crate) fn must_check(&self, node: &Node, now: Nanos) -> bool {
        let age = || Duration::from_nanos(now.saturating_sub(node.file.checked_at()));
        self.is_unwatched(node) && age() >= self.options.ttl
    }
}

/// Receives reports of changes that other processes made in a mounted directory. Changes of unknown
/// nodes are ignored.
#[derive(Debug)]
pub struct ChangeEvents {
    directory: Arc<Directory>,
}

impl ChangeEvents {
    pub(crate) fn new(directory: Arc<Directory>) -> Self {
        directory.change_watcher.is_connected.store(true, Ordering::Release);
        ChangeEvents { directory }
    }

    fn queue(&self, device: u64, inode: u64, to_job: impl FnOnce(Arc<Node>) -> Job) {
        if let Some(node) = self.directory.nodes.by_inode(device, inode) {
            self.directory.pool.queue_notification(to_job(node));
        }
    }

    /// Reports a change of the contents of a file, identified by the numbers of stat(2).
    pub fn contents(&self, device: u64, inode: u64) {
        self.queue(device, inode, |node| Job::HandleChange { node, contents: true });
    }

    /// Reports a change of the attributes of a file or directory.
    pub fn attributes(&self, device: u64, inode: u64) {
        self.queue(device, inode, |node| Job::HandleChange { node, contents: false });
    }

    /// Reports that a name in a directory leads to another node now, or to none.
    pub fn name(&self, device: u64, directory: u64, name: CString) {
        self.queue(device, directory, |directory| Job::InvalidateEntry { directory, name });
    }

    /// Reports that changes may have been missed: from now on the kernel caches neither names nor
    /// attributes.
    pub fn missed(&self) {
        if self.directory.change_watcher.has_missed.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(
            "some changes behind the mount were not reported: from now on cached names and \
             attributes are checked at each use"
        );
        for node in self.directory.nodes.all() {
            self.directory.pool.queue_notification(Job::HandleChange { node, contents: true });
        }
    }
}

impl Drop for ChangeEvents {
    fn drop(&mut self) {
        self.directory.change_watcher.is_connected.store(false, Ordering::Release);
    }
}
