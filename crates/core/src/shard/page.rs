//! A page of an instance.

use crate::clock::Nanos;
use crate::policy::Slot;

/// A page that has a resident block or is being filled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// Page number in the volume.
    pub(crate) number: u64,
    /// Time, and epoch of the volume, at which the page became dirty.
    pub(crate) dirty_at: Nanos,
    pub(crate) dirty_epoch: u64,
    /// Neighbors in the list of dirty pages, if the page is in it.
    pub(super) dirty_older: Slot,
    pub(super) dirty_newer: Slot,
    /// Number of the last writeback of the page; at most one is in progress.
    pub(crate) writeback_seq: u32,
    /// Numbers of blocks that are resident, dirty, being written, and dirty since a write of them
    /// failed.
    pub(crate) resident: u16,
    pub(crate) dirty: u16,
    pub(crate) writing: u16,
    pub(crate) failing: u16,
    /// Operations of the current writeback that have not completed, and true if one of them has
    /// failed.
    pub(crate) ops: u16,
    pub(crate) writeback_failed: bool,
    pub(crate) filling: bool,
}

impl Page {
    pub(crate) fn new(number: u64) -> Self {
        Page { number, ..Page::default() }
    }

    pub(crate) fn is_under_writeback(&self) -> bool {
        self.ops > 0
    }

    /// Returns true if a writeback of the page can start.
    pub(crate) fn can_start_writeback(&self) -> bool {
        self.dirty > 0 && !self.is_under_writeback()
    }

    /// Returns true if the state of the page allows its eviction.
    pub(crate) fn is_clean_and_idle(&self) -> bool {
        self.dirty == 0 && self.writing == 0 && !self.filling
    }
}
