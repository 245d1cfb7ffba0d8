//! The mount of a server, volumes as files or a directory, and its unmount.
//!
//! Invariants: the files of `--fuse` are those of the volumes that are served; a file in use is
//! disconnected only after a second request.

use super::{ServedVolume, Service};
use crate::plan::MountOptions;
use crate::requests::{RequestReceiver, ServerRequest};
use crate::settings::ServerSettings;
use crate::shared::ChangeListener;
use anyhow::{Result, ensure};
use larder_host::holders::holders;
use larder_io::engine::Engine;
use larder_io::front::fuse::{
    Directory, DirectoryMount, FailingFile, FileCounters, RunningMount, UnmountError, VolumeMount,
};
use larder_io::front::observe::Observer;
use larder_io::reclaim;
use larder_report::control::in_use;
use larder_schema::control::{PathUser, PathUsers};
use rustix::process::{Signal, getpid, kill_process};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// Interval between attempts to unmount.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Intervals between searches for the users of a mount during a stop: the first, and the longest.
/// Each is twice the one before. A search inspects all processes of the machine.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
const SEARCH_INTERVAL_MAX: Duration = Duration::from_mins(1);

enum Mount {
    Volumes(VolumeMount),
    /// With the listener for changes of SOURCE.
    Directory(DirectoryMount, Option<ChangeListener>),
}

impl Mount {
    fn mounted(&self) -> &RunningMount {
        match self {
            Mount::Volumes(mount) => mount,
            Mount::Directory(mount, _) => mount,
        }
    }

    fn close(self) {
        match self {
            Mount::Volumes(mount) => mount.close(),
            Mount::Directory(mount, listener) => {
                drop(listener);
                mount.close();
            }
        }
    }
}

/// The end of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmounted {
    /// It was not in use, or there was none.
    AtOnce,
    /// Its users are gone; they may have written data meanwhile.
    AfterWait,
    /// Its users were disconnected; they may have written data before.
    ByForce,
}

#[derive(Default)]
pub(super) struct Files(RwLock<Option<Mount>>);

/// Prepares the process to serve as backing of file systems and swap, as far as it is permitted;
/// returns true if its memory is locked.
///
/// # Errors
/// The directory for the files does not exist.
pub fn prepare(settings: &ServerSettings) -> Result<bool> {
    let Some(directory) = &settings.fuse else { return Ok(false) };
    // The mount of a killed server exists, though it returns an error.
    let is_missing = matches!(directory.try_exists(), Ok(false));
    let shown = directory.display();
    ensure!(!is_missing, "mount at {shown}: there is no such directory; make it first");
    let (locked, reclaim_set) = (reclaim::lock_memory(), reclaim::be_spared());
    if locked.is_ok() {
        reclaim::reserve();
    }
    for error in [locked.as_ref().err(), reclaim_set.as_ref().err()].into_iter().flatten() {
        eprintln!(
            "larder: note: cannot {error}; a file system or swap on the files could then make \
             the machine wait for itself when memory is short"
        );
    }
    Ok(locked.is_ok())
}

impl Files {
    /// Mounts the volumes as files, if `--fuse` is set.
    pub(super) fn start(
        &self,
        settings: &ServerSettings,
        engine: &Arc<Engine>,
        volumes: &[ServedVolume],
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<()> {
        let Some(directory) = &settings.fuse else { return Ok(()) };
        let volumes = volumes.iter().map(|served| (Arc::clone(&served.volume), served.map.clone()));
        let (engine, volumes) = (Arc::clone(engine), volumes.collect());
        let mount = VolumeMount::start(engine, directory, volumes, observer, settings.plain_io)?;
        self.set(Mount::Volumes(mount));
        Ok(())
    }

    /// Mounts a directory, whose files are the volumes of `served`.
    pub(super) fn start_directory(
        &self,
        options: &MountOptions,
        engine: &Arc<Engine>,
        directory: Directory,
        served: &[ServedVolume],
    ) -> Result<()> {
        let volumes = served.iter().map(|served| Arc::clone(&served.volume)).collect();
        let (mountpoint, allow_other) = (&options.mountpoint, options.allow_other);
        let mount =
            DirectoryMount::start(Arc::clone(engine), directory, volumes, mountpoint, allow_other)?;
        // An unmount by the user ends the server, after it has written all dirty data.
        mount.when_gone(|| {
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                tracing::warn!(%error, "cannot end the server after an unmount");
            }
        });
        let shared = options.shared;
        let listener = shared.then(|| ChangeListener::start(&options.source, &mount)).flatten();
        self.set(Mount::Directory(mount, listener));
        Ok(())
    }

    fn set(&self, mount: Mount) {
        let mounted = mount.mounted();
        for note in mounted.notes() {
            eprintln!("larder: note: {note}");
        }
        if mounted.took_over() {
            let path = mounted.path().display();
            eprintln!("larder: note: {path} was still mounted by a larder that was killed");
        }
        *self.0.write().expect("no holder panics") = Some(mount);
    }

    fn with<T>(&self, action: impl FnOnce(&Mount) -> T) -> Option<T> {
        self.0.read().expect("no holder panics").as_ref().map(action)
    }

    /// Calls `action` if volumes are mounted as files.
    fn with_volumes<T>(&self, action: impl FnOnce(&VolumeMount) -> T) -> Option<T> {
        self.with(|mount| match mount {
            Mount::Volumes(mount) => Some(action(mount)),
            Mount::Directory(..) => None,
        })?
    }

    /// Calls `action` if a directory is mounted.
    fn with_directory<T>(&self, action: impl FnOnce(&DirectoryMount) -> T) -> Option<T> {
        self.with(|mount| match mount {
            Mount::Directory(mount, _) => Some(action(mount)),
            Mount::Volumes(_) => None,
        })?
    }

    /// Adds the file of a volume.
    pub(super) fn add(&self, served: &ServedVolume) -> Result<()> {
        let (volume, map) = (Arc::clone(&served.volume), Arc::clone(&served.map));
        self.with_volumes(|mount| mount.add(volume, map)).transpose()?;
        Ok(())
    }

    /// Removes the file of a volume; waits up to `patience` for its users.
    pub(super) fn remove(&self, name: &str, patience: Duration) {
        self.with_volumes(|mount| mount.remove(name, patience));
    }

    /// Returns the file of a volume, if volumes are mounted as files.
    pub(super) fn file(&self, name: &str) -> Option<PathBuf> {
        self.with_volumes(|mount| mount.file(name))
    }

    /// Returns a description of the users of a volume's file, if it is in use.
    pub(super) fn usage(&self, name: &str) -> Option<String> {
        let file =
            self.with_volumes(|mount| (mount.opens(name) > 0).then(|| mount.file(name)))??;
        Some(in_use(&file.display().to_string(), &holders(&file)))
    }

    /// Unmounts. Programs that still use a file get errors from now on.
    pub(super) fn close(&self) {
        if let Some(mount) = self.0.write().expect("no holder panics").take() {
            mount.close();
        }
    }
}

impl Service {
    /// Returns the cached data by file, if a directory is mounted.
    pub(crate) fn cached_files(&self) -> Option<Vec<FileCounters>> {
        self.files.with_directory(DirectoryMount::files)
    }

    /// Returns the files of a directory that contain these ranges of one of its volumes.
    pub(crate) fn failing_files(&self, volume: &str, failing: &[Range<u64>]) -> Vec<FailingFile> {
        self.files.with_directory(|mount| mount.failing(volume, failing)).unwrap_or_default()
    }

    /// Unmounts the files, after their users are gone or on a second signal.
    pub(crate) fn unmount(&self, requests: &RequestReceiver) -> Unmounted {
        let mut reported: Option<PathUsers> = None;
        let (mut next_search, mut interval) = (Instant::now(), SEARCH_INTERVAL);
        loop {
            let in_use = match self.try_unmount() {
                None if reported.is_none() => return Unmounted::AtOnce,
                None => return Unmounted::AfterWait,
                Some(Ok(in_use)) => in_use,
                Some(Err(refused)) => {
                    eprintln!("larder: WARNING: cannot {refused}; it is cut off");
                    return Unmounted::ByForce;
                }
            };
            if Instant::now() >= next_search {
                let users = in_use.users();
                self.report_users(&in_use.path, users, &mut reported, requests);
                next_search = Instant::now() + interval;
                interval = (2 * interval).min(SEARCH_INTERVAL_MAX);
            }
            match requests.wait(RETRY_INTERVAL) {
                Some(ServerRequest::Stop) if self.try_unmount().is_some() => {
                    let path = in_use.path.display();
                    eprintln!("larder: WARNING: {path} is disconnected from its users");
                    let unmount = |mount: &Mount| mount.mounted().unmount(true);
                    if let Some(Err(error @ UnmountError::Refused { .. })) =
                        self.files.with(unmount)
                    {
                        eprintln!("larder: WARNING: cannot {error}");
                    }
                    return Unmounted::ByForce;
                }
                Some(ServerRequest::Report) => self.report(),
                Some(ServerRequest::Stop | ServerRequest::Reload) | None => {}
            }
        }
    }

    /// Reports the users of a mount, if the named ones are not those that were reported.
    fn report_users(
        &self,
        path: &Path,
        users: PathUsers,
        reported: &mut Option<PathUsers>,
        requests: &RequestReceiver,
    ) {
        let named = |users: &PathUsers| -> Vec<PathUser> {
            users.first.iter().filter(|user| !user.is_note()).cloned().collect()
        };
        if reported.as_ref().is_some_and(|before| named(before) == named(&users)) {
            return;
        }
        if reported.is_none() {
            // A stop that was requested before the message does not mean to disconnect.
            while let Some(request) = requests.wait(Duration::ZERO) {
                if request == ServerRequest::Report {
                    self.report();
                }
            }
        }
        let path = path.display().to_string();
        eprintln!(
            "larder: {}; no unwritten data is left, and the server waits for these programs; \
             another signal disconnects them, and data that they have not written yet is lost",
            in_use(&path, &users)
        );
        self.report_waiting(path, users.clone());
        *reported = Some(users);
    }

    /// Tries to unmount the files; returns the mount that is in use, and `None` if the mount has
    /// ended or there is none.
    fn try_unmount(&self) -> Option<Result<MountInUse, UnmountError>> {
        self.files.with(|mount| {
            let mounted = mount.mounted();
            match mounted.unmount(false) {
                Ok(()) => {
                    // The threads of the mount learn of its end within moments.
                    let deadline = Instant::now() + RETRY_INTERVAL;
                    while !mounted.is_gone() && Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let path = mounted.path().to_owned();
                    (!mounted.is_gone()).then_some(Ok(MountInUse { path, is_hidden: true }))
                }
                Err(UnmountError::Busy(path)) => Some(Ok(MountInUse { path, is_hidden: false })),
                Err(refused @ UnmountError::Refused { .. }) => Some(Err(refused)),
            }
        })?
    }
}

/// A mount that cannot be removed, or is removed while something uses its file system.
struct MountInUse {
    path: PathBuf,
    /// True if it is removed.
    is_hidden: bool,
}

impl MountInUse {
    fn users(&self) -> PathUsers {
        if self.is_hidden {
            return hidden_users();
        }
        let users = holders(&self.path);
        if users.first.is_empty() { unknown_users() } else { users }
    }
}

/// Returns the users of a mount that is in use although no process and no loop device shows it.
fn unknown_users() -> PathUsers {
    let description = "a mount on it, or a process that cannot be inspected".to_owned();
    PathUsers { first: vec![PathUser { pid: None, description }], others: 0 }
}

/// Returns the users of a mount that was removed while something uses its file system.
fn hidden_users() -> PathUsers {
    let description = "a bind mount, a process in another mount namespace, or one from before a \
                       lazy unmount"
        .to_owned();
    PathUsers { first: vec![PathUser { pid: None, description }], others: 0 }
}
