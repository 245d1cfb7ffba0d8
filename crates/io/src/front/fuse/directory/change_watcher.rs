//! News: what others have changed in the directory, told by somebody who knows.
//!
//! Invariant: names and attributes are believed for a while only as long as every change by others
//! is told; once one may have been missed they are not.

use super::blocking_pool::{BlockingPool, Job};
use super::{Directory, Node};
use larder_core::clock::Nanos;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether we are told what others change.
#[derive(Debug)]
pub(super) struct ChangeWatcher {
    /// On this device alone.
    device: u64,
    come: AtomicBool,
    missed: AtomicBool,
}

impl ChangeWatcher {
    /// Not yet, of files on a device.
    pub(super) fn none(device: u64) -> Self {
        ChangeWatcher { device, come: AtomicBool::new(false), missed: AtomicBool::new(false) }
    }

    /// Whether what others change on a device is told.
    pub(super) fn covers(&self, device: u64) -> bool {
        let come = self.come.load(Ordering::Acquire) && !self.missed.load(Ordering::Acquire);
        come && device == self.device
    }
}

impl Directory {
    /// Returns whether others may change a node without a report. The kernel does not report what
    /// other clients of a network file system change.
    pub(super) fn is_unwatched(&self, node: &Node) -> bool {
        self.is_remote || self.options.shared && !self.news.covers(node.device())
    }

    /// Returns whether a file has to be checked for changes before its cached data is read.
    pub(super) fn must_check(&self, node: &Node, now: Nanos) -> bool {
        let age = || Duration::from_nanos(now.saturating_sub(node.file.checked_at()));
        self.is_unwatched(node) && age() >= self.options.ttl
    }
}

/// Tells a mounted directory what others have changed in it. What is not known of there is no news.
#[derive(Debug)]
pub struct ChangeEvents {
    directory: Arc<Directory>,
    pool: BlockingPool,
}

impl ChangeEvents {
    pub(super) fn new(directory: Arc<Directory>, pool: BlockingPool) -> Self {
        directory.news.come.store(true, Ordering::Release);
        ChangeEvents { directory, pool }
    }

    fn of(&self, device: u64, inode: u64, tell: impl FnOnce(Arc<Node>) -> Job) {
        if let Some(node) = self.directory.nodes.of(device, inode) {
            self.pool.queue_notification(tell(node));
        }
    }

    /// Others have changed the bytes of a file, named by the numbers of stat(2).
    pub fn contents(&self, device: u64, inode: u64) {
        self.of(device, inode, |node| Job::Changed { node, contents: true });
    }

    /// Others have changed attributes of a file or directory.
    pub fn attributes(&self, device: u64, inode: u64) {
        self.of(device, inode, |node| Job::Changed { node, contents: false });
    }

    /// Others have changed what a name in a directory leads to.
    pub fn name(&self, device: u64, directory: u64, name: CString) {
        self.of(device, directory, |directory| Job::Renamed { directory, name });
    }

    /// Others may have changed anything: from now on nothing is believed without asking.
    pub fn missed(&self) {
        if self.directory.news.missed.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(
            "not all changes behind the mount could be told: from now on nothing is believed \
             without asking"
        );
        for node in self.directory.nodes.all() {
            self.pool.queue_notification(Job::Changed { node, contents: true });
        }
    }
}

impl Drop for ChangeEvents {
    fn drop(&mut self) {
        self.directory.news.come.store(false, Ordering::Release);
    }
}
