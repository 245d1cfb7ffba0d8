//! `larder mount --shared`: a thread that tells the mount what others change in the directory.

use larder_host::changes::{Change, Changes};
use larder_io::fault::{self, Thread, report_failed_part};
use larder_io::front::fuse::{ChangeEvents, DirectoryMount};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Somebody who listens for changes; ends when it is dropped.
pub(super) struct Listening {
    /// What it waits for beside changes; closed to end it.
    stop: Option<OwnedFd>,
    thread: Option<Thread>,
}

impl Listening {
    /// Begins to listen; where that cannot be, it is said what follows from it.
    pub(super) fn start(directory: &Path, mount: &DirectoryMount) -> Option<Self> {
        let begun = Changes::of(directory).map_err(|error| error.to_string()).and_then(|changes| {
            let started = Listening::with(changes, mount.news());
            started.map_err(|error| format!("watch for changes: {error}"))
        });
        match begun {
            Ok(listening) => Some(listening),
            Err(error) => {
                eprintln!(
                    "larder: note: failed to {error}; nothing about names and attributes is \
                     believed without asking"
                );
                None
            }
        }
    }

    fn with(changes: Changes, news: ChangeEvents) -> io::Result<Self> {
        let (end, stop) = rustix::pipe::pipe()?;
        let news = Arc::new(news);
        let news_at_end = Arc::clone(&news);
        let listen = move || listen(changes, &news, &end);
        let failed = move |error: &dyn fmt::Display| {
            report_failed_part(
                "SOURCE is not watched for changes any more: names and attributes are not cached",
                error,
            );
            news_at_end.missed();
        };
        let thread = fault::spawn_fallible("changes", None, listen, failed)?;
        Ok(Listening { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

fn listen(mut changes: Changes, news: &ChangeEvents, end: &OwnedFd) -> io::Result<()> {
    while let Some(changes) = changes.next(end.as_fd())? {
        fault::point("changes", "source");
        for change in changes {
            forward_change(news, change);
        }
    }
    Ok(())
}

fn forward_change(news: &ChangeEvents, change: Change) {
    match change {
        Change::Contents(file) => news.contents(file.device, file.number),
        Change::Attributes(file) => news.attributes(file.device, file.number),
        Change::Name { directory, name } => news.name(directory.device, directory.number, name),
        Change::Missed => news.missed(),
    }
}
