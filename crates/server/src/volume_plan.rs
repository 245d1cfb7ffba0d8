//! The settings of one volume, and its policy as the user selects it: a fixed one, or the one that
//! hits most.

use larder_core::curve::candidates::CANDIDATES;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_io::engine::policy_bytes;
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

/// A value of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    /// A policy chosen by the user.
    Fixed(PolicyKind),
    /// The cache chooses a policy, and switches when another one hits clearly more.
    Auto,
}

impl PolicyChoice {
    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyChoice::Fixed(kind) => kind.name(),
            PolicyChoice::Auto => "auto",
        }
    }

    /// Returns the initial policy of a volume.
    #[must_use]
    pub fn first(self) -> PolicyKind {
        match self {
            PolicyChoice::Fixed(kind) => kind,
            PolicyChoice::Auto => CANDIDATES[0],
        }
    }

    /// Returns the bytes of policy metadata that each frame may need.
    #[must_use]
    pub fn bytes_per_page(self) -> usize {
        policy_bytes(self.first(), self == PolicyChoice::Auto)
    }
}

impl Default for PolicyChoice {
    fn default() -> Self {
        PolicyChoice::Fixed(PolicyKind::S3Fifo)
    }
}
