//! The stores of `serve`: files, devices, exports of other servers; and its TLS options.

use crate::lock;
use crate::settings::ServerSettings;
use crate::volume_plan::VolumePlan;
use anyhow::{Context, Result, anyhow, ensure};
use larder_core::clock::Clock;
use larder_core::mode::{FlushMode, WriteMode};
use larder_io::fault;
use larder_io::front::nbd::TlsOptions;
use larder_io::store::{self, NbdOptions, OpenedStore};
use larder_io::tls::TlsServer;
use larder_io::warm_list::StoreIdentity;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// Interval at which a connection attempt checks if the server is stopping.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Device and inode: the file that a path must still lead to at the end.
type FileIdentity = (u64, u64);

fn identity(path: &Path) -> std::io::Result<FileIdentity> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn is_lost((path, identity_at_open): &(PathBuf, FileIdentity)) -> bool {
    identity(path).ok() != Some(*identity_at_open)
}

/// The opened files and devices.
#[derive(Debug, Default)]
pub(super) struct Stores {
    files: Mutex<Vec<(PathBuf, FileIdentity)>>,
    /// Paths that were lost at the last check, and are logged.
    lost: Mutex<Vec<PathBuf>>,
    /// Held by the thread that checks the paths.
    check: Mutex<()>,
}

/// The opened store of a volume that is being added.
pub(super) struct VolumeStore {
    pub(super) opened: OpenedStore,
    /// The file or device; `None` for an upstream volume.
    file: Option<(PathBuf, FileIdentity)>,
}

impl VolumeStore {
    /// Opens the store of a volume, with plain system calls if `plain`. Ends early when the server
    /// stops, since connecting to an upstream server may take long.
    pub(super) fn open(
        volume: &VolumePlan,
        memory_bytes: u64,
        plain: bool,
        clock: Arc<dyn Clock>,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let read_only = volume.write_mode == WriteMode::ReadOnly;
        let Some(uri) = volume.upstream.clone() else {
            let options = store::OpenOptions { read_only, plain };
            let opened = store::open(&volume.path, options, clock)?;
            let file_identity = identity(&volume.path).context("look at the volume once more")?;
            return Ok(VolumeStore { opened, file: Some((volume.path.clone(), file_identity)) });
        };
        let options = NbdOptions {
            read_only,
            ignore_flushes: volume.flush_mode == FlushMode::Ignore,
            memory_bytes: NbdOptions::memory_beside(memory_bytes),
            ..NbdOptions::default()
        };
        let (sender, receiver) = channel();
        let sender_at_panic = sender.clone();
        let connect = move || {
            // If the server stops meanwhile, the channel has no receiver, and the store is closed.
            drop(sender.send(store::open_nbd(&uri, options, clock).map_err(anyhow::Error::from)));
        };
        let failed = move |panic: &dyn fmt::Display| {
            drop(sender_at_panic.send(Err(anyhow!("connect: {panic}"))));
        };
        fault::spawn("connect", None, connect, failed).context("start a thread")?;
        loop {
            match receiver.recv_timeout(STOP_CHECK) {
                Ok(upstream) => return Ok(VolumeStore { opened: upstream?.opened, file: None }),
                Err(RecvTimeoutError::Timeout) => {
                    let name = &volume.name;
                    ensure!(!is_stopping(), "add {name}: the server is stopping");
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends a result"),
            }
        }
    }
}

impl Stores {
    /// Records a store that was opened, and returns it.
    pub(super) fn add_opened(&self, store: VolumeStore) -> OpenedStore {
        lock(&self.files).extend(store.file);
        store.opened
    }

    /// Removes the entry of a volume; returns true if its path was lost.
    pub(super) fn forget(&self, volume: &VolumePlan) -> bool {
        let mut files = lock(&self.files);
        let removed = files.extract_if(.., |(path, _)| *path == volume.path);
        removed.fold(false, |lost, file| lost | is_lost(&file))
    }

    /// Returns the paths that no longer lead to the files that are written, and logs each new one.
    /// It may wait for a file system.
    pub(super) fn find_lost(&self) -> Vec<PathBuf> {
        let _guard = lock(&self.check);
        self.check_paths()
    }

    /// Checks the paths, unless another thread does so and may be waiting for a file system.
    pub(super) fn try_find_lost(&self) {
        let guard = self.check.try_lock();
        if !matches!(guard, Err(TryLockError::WouldBlock)) {
            drop(self.check_paths());
        }
    }

    /// Returns the paths that were lost at the last check.
    pub(super) fn known_lost(&self) -> Vec<PathBuf> {
        lock(&self.lost).clone()
    }

    /// The file system may not respond, so no lock on the lists is held meanwhile.
    fn check_paths(&self) -> Vec<PathBuf> {
        let files = lock(&self.files).clone();
        let lost: Vec<_> = files.into_iter().filter(is_lost).map(|(path, _)| path).collect();
        let known = std::mem::replace(&mut *lock(&self.lost), lost.clone());
        for path in lost.iter().filter(|path| !known.contains(path)) {
            tracing::warn!(
                "{} was deleted or replaced while it is served; data written from now on is lost \
                 when the server ends (copy the data through the server)",
                path.display()
            );
        }
        lost
    }
}

/// Returns the identity of a volume's store, for its warm list.
pub(super) fn store_identity(volume: &VolumePlan, length: u64) -> std::io::Result<StoreIdentity> {
    match &volume.upstream {
        Some(uri) => Ok(StoreIdentity::of_export(&uri.to_string(), length)),
        None => StoreIdentity::of_path(&volume.path, length),
    }
}

pub(super) fn tls(settings: &ServerSettings) -> Result<TlsOptions> {
    let Some(directory) = &settings.tls else { return Ok(TlsOptions::default()) };
    let server = TlsServer::from_directory(directory, settings.tls_verify_peer)?;
    Ok(TlsOptions::new(server, !settings.allows_plain_clients))
}
