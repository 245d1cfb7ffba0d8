//! A thread that checks the claims of this process again when mounts or other claims change.
//!
//! A later Larder cache of the same user is refused. A bind mount, a loop device with a file
//! system, or a claim of another user cannot be refused; it is reported.

use super::registry::Registry;
use crate::mount_table;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, inotify};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of change events that are read at a time; their content does not matter.
const CHANGES_BYTES: usize = 4096;

/// The watching thread, which ends when this is dropped.
pub struct ClaimWatch {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ClaimWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimWatch").finish_non_exhaustive()
    }
}

impl ClaimWatch {
    /// Starts the thread. `report` is called with each sentence about data that is now cached or
    /// mounted elsewhere, once for as long as it is true.
    ///
    /// # Errors
    /// Fails if the kernel has no descriptor or thread left.
    pub fn start(report: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        ClaimWatch::of(Registry::of_process(), report)
    }

    pub(super) fn of(
        registry: Arc<Registry>,
        report: impl FnMut(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mounts = rustix::fs::open(mount_table::PATH, flags, Mode::empty())?;
        let claims = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        if let Some(path) = registry.path() {
            let changes = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR;
            inotify::add_watch(&claims, path, changes)?;
        }
        let (end, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let named = std::thread::Builder::new().name("claims".into());
        let thread = named.spawn(move || watch(&registry, &mounts, &claims, &end, report))?;
        Ok(ClaimWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ClaimWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if matches!(self.thread.take().map(JoinHandle::join), Some(Err(_))) {
            tracing::error!("the thread that watches claims panicked");
        }
    }
}

fn watch(
    registry: &Registry,
    mounts: &OwnedFd,
    claims: &OwnedFd,
    end: &OwnedFd,
    mut report: impl FnMut(&str),
) {
    let mut known = HashSet::new();
    loop {
        let found: HashSet<_> = registry.check_again().into_iter().collect();
        found.difference(&known).for_each(|sentence| report(sentence));
        known = found;
        let mut descriptors = [
            PollFd::new(end, PollFlags::IN),
            PollFd::new(mounts, PollFlags::PRI),
            PollFd::new(claims, PollFlags::IN),
        ];
        match poll(&mut descriptors, None) {
            Ok(_) if !descriptors[0].revents().is_empty() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot watch claims any more");
                return;
            }
        }
        let mut changes = [0; CHANGES_BYTES];
        while rustix::io::read(claims, &mut changes).is_ok_and(|bytes| bytes > 0) {}
    }
}
