//! The mount of a directory, from its start to its end.

mod file_counters;

pub use file_counters::{FailingFile, FileCounters};

use super::directory::{ChangeEvents, Directory, DirectoryError};
use super::mount::{MountError, MountOptions};
use super::running_mount::RunningMount;
use super::shared::MountContents;
use crate::engine::{ArenaVolume, Engine};
use crate::mount_table::MountWatch;
use rustix::thread::{CapabilitySet, capabilities};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// A mounted directory.
///
/// Call [`RunningMount::unmount`] while no program uses it, then [`DirectoryMount::close`].
#[derive(Debug)]
pub struct DirectoryMount {
    mounted: RunningMount,
    pub(super) engine: Arc<Engine>,
    pub(super) directory: Arc<Directory>,
    volumes: Vec<Arc<ArenaVolume>>,
    /// Applies restrictions that SOURCE's mount gets later.
    _watch: Option<MountWatch>,
}

impl Deref for DirectoryMount {
    type Target = RunningMount;

    fn deref(&self) -> &RunningMount {
        &self.mounted
    }
}

impl DirectoryMount {
    /// Mounts `directory` at the empty directory `at`. `volumes` are those of its stores, in their
    /// order. A dead mount that a killed Larder process left there is unmounted first.
    ///
    /// With `allow_other`, all users may use the mount, and the kernel checks the permissions and
    /// ACLs of files. Else only the user of this process may; the kernel then checks no permissions
    /// if that is root with all capabilities for files, and leaves them to the directory's file
    /// system.
    ///
    /// # Errors
    /// If the mountpoint cannot be used, or the machine does not permit the mount.
    pub fn start(
        engine: Arc<Engine>,
        mut directory: Directory,
        volumes: Vec<Arc<ArenaVolume>>,
        at: &Path,
        allow_other: bool,
    ) -> Result<Self, MountError> {
        // Checks cost requests: the kernel requests the attributes of a directory after each change
        // in it.
        directory.check_permissions = allow_other || !has_unrestricted_access();
        let restrictions = directory.restrictions_now();
        let restrictions = restrictions
            .map_err(|source| MountError::Refused { path: at.to_owned(), source: source.into() })?;
        let mount_options = MountOptions {
            source: directory.path.display().to_string(),
            allow_other,
            check_permissions: directory.check_permissions,
            restrictions,
            plain: directory.options.plain,
        };
        let started = directory.begin(&engine, &volumes, at);
        let directory =
            started.map_err(|source| MountError::Refused { path: at.to_owned(), source })?;
        let tree = MountContents::Directory(Arc::clone(&directory));
        let mounted = RunningMount::start(Arc::clone(&engine), tree, at, &mount_options, None)
            .inspect_err(|_| directory.pool.end())?;
        Ok(DirectoryMount { mounted, engine, _watch: directory.watch_mounts(), directory, volumes })
    }

    /// Checks that a mountpoint does not lie inside of a directory.
    ///
    /// # Errors
    /// If it lies inside.
    pub fn check(directory: &Path, at: &Path) -> Result<(), DirectoryError> {
        // For a mountpoint that does not respond, the parent directory decides.
        let mountpoint = at.canonicalize().or_else(|_| {
            let parent = at.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.unwrap_or(Path::new(".")).canonicalize()
        });
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        match mountpoint {
            Ok(mountpoint) if mountpoint.starts_with(&directory) => {
                Err(DirectoryError::Inside { directory, at: at.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the receiver of reports of changes by other processes. The kernel caches names and
    /// attributes until it is dropped, or reports that changes were missed.
    #[must_use]
    pub fn news(&self) -> ChangeEvents {
        ChangeEvents::new(Arc::clone(&self.directory))
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Returns the volumes of its files: of the files without a rule, then of each rule whose files
    /// are cached.
    #[must_use]
    pub fn volumes(&self) -> &[Arc<ArenaVolume>] {
        &self.volumes
    }

    /// Ends the threads. Programs that still use the mount get errors from now on.
    pub fn close(self) {
        drop(self);
    }
}

/// Returns true if this process may access files without restriction, as root usually may, and if
/// so may all processes that the kernel takes for those of its user.
fn has_unrestricted_access() -> bool {
    if rustix::process::getuid() != rustix::process::geteuid() {
        return false;
    }
    let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(all))
}
