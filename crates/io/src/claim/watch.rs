//! A thread that checks the claims of this process again when mounts or other claims change.
//!
//! A later Larder cache of the same user is refused. A bind mount, a loop device with a file
//! system, or a claim of another user cannot be refused; it is reported.

use super::registry::Registry;
use crate::fault::report_failed_part;
use crate::mount_table::MountWatch;
use rustix::fs::inotify;
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Bytes of change events per read; their content does not matter.
const CHANGES_BYTES: usize = 4096;

/// The watching thread, which ends when this is dropped.
#[derive(Debug)]
pub struct ClaimWatch {
    _thread: MountWatch,
}

impl ClaimWatch {
    /// Starts the thread. It calls `report` with each sentence about data that another cache or
    /// mount uses now, once for as long as that is true.
    ///
    /// # Errors
    /// Fails if the kernel has no descriptor or thread left.
    pub fn start(report: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        ClaimWatch::of(Registry::of_process(), report)
    }

    pub(super) fn of(
        registry: Arc<Registry>,
        mut report: impl FnMut(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let claims = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        if let Some(path) = registry.path() {
            let changes = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR;
            inotify::add_watch(&claims, path, changes)?;
        }
        let mut known = HashSet::new();
        let other = Some(Arc::clone(&claims));
        let check = move || {
            // The events are read before the check, so that a later change is another event.
            let mut changes = [0; CHANGES_BYTES];
            while rustix::io::read(&claims, &mut changes).is_ok_and(|bytes| bytes > 0) {}
            let found: HashSet<_> = registry.check_again().into_iter().collect();
            found.difference(&known).for_each(|sentence| report(sentence));
            known = found;
        };
        let failed = |error: &dyn fmt::Display| {
            report_failed_part("later mounts of the same data are not reported any more", error);
        };
        Ok(ClaimWatch { _thread: MountWatch::start("claims", other, check, failed)? })
    }
}
