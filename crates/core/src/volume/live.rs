//! Properties of a volume that change while it serves: its settings, its page size, and its
//! removal.

use super::{CLOSED, NO_VOLUME, Volume, index_in};
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::input::Setting;
use crate::mode::{FlushMode, WriteMode};
use crate::page::{Key, Paging};
use crate::policy::PolicyKind;
use crate::settings::{FrameBounds, SettingError};
use crate::store::StoreError;
use crate::sync::atomic::Ordering;
use crate::tunables::Tunables;

impl<F: Frames> Volume<F> {
    /// Sets the write mode for requests that begin from now on. Dirty data stays dirty and is
    /// written as before, even in a mode that makes no data dirty.
    ///
    /// # Errors
    /// If the store is read-only and the mode is not [`WriteMode::ReadOnly`].
    pub fn set_write_mode(&self, mode: WriteMode) -> Result<(), SettingError> {
        if self.geometry.read_only && mode != WriteMode::ReadOnly {
            return Err(SettingError::ReadOnlyStore { volume: self.name.clone() });
        }
        let _logged = self.log_setting(|| Setting::WriteMode(mode));
        self.write_mode.store(index_in(WriteMode::ALL, &mode), Ordering::Release);
        Ok(())
    }

    /// Sets the flush mode for requests that begin from now on. The first flush in mode `keep` also
    /// covers data that was written while flushes were ignored.
    pub fn set_flush_mode(&self, mode: FlushMode) {
        let _logged = self.log_setting(|| Setting::FlushMode(mode));
        self.flush_mode.store(index_in(FlushMode::ALL, &mode), Ordering::Release);
        self.notify.notify();
    }

    /// Sets a tunable by name, in its own unit.
    ///
    /// # Errors
    /// If no tunable has this name or the value is out of its range.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), SettingError> {
        let _logged = self.log_setting(|| Setting::Tunable { name: name.to_owned(), value });
        self.tunables.set(name, value)?;
        self.notify.notify();
        Ok(())
    }

    /// Returns the present values of all tunables.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.tunables.snapshot()
    }

    /// Returns the replacement policy.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        PolicyKind::ALL[usize::from(self.policy.load(Ordering::Relaxed))]
    }

    pub(crate) fn note_policy(&self, kind: PolicyKind) {
        self.policy.store(index_in(&PolicyKind::ALL, &kind), Ordering::Relaxed);
    }

    /// Returns true if the volume is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Release);
    }

    /// Returns the minimum number of frames, which other volumes cannot take, and the maximum.
    #[must_use]
    pub fn bounds(&self) -> (u32, u32) {
        (self.quota.min(), self.quota.max())
    }

    /// Returns the bounds and the page size.
    pub(crate) fn frame_bounds(&self) -> FrameBounds<'_> {
        let (min, max) = self.bounds();
        let page_blocks = self.requested_page_blocks().unwrap_or_else(|| self.page_blocks());
        FrameBounds { name: &self.name, min, max, page_blocks }
    }

    /// Returns the number of frames to which ratios refer.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, frames: u32) {
        self.capacity.store(u64::from(frames), Ordering::Relaxed);
    }

    /// Returns the number of blocks in a page.
    #[must_use]
    pub fn page_blocks(&self) -> u32 {
        self.page_blocks.load(Ordering::Acquire)
    }

    /// Returns the division of the blocks into pages; it may be outdated.
    pub(crate) fn paging(&self) -> Paging {
        Paging { page_blocks: self.page_blocks(), blocks: self.blocks }
    }

    /// Returns the requested page size, if a change is pending.
    pub(crate) fn requested_page_blocks(&self) -> Option<u32> {
        let page_blocks_requested = self.requested_page_blocks.load(Ordering::Acquire);
        (page_blocks_requested != 0).then_some(page_blocks_requested)
    }

    /// Returns true if a change of the page size is pending.
    #[must_use]
    pub fn is_regrouping(&self) -> bool {
        self.requested_page_blocks().is_some()
    }

    /// Requests another page size.
    pub(crate) fn request_page_blocks(&self, blocks: u32) {
        if self.is_regrouping() || blocks != self.page_blocks() {
            self.requested_page_blocks.store(blocks, Ordering::Release);
        }
    }

    /// Records that all shards have this page size. Returns true if no other size was requested.
    pub(crate) fn note_page_blocks(&self, blocks: u32) -> bool {
        self.page_blocks.store(blocks, Ordering::Release);
        let page_blocks_requested = &self.requested_page_blocks;
        page_blocks_requested
            .compare_exchange(blocks, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Counts a handle.
    pub(crate) fn add_handle(&self) -> Result<(), SettingError> {
        let one_more = |handles: u32| (handles != CLOSED).then(|| handles + 1);
        let entered = self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        entered.map(drop).map_err(|_closed| SettingError::Removed { volume: self.name.clone() })
    }

    /// Uncounts a handle.
    pub(crate) fn remove_handle(&self) {
        let before = self.handles.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0 && before != CLOSED, "a handle was closed that was not open");
    }

    /// Closes the volume if no handle is open: no handle can be opened from now on.
    pub(crate) fn close(&self) -> Result<(), SettingError> {
        let closed = self.handles.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        let volume = || self.name.clone();
        closed.map(drop).map_err(|handles| match handles {
            CLOSED => SettingError::Removed { volume: volume() },
            handles => SettingError::InUse { volume: volume(), handles },
        })
    }

    /// Reverts [`Volume::close`].
    pub(crate) fn reopen(&self) {
        self.handles.store(0, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.handles.load(Ordering::Acquire) == CLOSED
    }

    /// Records the removal: no page of it is cached, and it has no claim to memory.
    pub(crate) fn note_removed(&self) {
        self.quota.set_bounds(0, u32::MAX);
        self.quota.set_reserve(0);
        for coldest in &self.quota.coldest {
            coldest.store(Nanos::MAX, Ordering::Relaxed);
        }
        self.removed.store(true, Ordering::Release);
    }

    /// Returns true if the volume was removed from its cache.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Returns true if the volume is removed and no frame is charged to it.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_removed() && self.quota.usage.load(Ordering::Acquire) == 0
    }

    /// Returns the internal error that has ended the volume, if any.
    #[inline]
    #[must_use]
    pub fn broken(&self) -> Option<&StoreError> {
        self.broken.get()
    }

    /// Records that an internal error has ended the volume; the first error is kept.
    pub(crate) fn note_broken(&self, error: StoreError) {
        // The first error causes the later ones.
        let _is_first = self.broken.set(error).is_ok();
        self.lookup_key.store(Key::first_of(NO_VOLUME), Ordering::Release);
    }
}
