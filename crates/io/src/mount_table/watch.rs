//! A thread that runs an action after every change of the mount table.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The watching thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct MountWatch {
    /// Name of the thread and of what it watches, for the log.
    name: &'static str,
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl MountWatch {
    /// Starts the thread. It runs `changed` once at the start, after each change, and when `other`
    /// is readable.
    ///
    /// # Errors
    /// If the mount table cannot be opened, or the kernel has no descriptor or thread left.
    pub(crate) fn start(
        name: &'static str,
        other: Option<Arc<OwnedFd>>,
        mut changed: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let table = rustix::fs::open(super::PATH, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let (end, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let watch = move || {
            loop {
                changed();
                // The kernel reports every change since the table was opened or last polled.
                let mut descriptors =
                    vec![PollFd::new(&end, PollFlags::IN), PollFd::new(&table, PollFlags::PRI)];
                descriptors.extend(other.as_deref().map(|it| PollFd::new(it, PollFlags::IN)));
                match poll(&mut descriptors, None) {
                    Ok(_) if !descriptors[0].revents().is_empty() => return,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => {
                        tracing::error!(%error, "cannot watch {name} any more");
                        return;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(watch)?;
        Ok(MountWatch { name, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MountWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if matches!(self.thread.take().map(JoinHandle::join), Some(Err(_))) {
            tracing::error!("the thread that watches {} panicked", self.name);
        }
    }
}
