//! The exports of a server, which can be added and removed while it runs.
//!
//! A handshake offers the exports that exist when it begins. New handshakes do not offer a removed
//! export. Its clients get replies to the requests that the server has received, `ESHUTDOWN` for
//! later ones, and are disconnected when none of their requests is in flight.

use super::handshake::{BlockSizes, ExportInfo};
use super::options::ServerLimits;
use crate::engine::ArenaVolume;
use crate::nbd_wire as wire;
use crate::store::AllocationMap;
use larder_core::mode::WriteMode;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A volume that is offered under a name.
#[derive(Clone)]
pub struct Export {
    /// Information for clients that does not change.
    pub(super) info: ExportInfo,
    pub(super) volume: Arc<ArenaVolume>,
    pub(super) map: Arc<dyn AllocationMap>,
    removed: Arc<AtomicBool>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Export {
    /// Returns an export of `volume` under its name; if `default`, also under the empty name.
    ///
    /// Several connections are allowed because a flush on one covers what was acknowledged on all.
    #[must_use]
    pub fn new(
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
        default: bool,
        limits: &ServerLimits,
    ) -> Self {
        let info = ExportInfo {
            name: volume.name().to_owned(),
            description: String::new(),
            length: volume.geometry().length,
            read_only: false,
            block_sizes: BlockSizes { min: 1, preferred: 4096, max: limits.request_bytes_max },
            features: wire::FLAG_SEND_FLUSH
                | wire::FLAG_SEND_FUA
                | wire::FLAG_SEND_TRIM
                | wire::FLAG_SEND_WRITE_ZEROES
                | wire::FLAG_SEND_CACHE
                | wire::FLAG_CAN_MULTI_CONN,
            default,
        };
        Export { info, volume, map, removed: Arc::new(AtomicBool::new(false)) }
    }

    /// Returns the information for a new client: the write mode and the page size can change.
    pub(super) fn current_info(&self) -> ExportInfo {
        let mut info = self.info.clone();
        info.read_only = self.volume.write_mode() == WriteMode::ReadOnly;
        info.block_sizes.preferred =
            u32::try_from(self.volume.page_bytes()).expect("at most 1 MiB");
        info
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Returns true if this is the same export, not another one of the same name.
    pub(super) fn is_same(&self, other: &Export) -> bool {
        Arc::ptr_eq(&self.removed, &other.removed)
    }
}

/// Error of adding an export whose name is in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {0}: there is an export of this name")]
pub struct ExportNameInUse(pub String);

#[derive(Debug, Default)]
pub(super) struct Exports(Mutex<Vec<Export>>);

impl Exports {
    pub(super) fn new(exports: Vec<Export>) -> Self {
        Exports(Mutex::new(exports))
    }

    pub(super) fn list(&self) -> Vec<Export> {
        self.0.lock().expect("no holder panics").clone()
    }

    pub(super) fn add(&self, export: Export) -> Result<(), ExportNameInUse> {
        let mut exports = self.0.lock().expect("no holder panics");
        if exports.iter().any(|other| other.info.name == export.info.name) {
            return Err(ExportNameInUse(export.info.name));
        }
        exports.push(export);
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) -> Option<Export> {
        let mut exports = self.0.lock().expect("no holder panics");
        let index = exports.iter().position(|export| export.info.name == name)?;
        let export = exports.remove(index);
        export.removed.store(true, Ordering::Release);
        Some(export)
    }
}
