//! What `serve` puts a cache before: files, devices, exports of other servers; and what TLS needs.

use super::Arguments;
use crate::args::VolumeArgument;
use anyhow::{Context, Result, ensure};
use larder_core::clock::Clock;
use larder_core::mode::{FlushMode, WriteMode};
use larder_io::front::nbd::TlsOptions;
use larder_io::nbd_client::NbdUri;
use larder_io::store::{self, NbdOptions, Opened};
use larder_io::tls::TlsServer;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Device and inode: what a path must still lead to at the end.
type Identity = (u64, u64);

fn identity(path: &Path) -> std::io::Result<Identity> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// What was opened.
#[derive(Debug, Default)]
pub(super) struct Stores {
    files: Vec<(PathBuf, Identity)>,
    /// Exports of other servers, with the address that was given.
    upstreams: Vec<(String, NbdUri)>,
}

impl Stores {
    /// Opens what a volume lies on.
    pub(super) fn open(
        &mut self,
        volume: &VolumeArgument,
        arguments: &Arguments,
        clock: Arc<dyn Clock>,
    ) -> Result<Opened> {
        let read_only = arguments.write_mode == WriteMode::ReadOnly;
        let Some(uri) = &volume.upstream else {
            let options = store::OpenOptions { read_only, plain: arguments.plain_io };
            let opened = store::open(&volume.path, options, clock)?;
            let found = identity(&volume.path).context("look at the volume once more")?;
            self.files.push((volume.path.clone(), found));
            return Ok(opened);
        };
        let options = NbdOptions {
            read_only,
            ignore_flushes: arguments.flush == FlushMode::Ignore,
            memory_bytes: NbdOptions::memory_beside(arguments.memory),
            ..NbdOptions::default()
        };
        let store::Upstream { opened, identity } = store::open_nbd(uri, options, clock)?;
        if let Some((_, other)) = self.upstreams.iter().find(|(known, _)| *known == identity) {
            anyhow::bail!(
                "serve {uri}: it is the export that {other} is; one cache per store, or \
                           data would be lost"
            );
        }
        self.upstreams.push((identity, uri.clone()));
        Ok(opened)
    }

    /// Paths that do not lead to what was written any more.
    pub(super) fn lost(&self) -> Vec<String> {
        let is_lost = |(path, was): &&(PathBuf, Identity)| identity(path).ok() != Some(*was);
        self.files.iter().filter(is_lost).map(|(path, _)| path.display().to_string()).collect()
    }
}

/// The bytes of `--memory` that are left for the cache: upstream volumes have buffers.
pub(super) fn cache_bytes(arguments: &Arguments) -> Result<u64> {
    let upstreams = arguments.volumes.iter().filter(|volume| volume.upstream.is_some()).count();
    let buffers = NbdOptions::memory_beside(arguments.memory) * upstreams as u64;
    let left = arguments.memory.checked_sub(buffers).filter(|&left| left > 0 || buffers == 0);
    ensure!(
        left.is_some(),
        "serve {upstreams} upstream volumes with {}: their buffers alone are {}; raise --memory",
        larder_report::format::bytes(arguments.memory),
        larder_report::format::bytes(buffers),
    );
    Ok(left.unwrap_or_default())
}

/// What the server does about TLS.
pub(super) fn tls(arguments: &Arguments) -> Result<TlsOptions> {
    let Some(folder) = &arguments.tls else { return Ok(TlsOptions::default()) };
    let server = TlsServer::from_directory(folder, arguments.tls_verify_peer)?;
    Ok(TlsOptions::new(server, arguments.tls_mode == "require"))
}
