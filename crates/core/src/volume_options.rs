//! Options of a volume.

use crate::hint::Hint;
use crate::mode::{FlushMode, WriteMode};
use crate::policy::PolicyKind;
use crate::settings::FrameBounds;
use crate::store::Geometry;
use crate::tunables::Tunables;

/// Options of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VolumeOptions {
    /// Its name in messages and tables.
    pub name: String,
    /// Properties of the store.
    pub geometry: Geometry,
    /// Blocks in a page: a power of two up to
    /// [`PAGE_BLOCKS_MAX`](crate::units::PAGE_BLOCKS_MAX).
    pub page_blocks: u32,
    /// Replacement policy; the initial one if the cache may change it.
    pub policy: PolicyKind,
    /// True if the cache may switch to a policy with more hits.
    pub policy_auto: bool,
    /// True if the cache tracks the hit-ratio curve. Without the curve, it selects neither policy
    /// nor share automatically.
    pub curve: bool,
    /// Write mode.
    pub write_mode: WriteMode,
    /// Flush mode.
    pub flush_mode: FlushMode,
    /// Minimum number of frames, which other volumes cannot take.
    pub min_frames: u32,
    /// Maximum number of frames.
    pub max_frames: u32,
    /// Constants of the lazy writer, the dirty limit and read-ahead.
    pub tunables: Tunables,
    /// Access pattern of requests without a hint.
    pub hint: Hint,
}

impl VolumeOptions {
    /// Returns the defaults for a store: 4 KiB pages, S3-FIFO, write-back, flush mode `keep`, no
    /// floor and no ceiling.
    #[must_use]
    pub fn new(name: impl Into<String>, geometry: Geometry) -> Self {
        VolumeOptions {
            name: name.into(),
            geometry,
            page_blocks: 1,
            policy: PolicyKind::S3Fifo,
            policy_auto: false,
            curve: true,
            write_mode: if geometry.read_only { WriteMode::ReadOnly } else { WriteMode::Back },
            flush_mode: FlushMode::Keep,
            min_frames: 0,
            max_frames: u32::MAX,
            tunables: Tunables::default(),
            hint: Hint::Normal,
        }
    }

    pub(crate) fn frame_bounds(&self) -> FrameBounds<'_> {
        FrameBounds {
            name: &self.name,
            min: self.min_frames,
            max: self.max_frames,
            page_blocks: self.page_blocks,
        }
    }
}
