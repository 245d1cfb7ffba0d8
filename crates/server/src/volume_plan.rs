//! The settings of one volume.

use crate::policy_choice::PolicyChoice;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::tunables::Tunables;
use larder_io::nbd_client::NbdUri;
use larder_io::store::NbdOptions;
use std::path::PathBuf;

/// The settings of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// Its name.
    pub name: String,
    /// The path or address of its store.
    pub path: PathBuf,
    /// The address of an NBD export on another server, if `path` is one.
    pub upstream: Option<NbdUri>,
    /// Blocks of a page.
    pub page_blocks: u32,
    /// The replacement policy.
    pub policy: PolicyChoice,
    /// The write mode.
    pub write_mode: WriteMode,
    /// The flush mode.
    pub flush_mode: FlushMode,
    /// The expected access pattern.
    pub hint: Hint,
    /// Frames that other volumes cannot take.
    pub min_frames: u32,
    /// Maximum number of frames.
    pub max_frames: u32,
    /// The constants of the lazy writer and of read-ahead.
    pub tunables: Tunables,
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
