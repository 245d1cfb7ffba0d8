//! The settings of one volume.

use larder_core::curve::choice::PolicyChoice;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::tunables::Tunables;
use larder_io::nbd_client::NbdUri;
use larder_io::store::NbdOptions;
use std::path::PathBuf;

/// The settings of one volume; the table has their meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// Its name.
    pub name: String,
    /// The path or address of its store.
    pub path: PathBuf,
    /// The address of an NBD export on another server, if `path` is one.
    pub(crate) upstream: Option<NbdUri>,
    pub(crate) page_blocks: u32,
    pub(crate) policy: PolicyChoice,
    pub(crate) write_mode: WriteMode,
    pub(crate) flush_mode: FlushMode,
    pub(crate) hint: Hint,
    pub(crate) min_frames: u32,
    pub(crate) max_frames: u32,
    pub(crate) tunables: Tunables,
}

impl Default for VolumePlan {
    fn default() -> Self {
        VolumePlan {
            name: String::new(),
            path: PathBuf::new(),
            upstream: None,
            page_blocks: 1,
            policy: PolicyChoice::default(),
            write_mode: WriteMode::Back,
            flush_mode: FlushMode::Keep,
            hint: Hint::Normal,
            min_frames: 0,
            max_frames: u32::MAX,
            tunables: Tunables::default(),
        }
    }
}

impl VolumePlan {
    /// Returns the bytes of `--memory` that the volume uses for its buffers, if it is an upstream
    /// volume.
    pub(crate) fn buffer_bytes(&self, memory_bytes: u64) -> u64 {
        if self.upstream.is_some() { NbdOptions::memory_beside(memory_bytes) } else { 0 }
    }
}
