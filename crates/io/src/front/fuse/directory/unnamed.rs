//! Files and directories that have lost their last name in SOURCE. While this process has a
//! descriptor of such a file, the file system keeps its space, and users cannot free it in another
//! way.
//!
//! The kernel reports the removals through the mount, and forgets these files itself. It does not
//! notice removals in SOURCE, and after the end of the mount it reports nothing. So one thread
//! checks some nodes every few seconds: it makes the kernel forget nodes that have no name and that
//! no program uses, and retires nodes without a name that the kernel has forgotten. Their unwritten
//! data is dropped, as no program can read it.
//!
//! Invariants: files that a program has open or mapped stay, since the kernel alone decides which
//! nodes it forgets; no lock is held during a system call on SOURCE.

use super::generation::statx_with;
use super::{Directory, Job, Node};
use crate::engine::Engine;
use crate::fault::{self, Thread};
use crate::front::fuse::abi;
use crate::store::files::is_some_device_full;
use rustix::fs::{AtFlags, StatxFlags};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) const SWEEPER: &str = "sweeper";

/// Maximum number of nodes that one sweep checks: some milliseconds.
const NODES_MAX: usize = 1 << 12;

/// Maximum number of nodes per sweep while space is short, or after the end of the mount.
const NODES_MAX_URGENT: usize = 1 << 16;

/// Number of nodes that are taken from the table at a time.
const BATCH_NODES: usize = 256;

const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct SweepState {
    /// True if the kernel sends no requests any more.
    is_gone: bool,
    has_ended: bool,
}

/// Control of the thread that looks for nodes without a name.
#[derive(Debug, Default)]
pub(crate) struct SweepControl {
    state: Mutex<SweepState>,
    changed: Condvar,
    /// True while a notification that makes the kernel forget nodes is queued or in progress.
    pub(super) is_pruning: AtomicBool,
}

impl SweepControl {
    fn state(&self) -> MutexGuard<'_, SweepState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the mount is gone: no program can reach its files any more.
    pub(crate) fn set_gone(&self) {
        self.state().is_gone = true;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next sweep; returns true if the mount is gone, or `None` at the end.
    pub(super) fn wait(&self, was_gone: bool) -> Option<bool> {
        let is_unchanged = |state: &mut SweepState| !state.has_ended && state.is_gone == was_gone;
        let waited = self.changed.wait_timeout_while(self.state(), PAUSE, is_unchanged);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.has_ended).then_some(state.is_gone)
    }
}

/// The thread that looks for nodes without a name.
pub(super) struct Sweeper {
    directory: Arc<Directory>,
    /// Numbers of the nodes that are not checked yet in this pass over all nodes.
    pending: Vec<u64>,
}

impl Sweeper {
    pub(super) fn start(engine: &Engine, directory: &Arc<Directory>) -> io::Result<Thread> {
        let failure = Arc::clone(&directory.pool.failure);
        let sweeper = Sweeper { directory: Arc::clone(directory), pending: Vec::new() };
        let failed = move |error: &dyn fmt::Display| failure.fail(error);
        fault::spawn(SWEEPER, Some(engine.cache()), || sweeper.run(), failed)
    }

    fn run(mut self) {
        let mut is_gone = false;
        while let Some(now_gone) = self.directory.pool.sweep.wait(is_gone) {
            is_gone = now_gone;
            fault::point(SWEEPER, self.directory.pool.failure.name());
            self.sweep_nodes(is_gone);
        }
    }

    fn sweep_nodes(&mut self, is_gone: bool) {
        let is_urgent = is_gone || is_some_device_full();
        let nodes_max = if is_urgent { NODES_MAX_URGENT } else { NODES_MAX };
        if is_gone {
            self.directory.close_listings();
        }
        if self.pending.is_empty() {
            self.pending = self.directory.nodes.ids();
        }
        let first = self.pending.len().saturating_sub(nodes_max);
        let checked = self.pending.split_off(first);
        let mut to_prune = Vec::new();
        for numbers in checked.chunks(BATCH_NODES) {
            for (node, is_known) in self.directory.nodes.by_ids(numbers) {
                self.check_node(node, is_known, is_gone, &mut to_prune);
            }
        }
        // A notification may have to wait for requests; no second one is sent before it is done.
        let pool = &self.directory.pool;
        if !to_prune.is_empty() && !pool.sweep.is_pruning.swap(true, Ordering::AcqRel) {
            pool.queue_notification(Job::ForgetUnnamed(to_prune));
        }
    }

    /// Checks a node, which the kernel knows or has forgotten. Adds it to `to_prune` if the kernel
    /// has to forget it.
    fn check_node(
        &self,
        node: Arc<Node>,
        is_known: bool,
        is_gone: bool,
        to_prune: &mut Vec<Arc<Node>>,
    ) {
        if node.id == abi::ROOT {
            return;
        }
        if is_gone {
            // The kernel reports neither the last close nor the forget.
            if node.file.close_all() {
                node.backing.close(u32::MAX, &self.directory.passthrough);
                self.directory.last_close(Arc::clone(&node));
            }
            if is_known {
                self.directory.forget(node.id, u64::MAX);
                return;
            }
        }
        if node.file.is_open() || !has_no_link(&node) {
            return;
        }
        if is_known {
            to_prune.push(node);
        } else if node.has_no_name() && node.begin_retirement() {
            // No name leads to it, so that the kernel cannot look it up again.
            node.file.die();
            self.directory.pool.send(Job::Retire(node));
        }
    }
}

/// Returns true if a node has no name in SOURCE, as far as this machine knows without a request to
/// a server.
fn has_no_link(node: &Node) -> bool {
    let found = statx_with(node.file.path(), AtFlags::STATX_DONT_SYNC, StatxFlags::NLINK);
    found.is_some_and(|found| found.stx_nlink == 0)
}

impl Directory {
    /// Makes the kernel forget nodes that have no name in SOURCE, unless programs use them. May
    /// wait for requests, so the calling thread must answer none.
    pub(super) fn forget_unnamed(&self, nodes: &[Arc<Node>]) {
        let numbers: Vec<_> = nodes.iter().map(|node| node.id).collect();
        if !self.kernel.prune(&numbers) {
            self.invalidate_names(nodes);
        }
        self.pool.sweep.is_pruning.store(false, Ordering::Release);
    }
}
