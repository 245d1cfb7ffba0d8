//! The parts of a mount's start and end that concern the directory.

use super::super::mount::Mount;
use super::super::mount_failure::MountFailure;
use super::crossing::{RestrictionFollower, path_now};
use super::{Directory, blocking_pool};
use crate::engine::{ArenaVolume, Engine};
use crate::mount_table::{self, MountRestrictions, MountWatch};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

impl Directory {
    /// Assigns the volumes to the sections and starts the threads that may wait.
    pub(crate) fn begin(
        mut self,
        engine: &Arc<Engine>,
        volumes: &[Arc<ArenaVolume>],
        at: &Path,
    ) -> io::Result<Arc<Self>> {
        let cached = self.sections.iter().filter(|section| section.table.is_some());
        for (section, volume) in cached.zip(volumes) {
            section.set_volume(Arc::clone(volume));
        }
        self.pool.failure = Arc::new(MountFailure::new(at));
        let directory = Arc::new(self);
        blocking_pool::start(engine, &directory)?;
        Ok(directory)
    }

    /// Applies restrictions that mounts of the directory get later to `mount`, which has `applied`.
    pub(crate) fn follow_restrictions(&self, mount: &Mount, applied: MountRestrictions) {
        let (root, path) = (Arc::clone(&self.root), self.path.clone());
        let follower = RestrictionFollower::new(mount.clone(), root, path, applied);
        let is_first = self.nodes.follower.set(Arc::new(follower)).is_ok();
        debug_assert!(is_first, "a directory is mounted once");
    }

    pub(crate) fn forget_all(&self) {
        for node in self.nodes.all() {
            self.forget(node.id, u64::MAX);
        }
        self.close_listings();
    }

    /// Returns the restrictions that the mount must have, according to the current mount table.
    pub(crate) fn restrictions_now(&self) -> Result<MountRestrictions, Errno> {
        let table = mount_table::read()?;
        let of_root = MountRestrictions::of(&table, &*self.root)?;
        let mut restrictions = self.options.restrictions | of_root;
        if self.options.read_only {
            restrictions = restrictions | MountRestrictions::READ_ONLY;
        }
        let (inside, first) =
            MountRestrictions::inside(&table, &path_now(&table, &*self.root, &self.path));
        if let Some(first) = first.filter(|_| !restrictions.contains(inside)) {
            self.notes.lock().expect("no holder panics").push(format!(
                "the mount is {inside} because {}, which is mounted inside SOURCE, is",
                first.display()
            ));
        }
        Ok(restrictions | inside)
    }

    /// Watches for restrictions that the mounts of the directory get later. Without the watch, the
    /// mount could give rights that SOURCE does not give: so an error of the watch fails the mount.
    pub(crate) fn watch_mounts(&self) -> Option<MountWatch> {
        let failure = Arc::clone(&self.pool.failure);
        let follower = Arc::clone(self.nodes.follower.get().expect("set when it was mounted"));
        let unwatched = |error| {
            tracing::warn!(%error, "restrictions that SOURCE's mount gets later are not applied");
        };
        let failed = move |error: &dyn fmt::Display| failure.fail(error);
        MountWatch::start("mounts", None, move || follower.follow(), failed).map_err(unwatched).ok()
    }
}
