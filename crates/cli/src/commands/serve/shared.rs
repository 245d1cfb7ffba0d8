//! `larder mount --shared`: a thread that tells the mount what others change in the folder.

use larder_host::changes::{Change, Changes};
use larder_io::fault::confine;
use larder_io::front::fuse::{FolderMount, FolderNews};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;

/// Somebody who listens for changes; ends when it is dropped.
pub(super) struct Listening {
    /// What it waits for beside changes; closed to end it.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Begins to listen; where that cannot be, it is said what follows from it.
    pub(super) fn start(folder: &Path, mount: &FolderMount) -> Option<Self> {
        let begun = Changes::of(folder).map_err(|error| error.to_string()).and_then(|changes| {
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

    fn with(changes: Changes, news: FolderNews) -> io::Result<Self> {
        let (end, stop) = rustix::pipe::pipe()?;
        let named = std::thread::Builder::new().name("changes".into());
        let thread = named.spawn(move || listen_confined(changes, &news, &end))?;
        Ok(Listening { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if matches!(ended, Some(Err(_))) {
            tracing::error!("the thread that is told of changes panicked");
        }
    }
}

/// Listens. If that ends early, cached names and attributes are no longer used.
fn listen_confined(changes: Changes, news: &FolderNews, end: &OwnedFd) {
    if let Err(panic) = confine(|| listen(changes, news, end)) {
        tracing::error!("cannot watch SOURCE for changes any more: {panic}");
        news.missed();
    }
}

fn listen(mut changes: Changes, news: &FolderNews, end: &OwnedFd) {
    loop {
        match changes.next(end.as_fd()) {
            Ok(Some(changes)) => changes.into_iter().for_each(|change| tell(news, change)),
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "changes behind the mount are not told any more");
                news.missed();
                return;
            }
        }
    }
}

fn tell(news: &FolderNews, change: Change) {
    match change {
        Change::Contents(file) => news.contents(file.device, file.number),
        Change::Attributes(file) => news.attributes(file.device, file.number),
        Change::Name { directory, name } => news.name(directory.device, directory.number, name),
        Change::Missed => news.missed(),
    }
}
