//! A directory that is mounted, from its start to its end.

use super::super::mount::{Mount, MountError, MountOptions, UnmountError};
use super::super::mounted::{MountFailure, Mounted, Tree};
use super::blocking_pool::BlockingPool;
use super::crossing::RestrictionFollower;
use super::{ChangeEvents, Directory, DirectoryError};
use crate::engine::{ArenaVolume, Engine};
use crate::mount_table::{self, MountLine, MountRestrictions, MountWatch};
use crate::store::files::link_to;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is mounted.
///
/// [`DirectoryMount::unmount`] while nobody uses it, then [`DirectoryMount::close`].
#[derive(Debug)]
pub struct DirectoryMount {
    mounted: Mounted,
    pub(super) engine: Arc<Engine>,
    pub(super) directory: Arc<Directory>,
    pool: BlockingPool,
    volumes: Vec<Arc<ArenaVolume>>,
    /// Applies restrictions that SOURCE's mount gets later.
    _watch: Option<MountWatch>,
}

impl DirectoryMount {
    /// Mounts `directory`, whose files are `volumes`, made of its stores in their order, at the empty
    /// directory `at`. What a killed process of ours left mounted there is taken away first.
    ///
    /// With `allow_other` all users may use it, as the modes and lists of files say; else only the
    /// user who mounts, of whom nothing is checked but by the directory's file system if that is root
    /// with all rights on files.
    ///
    /// # Errors
    /// If the directory cannot be mounted on, or the machine does not allow it.
    pub fn start(
        engine: Arc<Engine>,
        mut directory: Directory,
        volumes: Vec<Arc<ArenaVolume>>,
        at: &Path,
        allow_other: bool,
    ) -> Result<Self, MountError> {
        // To check, the kernel asks what a directory is like after each change in it.
        directory.checks = allow_other || !may_everything();
        let restrictions = directory.restrictions_now();
        let restrictions = restrictions
            .map_err(|source| MountError::Refused { path: at.to_owned(), source: source.into() })?;
        let how = MountOptions {
            source: directory.path.display().to_string(),
            allow_other,
            checks: directory.checks,
            restrictions,
            plain: directory.options.plain,
        };
        let begun = directory.begin(&engine, &volumes, at);
        let (directory, pool) =
            begun.map_err(|source| MountError::Refused { path: at.to_owned(), source })?;
        let ending = pool.clone();
        let others = pool.clone();
        let tree = Tree::Directory { directory: Arc::clone(&directory), pool };
        match Mounted::start(Arc::clone(&engine), tree, at, &how, None) {
            Ok(mounted) => {
                let watch = follow(&directory, others.failure());
                Ok(DirectoryMount {
                    mounted,
                    engine,
                    directory,
                    pool: others,
                    volumes,
                    _watch: watch,
                })
            }
            Err(error) => {
                ending.end();
                Err(error)
            }
        }
    }

    /// Whether a mountpoint lies inside of a directory, where nothing may be mounted.
    ///
    /// # Errors
    /// If it does.
    pub fn check(directory: &Path, at: &Path) -> Result<(), DirectoryError> {
        // A mountpoint that does not answer is looked at by its parent.
        let whole = at.canonicalize().or_else(|_| {
            let parent = at.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.unwrap_or(Path::new(".")).canonicalize()
        });
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        match whole {
            Ok(whole) if whole.starts_with(&directory) => {
                Err(DirectoryError::Inside { directory, at: at.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Whether what a killed process had left mounted was taken away first.
    #[must_use]
    pub fn took_over(&self) -> bool {
        self.mounted.took_over()
    }

    /// What others change in the directory is told by this from now on; until it is gone, or says that
    /// something was missed, names and attributes are believed.
    #[must_use]
    pub fn news(&self) -> ChangeEvents {
        ChangeEvents::new(Arc::clone(&self.directory), self.pool.clone())
    }

    /// One sentence for each thing that is not as good as it could be.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let own = self.directory.notes.lock().expect("no holder panics").clone();
        self.mounted.note().map(str::to_owned).into_iter().chain(own).collect()
    }

    /// Has `tell` called once somebody else has unmounted it; at once, if that has happened.
    pub fn when_gone(&self, tell: impl FnOnce() + Send + 'static) {
        self.mounted.when_gone(Box::new(tell));
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// The volumes that its files are: of the rest, then of each rule whose files are cached.
    #[must_use]
    pub fn volumes(&self) -> &[Arc<ArenaVolume>] {
        &self.volumes
    }

    /// Unmounts. `lazily` takes it out of sight even if it is used; those who use it are served
    /// until [`DirectoryMount::close`].
    ///
    /// # Errors
    /// If somebody uses it, or the kernel refuses.
    pub fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        self.mounted.unmount(lazily)
    }

    /// Ends the threads. Whoever still uses it gets errors from now on.
    pub fn close(self) {
        drop(self);
    }
}

impl Directory {
    /// Assigns the volumes to the sections and starts the threads that may wait.
    pub(in crate::front::fuse) fn begin(
        self,
        engine: &Arc<Engine>,
        volumes: &[Arc<ArenaVolume>],
        at: &Path,
    ) -> io::Result<(Arc<Self>, BlockingPool)> {
        let cached = self.sections.iter().filter(|section| section.table().is_some());
        for (section, volume) in cached.zip(volumes) {
            section.set_volume(Arc::clone(volume));
        }
        let directory = Arc::new(self);
        let pool = BlockingPool::start(engine, &directory, at)?;
        Ok((directory, pool))
    }

    /// Has `mount`, which has `applied`, get the restrictions that mounts of the directory get
    /// later.
    pub(in crate::front::fuse) fn follow_restrictions(
        &self,
        mount: &Mount,
        applied: MountRestrictions,
    ) {
        let (root, path) = (Arc::clone(&self.root), self.path.clone());
        let follower = RestrictionFollower::new(mount.clone(), root, path, applied);
        self.nodes.follow_restrictions(follower);
    }

    /// Forgets all nodes but the root, and all listings.
    pub(in crate::front::fuse) fn forget_all(&self, pool: &BlockingPool) {
        for node in self.nodes.all() {
            self.forget(pool, node.id, u64::MAX);
        }
        self.close_listings();
    }

    /// Returns the restrictions that the mount must have, according to the current mount table.
    fn restrictions_now(&self) -> Result<MountRestrictions, Errno> {
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
}

/// Watches for restrictions that the mounts of the directory get later. Without the watch, the
/// mount could give rights that SOURCE does not give: so an error of the watch fails the mount.
fn follow(directory: &Directory, failure: Arc<MountFailure>) -> Option<MountWatch> {
    let follower = Arc::clone(directory.nodes.follower().expect("set when it was mounted"));
    let unwatched = |error| {
        tracing::warn!(%error, "restrictions that SOURCE's mount gets later are not applied");
    };
    let failed = move |error: &dyn fmt::Display| failure.fail(error);
    MountWatch::start("mounts", None, move || follower.follow(), failed).map_err(unwatched).ok()
}

/// Returns where the directory `root`, which was opened as `path`, is now: it, or a directory
/// above, may have been renamed. A directory whose mount is not in `table` has no path.
pub(super) fn path_now(table: &[MountLine], root: impl AsFd, path: &Path) -> PathBuf {
    if MountRestrictions::in_table(table, root.as_fd()).is_none() {
        return path.to_owned();
    }
    let now = rustix::fs::readlink(link_to(root), Vec::new());
    now.map_or_else(|_| path.to_owned(), |now| PathBuf::from(OsString::from_vec(now.into_bytes())))
}

/// Whether this process may do with files whatever it likes, as root mostly may, and so may all
/// whom the kernel takes for its user.
fn may_everything() -> bool {
    if rustix::process::getuid() != rustix::process::geteuid() {
        return false;
    }
    let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(all))
}
