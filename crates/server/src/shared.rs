//! `larder mount --shared`: a thread that reports changes by others in SOURCE to the mount.

use larder_host::changes::{Change, Changes};
use larder_io::fault::{self, Thread, report_failed_part};
use larder_io::front::fuse::{ChangeEvents, DirectoryMount};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A thread that listens for changes; it ends when this is dropped.
pub(super) struct ChangeListener {
    /// Write end of a pipe that the thread polls along with changes; closing it ends the thread.
    stop: Option<OwnedFd>,
    thread: Option<Thread>,
}

impl ChangeListener {
    /// Starts the thread; on a failure prints the reason and the consequence.
    pub(super) fn start(directory: &Path, mount: &DirectoryMount) -> Option<Self> {
        let result =
            Changes::of(directory).map_err(|error| error.to_string()).and_then(|changes| {
                let started = ChangeListener::with(changes, mount.news());
                started.map_err(|error| format!("watch for changes: {error}"))
            });
        match result {
            Ok(listener) => Some(listener),
            Err(error) => {
                eprintln!(
                    "larder: note: cannot {error}; nothing about names and attributes is \
                     believed without asking"
                );
                None
            }
        }
    }

    fn with(changes: Changes, events: ChangeEvents) -> io::Result<Self> {
        let (end, stop) = rustix::pipe::pipe()?;
        let events = Arc::new(events);
        let events_at_failure = Arc::clone(&events);
        let listen = move || listen(changes, &events, &end);
        let failed = move |error: &dyn fmt::Display| {
            report_failed_part(
                "SOURCE is not watched for changes any more: names and attributes are not cached",
                error,
            );
            events_at_failure.missed();
        };
        let thread = fault::spawn_fallible("changes", None, listen, failed)?;
        Ok(ChangeListener { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ChangeListener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

fn listen(mut changes: Changes, events: &ChangeEvents, end: &OwnedFd) -> io::Result<()> {
    while let Some(changes) = changes.next(end.as_fd())? {
        fault::point("changes", "source");
        for change in changes {
            forward_change(events, change);
        }
    }
    Ok(())
}

fn forward_change(events: &ChangeEvents, change: Change) {
    match change {
        Change::Contents(file) => events.contents(file.device, file.number),
        Change::Attributes(file) => events.attributes(file.device, file.number),
        Change::Name { directory, name } => events.name(directory.device, directory.number, name),
        Change::Missed => events.missed(),
    }
}
