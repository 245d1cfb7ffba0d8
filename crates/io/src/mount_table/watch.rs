//! A thread that runs an action after every change of the mount table.

use crate::fault::{self, Thread};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The watching thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct MountWatch {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<Thread>,
}

impl MountWatch {
    /// Starts the thread. It runs `changed` once at the start, after each change, and when `other`
    /// is readable. If it ends with an error, it runs `failed`.
    ///
    /// # Errors
    /// If the mount table cannot be opened, or the kernel has no descriptor or thread left.
    pub(crate) fn start(
        name: &'static str,
        other: Option<Arc<OwnedFd>>,
        mut changed: impl FnMut() + Send + 'static,
        failed: impl FnOnce(&dyn fmt::Display) + Send + 'static,
    ) -> io::Result<Self> {
        let table = rustix::fs::open(super::PATH, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let (end, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let watch = move || {
            loop {
                fault::point("watch", name);
                changed();
                // The kernel reports every change since the table was opened or last polled.
                let mut descriptors =
                    vec![PollFd::new(&end, PollFlags::IN), PollFd::new(&table, PollFlags::PRI)];
                descriptors.extend(other.as_deref().map(|other| PollFd::new(other, PollFlags::IN)));
                match poll(&mut descriptors, None) {
                    Ok(_) if !descriptors[0].revents().is_empty() => return Ok(()),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let thread = fault::spawn_fallible(name, None, watch, failed)?;
        Ok(MountWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MountWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
