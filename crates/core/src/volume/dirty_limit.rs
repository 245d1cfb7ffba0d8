//! The dirty limit: the number of unclean blocks at which writes wait.

use super::Volume;
use crate::frames::Frames;
use crate::store::StoreError;
use crate::tunables::Tunable;
use crate::units::BLOCK_BYTES_U64;

impl<F: Frames> Volume<F> {
    /// Returns the number of blocks that the store does not have yet, dirty or being written. A
    /// block that changes from one to the other during the call may be counted twice.
    #[must_use]
    pub fn unclean_blocks(&self) -> u64 {
        self.dirty.unclean()
    }

    /// Returns true if the store has all data. Blocks whose write has failed count as failing
    /// before they are dirty again, and until a write of them succeeds.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unclean_blocks() == 0 && self.dirty.failing() == 0
    }

    /// Returns the bytes that the store does not have yet, dirty or being written, in whole blocks.
    #[must_use]
    pub fn unclean_bytes(&self) -> u64 {
        self.unclean_blocks() * BLOCK_BYTES_U64
    }

    /// Returns the maximum number of unclean blocks, not counting some that cannot be written. The
    /// unclean blocks of all volumes together leave a tenth of the memory to reads, but each volume
    /// may have half of its reserve.
    #[must_use]
    pub fn dirty_limit_blocks(&self) -> u64 {
        let volume_limit = self.own_dirty_limit_blocks();
        let others = self.dirty.unclean_of_others();
        if others == 0 {
            return volume_limit;
        }
        let frames = self.dirty.frames_of_all();
        let frames_left = (frames - frames / 10).saturating_sub(others);
        let least = u64::from(self.page_blocks().max(self.quota.floor() / 2));
        volume_limit.min(frames_left.max(least))
    }

    /// Returns the maximum number of unclean blocks while other volumes have none.
    fn own_dirty_limit_blocks(&self) -> u64 {
        self.config.share_of_capacity(Tunable::DirtyLimit).max(u64::from(self.page_blocks()))
    }

    /// Returns true if writes must wait: the unclean blocks reach the dirty limit.
    pub(crate) fn is_at_dirty_limit(&self) -> bool {
        let (unclean, limit) = (self.unclean_blocks(), self.dirty_limit_blocks());
        unclean >= limit && self.limited_blocks(unclean, limit) >= limit
    }

    /// Returns the number of `unclean` blocks that count against the dirty limit of `limit`. Blocks
    /// that cannot be written do not count, up to half of the limit and half of the memory beyond
    /// it: they may belong to one file of many, and must not block writes of the others.
    pub(crate) fn limited_blocks(&self, unclean: u64, limit: u64) -> u64 {
        let beyond = self.blocks_beyond_limit(limit);
        unclean.saturating_sub(self.dirty.failing().min(beyond))
    }

    /// Returns the number of blocks that cannot be written and do not count against the dirty limit
    /// of `limit`.
    fn blocks_beyond_limit(&self, limit: u64) -> u64 {
        let beyond = self.own_blocks_beyond_limit(limit);
        let others = self.dirty.unclean_of_others();
        if others == 0 {
            return beyond;
        }
        let frames = self.dirty.frames_of_all();
        beyond.min((frames - frames / 20).saturating_sub(others + limit))
    }

    /// Returns the number of blocks, dirty or being written, at which every write that needs one
    /// more stalls or fails, whatever the store does.
    pub(crate) fn unclean_blocks_max(&self) -> u64 {
        let limit = self.own_dirty_limit_blocks();
        limit + self.own_blocks_beyond_limit(limit)
    }

    /// Returns the same as [`Volume::blocks_beyond_limit`] while other volumes have no unclean
    /// blocks.
    fn own_blocks_beyond_limit(&self, limit: u64) -> u64 {
        limit.min(self.config.capacity().saturating_sub(limit)) / 2
    }

    /// Returns the error of the last write if the unwritten blocks are almost only those whose
    /// write has failed: others are at most an eighth of the dirty limit. Then no space can be
    /// expected. With more others, the lazy writer has yet to try some of them, or the store to
    /// complete them.
    pub(crate) fn failure_at_limit(&self) -> Option<StoreError> {
        let others = self.unclean_blocks().saturating_sub(self.dirty.failing());
        if others > self.dirty_limit_blocks() / 8 { None } else { self.failure() }
    }

    /// Returns true if writes of blocks that are not dirty fail now: the dirty limit is reached,
    /// and the store has failed to write nearly all dirty blocks.
    #[must_use]
    pub fn is_refusing_writes(&self) -> bool {
        self.is_at_dirty_limit() && self.failure_at_limit().is_some()
    }

    /// Returns the last error of a write or flush, while writes are failing.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.dirty.failure()
    }
}
