//! File descriptors of a mount: each inode that the kernel knows takes one, and the process has a
//! limit.
//!
//! When half of the limit is taken by inodes, the kernel is asked to forget names of files that no
//! program has open, the ones it looked up first; when it has, their descriptors are closed. With
//! three quarters, look-ups wait for that. Directories are left alone: the working directory of a
//! program must keep its name.

use super::clerk::{Clerks, Job};
use super::requests::Answered;
use super::{Folder, Node};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// When inodes are forgotten.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// More inodes than this are too many.
    nodes_max: usize,
    /// With so many the kernel is asked next. More than the most while it uses all of them.
    crowded_at: AtomicUsize,
    /// Whether it is being asked.
    is_asked: AtomicBool,
    /// With so many no more are looked up: the rest is for data.
    full_at: usize,
}

impl Descriptors {
    /// For a process that may have so many.
    pub(super) fn new(limit: usize) -> Self {
        let nodes_max = limit / 2;
        let crowded_at = AtomicUsize::new(nodes_max);
        let full_at = limit - limit / 4;
        Descriptors { nodes_max, crowded_at, is_asked: AtomicBool::new(false), full_at }
    }

    /// Returns an error if no more inodes are to be known than these.
    pub(super) fn check_room(&self, nodes: usize) -> Result<(), Errno> {
        if nodes < self.full_at { Ok(()) } else { Err(Errno::MFILE) }
    }

    /// Whether the kernel is to be asked now, with so many inodes.
    pub(super) fn is_crowded(&self, nodes: usize) -> bool {
        if nodes <= self.nodes_max {
            self.crowded_at.store(self.nodes_max, Ordering::Relaxed);
        }
        nodes > self.crowded_at.load(Ordering::Relaxed)
    }
}

impl Folder {
    /// Has inodes forgotten if there are too many, or if an answer says that there is no descriptor
    /// left; whether it does.
    pub(super) fn watch_descriptors(&self, clerks: &Clerks, answered: &Answered) -> bool {
        let is_short = matches!(answered, Err(Errno::MFILE | Errno::NFILE));
        let wanted = is_short || self.descriptors.is_crowded(self.nodes.len());
        if wanted && !self.descriptors.is_asked.swap(true, Ordering::AcqRel) {
            clerks.tell(Job::Shed);
        }
        is_short
    }

    /// Asks the kernel to forget files. May wait for requests, so the caller must answer none.
    pub(super) fn shed(&self) {
        let idle = self.nodes.idle(self.descriptors.nodes_max / 4);
        for node in &idle {
            node.file.rest();
        }
        let numbers: Vec<_> = idle.iter().map(|node| node.id).collect();
        if !self.kernel.prune(&numbers) {
            self.shed_names(&idle);
        }
        // Files that the kernel still knows are in use; it is asked again when there are some more.
        let more = self.descriptors.nodes_max / 16 + 1;
        let next = (self.nodes.len() + more).max(self.descriptors.nodes_max);
        self.descriptors.crowded_at.store(next, Ordering::Relaxed);
        self.descriptors.is_asked.store(false, Ordering::Release);
    }

    /// Asks kernels before Linux 6.18 to forget files. That waits for the lock of a directory,
    /// which a look-up that waits for descriptors holds until it gives up.
    fn shed_names(&self, idle: &[Arc<Node>]) {
        for (directory, name) in idle.iter().filter_map(|node| self.place_of(node)) {
            self.kernel.renamed(directory, &name);
        }
    }

    /// The directory and the name under which the kernel is likely to know a file.
    fn place_of(&self, node: &Node) -> Option<(u64, CString)> {
        let place = rustix::fs::readlink(node.file.link(), Vec::new()).ok()?;
        let path = Path::new(std::ffi::OsStr::from_bytes(place.as_bytes()));
        let name = CString::new(path.file_name()?.as_bytes()).ok()?;
        let parent = rustix::fs::statat(CWD, path.parent()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let parent = self.nodes.of(parent.st_dev, parent.st_ino)?;
        Some((parent.id, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_not_asked_again_and_again_for_what_it_uses() {
        let descriptors = Descriptors::new(1000);
        assert!(!descriptors.is_crowded(500) && descriptors.is_crowded(501));
        descriptors.crowded_at.store(560, Ordering::Relaxed);
        assert!(!descriptors.is_crowded(560), "all of these are used");
        assert!(descriptors.is_crowded(561), "these may not be");
        assert!(!descriptors.is_crowded(400));
        assert!(descriptors.is_crowded(501), "it had got fewer meanwhile");
    }
}
