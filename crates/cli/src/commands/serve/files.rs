//! What is mounted, volumes as files or a directory, and how it ends.
//!
//! Invariants: the files of `--fuse` are those of the volumes that are served; nothing is cut off
//! from a file that is in use unless it is asked for a second time.

use super::service::{Served, Service};
use super::shared::Listening;
use super::{Arguments, DirectoryArguments};
use crate::signals::{SignalAction, SignalChannel};
use anyhow::{Result, ensure};
use larder_host::holders::holders;
use larder_io::engine::Engine;
use larder_io::front::fuse::{
    Directory, DirectoryMount, FailingFile, FileFigures, UnmountError, VolumeMount,
};
use larder_io::front::observe::Observer;
use larder_io::reclaim;
use rustix::process::{Signal, getpid, kill_process};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// How often it is looked whether a mount in use can go.
const RETRY: Duration = Duration::from_millis(250);
/// Of those who use a mount, so many are named.
const NAMED_MAX: usize = 5;

/// A mount.
enum Mounted {
    Volumes(VolumeMount),
    /// With who listens for changes behind it.
    Directory(DirectoryMount, Option<Listening>),
}

impl Mounted {
    fn path(&self) -> &Path {
        match self {
            Mounted::Volumes(mount) => mount.path(),
            Mounted::Directory(mount, _) => mount.path(),
        }
    }

    fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        match self {
            Mounted::Volumes(mount) => mount.unmount(lazily),
            Mounted::Directory(mount, _) => mount.unmount(lazily),
        }
    }

    fn took_over(&self) -> bool {
        match self {
            Mounted::Volumes(mount) => mount.took_over(),
            Mounted::Directory(mount, _) => mount.took_over(),
        }
    }

    fn close(self) {
        match self {
            Mounted::Volumes(mount) => mount.close(),
            Mounted::Directory(mount, listening) => {
                drop(listening);
                mount.close();
            }
        }
    }
}

/// The mount, if there is one.
pub(super) struct Files(RwLock<Option<Mounted>>);

/// Makes the process fit to lie below file systems, as far as it may; whether its memory is locked.
///
/// # Errors
/// The directory for the files does not exist.
pub(super) fn prepare(arguments: &Arguments) -> Result<bool> {
    let Some(directory) = &arguments.fuse else { return Ok(false) };
    // A mount of a server that was killed is there, though it answers with an error.
    let is_missing = matches!(directory.try_exists(), Ok(false));
    let shown = directory.display();
    ensure!(!is_missing, "mount at {shown}: there is no such directory; make it first");
    let (locked, spared) = (reclaim::lock_memory(), reclaim::be_spared());
    if locked.is_ok() {
        reclaim::reserve();
    }
    for error in [locked.as_ref().err(), spared.as_ref().err()].into_iter().flatten() {
        eprintln!(
            "larder: note: failed to {error}; a file system or swap on the files could then make \
             the machine wait for itself when memory is short"
        );
    }
    Ok(locked.is_ok())
}

impl Files {
    pub(super) fn start(
        arguments: &Arguments,
        engine: &Arc<Engine>,
        volumes: &[Served],
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self> {
        let Some(directory) = &arguments.fuse else { return Ok(Files(RwLock::new(None))) };
        let volumes = volumes.iter().map(|served| (Arc::clone(&served.volume), served.map.clone()));
        let (engine, volumes) = (Arc::clone(engine), volumes.collect());
        let mount = VolumeMount::start(engine, directory, volumes, observer, arguments.plain_io)?;
        if let Some(note) = mount.note() {
            eprintln!("larder: note: {note}");
        }
        Ok(Files::of(Mounted::Volumes(mount)))
    }

    /// Mounts a directory, whose files are the volumes of `served`.
    pub(super) fn start_directory(
        arguments: &DirectoryArguments,
        engine: &Arc<Engine>,
        directory: Directory,
        served: &[Served],
    ) -> Result<Self> {
        let volumes = served.iter().map(|served| Arc::clone(&served.volume)).collect();
        let (at, others) = (&arguments.mountpoint, arguments.allow_other);
        let mount = DirectoryMount::start(Arc::clone(engine), directory, volumes, at, others)?;
        for note in mount.notes() {
            eprintln!("larder: note: {note}");
        }
        // Whoever unmounts it wants it to end, with everything written.
        mount.when_gone(|| {
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                tracing::warn!(%error, "what is not mounted any more is served on");
            }
        });
        let shared = arguments.shared;
        let listening = shared.then(|| Listening::start(&arguments.source, &mount)).flatten();
        Ok(Files::of(Mounted::Directory(mount, listening)))
    }

    fn of(mount: Mounted) -> Self {
        if mount.took_over() {
            let path = mount.path().display();
            eprintln!("larder: note: {path} was still mounted by a larder that was killed");
        }
        Files(RwLock::new(Some(mount)))
    }

    fn with<T>(&self, ask: impl FnOnce(&Mounted) -> T) -> Option<T> {
        self.0.read().expect("no holder panics").as_ref().map(ask)
    }

    /// The same where volumes are shown as files.
    fn with_volumes<T>(&self, ask: impl FnOnce(&VolumeMount) -> T) -> Option<T> {
        match self.0.read().expect("no holder panics").as_ref() {
            Some(Mounted::Volumes(mount)) => Some(ask(mount)),
            Some(Mounted::Directory(..)) | None => None,
        }
    }

    /// Shows one more volume.
    pub(super) fn add(&self, served: &Served) -> Result<()> {
        let (volume, map) = (Arc::clone(&served.volume), Arc::clone(&served.map));
        self.with_volumes(|mount| mount.add(volume, map)).transpose()?;
        Ok(())
    }

    /// Shows a volume no more; afterwards nobody uses it by its file.
    pub(super) fn remove(&self, name: &str, patience: Duration) {
        self.with_volumes(|mount| mount.remove(name, patience));
    }

    /// What is cached of the files of a directory, if one is mounted.
    fn cached(&self) -> Option<Vec<FileFigures>> {
        match self.0.read().expect("no holder panics").as_ref() {
            Some(Mounted::Directory(mount, _)) => Some(mount.files()),
            Some(Mounted::Volumes(_)) | None => None,
        }
    }

    /// The files of a directory that these ranges of one of its volumes are of.
    fn failing(&self, volume: &str, failing: &[Range<u64>]) -> Vec<FailingFile> {
        match self.0.read().expect("no holder panics").as_ref() {
            Some(Mounted::Directory(mount, _)) => mount.failing(volume, failing),
            Some(Mounted::Volumes(_)) | None => Vec::new(),
        }
    }

    /// The file of a volume, if there is one.
    pub(super) fn file(&self, name: &str) -> Option<PathBuf> {
        self.with_volumes(|mount| mount.file(name))
    }

    /// Why the file of a volume cannot go now, if that is so.
    pub(super) fn use_of(&self, name: &str) -> Option<String> {
        let file =
            self.with_volumes(|mount| (mount.opens(name) > 0).then(|| mount.file(name)))??;
        Some(in_use(&file))
    }

    /// Ends it. Whoever still uses a file gets errors from now on.
    pub(super) fn close(&self) {
        if let Some(mount) = self.0.write().expect("no holder panics").take() {
            mount.close();
        }
    }
}

/// That a path is in use, and by whom as far as that can be told.
fn in_use(path: &Path) -> String {
    let mut users: Vec<_> = holders(path).iter().map(ToString::to_string).collect();
    let more = users.len().saturating_sub(NAMED_MAX);
    users.truncate(NAMED_MAX);
    if more > 0 {
        users.push(format!("{more} more"));
    }
    let path = path.display();
    if users.is_empty() {
        return format!("{path} is in use");
    }
    format!("{path} is in use: {}", users.join(", "))
}

impl Service {
    /// What is cached of the files of a directory, if one is mounted.
    pub(crate) fn cached_files(&self) -> Option<Vec<FileFigures>> {
        self.files().cached()
    }

    /// The files of a directory that these ranges of one of its volumes are of.
    pub(crate) fn failing_files(&self, volume: &str, failing: &[Range<u64>]) -> Vec<FailingFile> {
        self.files().failing(volume, failing)
    }

    /// Unmounts the files, after those who use them are gone or a second signal came; whether
    /// anything may have been written while it waited for that.
    pub(crate) fn unmount(&self, signals: &SignalChannel) -> bool {
        let attempt = |lazily| self.files().with(|mount| mount.unmount(lazily));
        let mut told = String::new();
        loop {
            let path = match attempt(false) {
                None | Some(Ok(())) => return !told.is_empty(),
                Some(Err(UnmountError::Busy(path))) => path,
                Some(Err(error @ UnmountError::Refused { .. })) => {
                    eprintln!("larder: WARNING: failed to {error}; it is cut off");
                    return true;
                }
            };
            let why = in_use(&path);
            if why != told {
                eprintln!(
                    "larder: {why}; everything is written, and it is served until they are gone; \
                     another signal cuts them off, which loses what they have not written"
                );
                told = why;
            }
            match signals.wait(RETRY) {
                Some(SignalAction::Stop) => {
                    eprintln!(
                        "larder: WARNING: {} is cut off from those who use it",
                        path.display()
                    );
                    if let Some(Err(error @ UnmountError::Refused { .. })) = attempt(true) {
                        eprintln!("larder: WARNING: failed to {error}");
                    }
                    return true;
                }
                Some(SignalAction::Report) => self.report(),
                Some(SignalAction::Reload) | None => {}
            }
        }
    }
}
