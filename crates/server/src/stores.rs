//! The stores of `serve`: files, devices, exports of other servers; and its TLS options.

use crate::settings::ServerSettings;
use crate::volume_plan::VolumePlan;
use anyhow::{Context, Result, anyhow, ensure};
use larder_core::clock::Clock;
use larder_core::mode::{FlushMode, WriteMode};
use larder_io::fault;
use larder_io::front::nbd::TlsOptions;
use larder_io::store::{self, NbdOptions, Opened};
use larder_io::tls::TlsServer;
use larder_io::warm_list::StoreIdentity;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval at which a connection attempt checks if the server is stopping.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Device and inode: the file that a path must still lead to at the end.
type FileIdentity = (u64, u64);

fn identity(path: &Path) -> std::io::Result<FileIdentity> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The opened files and devices.
#[derive(Debug, Default)]
pub(super) struct Stores {
    files: Vec<(PathBuf, FileIdentity)>,
    /// Paths that were lost at the last check, and are logged.
    lost: Vec<PathBuf>,
}

fn is_lost((path, identity_at_open): &(PathBuf, FileIdentity)) -> bool {
    identity(path).ok() != Some(*identity_at_open)
}

/// Returns the paths of `files` that no longer lead to the opened files. It may wait for a file
/// system, so no lock is held meanwhile.
pub(super) fn find_lost_files(files: &[(PathBuf, FileIdentity)]) -> Vec<PathBuf> {
    files.iter().filter(|file| is_lost(file)).map(|(path, _)| path.clone()).collect()
}

/// The opened store of a volume that is being added.
pub(super) struct OpenedStore {
    pub(super) opened: Opened,
    /// The file or device; `None` for an upstream volume.
    file: Option<(PathBuf, FileIdentity)>,
}

impl OpenedStore {
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
            return Ok(OpenedStore { opened, file: Some((volume.path.clone(), file_identity)) });
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
                Ok(upstream) => return Ok(OpenedStore { opened: upstream?.opened, file: None }),
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
    pub(super) fn add_opened(&mut self, store: OpenedStore) -> Opened {
        self.files.extend(store.file);
        store.opened
    }

    /// Returns the files and devices with their identities at the opening.
    pub(super) fn files(&self) -> Vec<(PathBuf, FileIdentity)> {
        self.files.clone()
    }

    /// Records the lost paths. Returns those that were not lost at the last call, and so are not
    /// logged yet.
    pub(super) fn record_lost(&mut self, lost: &[PathBuf]) -> Vec<PathBuf> {
        let new = lost.iter().filter(|path| !self.lost.contains(path)).cloned().collect();
        self.lost = lost.to_vec();
        new
    }

    /// Returns the paths that were lost at the last call of [`Stores::record_lost`].
    pub(super) fn known_lost(&self) -> Vec<PathBuf> {
        self.lost.clone()
    }

    /// Removes the entry of a volume; returns true if its path was lost.
    pub(super) fn forget(&mut self, volume: &VolumePlan) -> bool {
        let removed = self.files.extract_if(.., |(path, _)| *path == volume.path);
        removed.fold(false, |lost, file| lost | is_lost(&file))
    }
}

/// Returns the identity of a volume's store, for its warm list.
pub(super) fn store_identity(volume: &VolumePlan, length: u64) -> std::io::Result<StoreIdentity> {
    match &volume.upstream {
        Some(uri) => Ok(StoreIdentity::of_export(&uri.to_string(), length)),
        None => StoreIdentity::of_path(&volume.path, length),
    }
}

/// Returns the TLS options of the server.
pub(super) fn tls(settings: &ServerSettings) -> Result<TlsOptions> {
    let Some(directory) = &settings.tls else { return Ok(TlsOptions::default()) };
    let server = TlsServer::from_directory(directory, settings.tls_verify_peer)?;
    Ok(TlsOptions::new(server, !settings.allows_plain_clients))
}
