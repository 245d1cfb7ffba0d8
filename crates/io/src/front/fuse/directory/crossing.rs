//! Restrictions of mounts that appear in a directory while it is mounted. The mount of the
//! directory gets them when the mount table changes, and at the latest before a lookup of a name
//! that leads into such a mount is answered. FUSE mounts of other users impose no restrictions:
//! names that lead into them are refused, and so are names that lead into a mount whose files
//! another mount shows with other rights.

use super::super::mount::Mount;
use crate::mount_table::{self, MountLine, MountRestrictions};
use crate::store::directory::LockedDirectory;
use crate::store::files::link_to;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The restrictions of a mount, which only grow.
pub(super) struct RestrictionFollower {
    mount: Mount,
    /// The directory and its path when it was opened.
    root: Arc<LockedDirectory>,
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    applied: MountRestrictions,
    /// Restrictions that could not be applied, and that the log has named.
    reported: MountRestrictions,
    /// Mountpoints that the log has named since names that lead into them are refused.
    refused: Vec<PathBuf>,
}

impl RestrictionFollower {
    /// Follows the mounts of the directory `root` for `mount`, which has `applied`.
    pub(super) fn new(
        mount: Mount,
        root: Arc<LockedDirectory>,
        path: PathBuf,
        applied: MountRestrictions,
    ) -> Self {
        let state = State { applied, reported: MountRestrictions::NONE, refused: Vec::new() };
        RestrictionFollower { mount, root, path, state: Mutex::new(state) }
    }

    /// Applies the restrictions in the current mount table. A mount that loses restrictions changes
    /// nothing.
    pub(super) fn follow(&self) {
        // Without the table restrictions would be missed: this panic fails the mount.
        let table = mount_table::read().expect("the kernel shows the mounts");
        // A SOURCE that becomes read-only refuses writes itself.
        let of_root = MountRestrictions::in_table(&table, self.root.as_fd()).unwrap_or_default();
        let path = path_now(&table, &*self.root, &self.path);
        let inside = MountRestrictions::inside(&table, &path).0;
        // An error is in the log.
        let _applied = self.apply(of_root.without_read_only() | inside);
    }

    /// Applies the restrictions of the mount of `file`, which was opened through a name behind a
    /// mountpoint.
    ///
    /// # Errors
    /// If the mount is a FUSE mount of another user, if another mount shows its files with other
    /// rights, or if its restrictions cannot be determined or applied. Then the lookup of the name
    /// must be refused.
    pub(super) fn cross(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let table = mount_table::read()?;
        let id = mount_table::mount_id(file);
        let Some(mount) = table.iter().find(|mount| Some(mount.id) == id) else {
            if MountRestrictions::in_table(&table, self.root.as_fd()).is_some() {
                // It was unmounted in between: the kernel looks the name up again.
                return Err(Errno::STALE);
            }
            // SOURCE is in another mount namespace, or was unmounted.
            return self.apply(MountRestrictions::of(&table, file)?.without_read_only());
        };
        if let Some(user) = mount.other_fuse_user() {
            if self.is_first_refusal(mount) {
                tracing::warn!(
                    mountpoint = ?mount.at, user,
                    "names in FUSE mounts of other users inside SOURCE are refused with EACCES; \
                     use their own mountpoint"
                );
            }
            return Err(Errno::ACCESS);
        }
        let path = path_now(&table, &*self.root, &self.path);
        let place = (mount_table::mount_id(&*self.root), &*path);
        if let Some(other) = mount_table::conflicting_alias(&table, place, mount) {
            if self.is_first_refusal(mount) {
                tracing::warn!(
                    mountpoint = ?mount.at, other = ?other.at,
                    "names in a mount inside SOURCE are refused with EACCES, since the other mount \
                     shows the same files with other rights; mount it outside SOURCE"
                );
            }
            return Err(Errno::ACCESS);
        }
        self.apply(mount.restrictions.without_read_only())
    }

    /// Returns true if the log has not named a mountpoint yet. It names a bounded number.
    fn is_first_refusal(&self, mount: &MountLine) -> bool {
        const NAMED_MAX: usize = 16;
        let refused = &mut self.state.lock().expect("no holder panics").refused;
        let is_first = refused.len() < NAMED_MAX && !refused.contains(&mount.at);
        if is_first {
            refused.push(mount.at.clone());
        }
        is_first
    }

    fn apply(&self, restrictions: MountRestrictions) -> Result<(), Errno> {
        let mut state = self.state.lock().expect("no holder panics");
        let wanted = state.applied | restrictions;
        if wanted == state.applied {
            return Ok(());
        }
        match self.mount.restrict(wanted) {
            Ok(()) => {
                tracing::warn!(%wanted, "the mount got the restrictions of SOURCE's mount");
                state.applied = wanted;
                Ok(())
            }
            // The next change of the mount table, or lookup behind a mountpoint, tries again.
            Err(error) => {
                if !state.reported.contains(wanted) {
                    tracing::error!(
                        %error, %wanted,
                        "the mount lacks restrictions that SOURCE's mount has now; unmount it"
                    );
                    state.reported = wanted;
                }
                Err(Errno::ACCESS)
            }
        }
    }
}

/// Returns the current path of the directory `root`, which was opened as `path`: it, or a directory
/// above, may have been renamed. A directory whose mount is not in `table` has no path.
pub(super) fn path_now(table: &[MountLine], root: impl AsFd, path: &Path) -> PathBuf {
    if MountRestrictions::in_table(table, root.as_fd()).is_none() {
        return path.to_owned();
    }
    let now = rustix::fs::readlink(link_to(root), Vec::new());
    now.map_or_else(|_| path.to_owned(), |now| PathBuf::from(OsString::from_vec(now.into_bytes())))
}
