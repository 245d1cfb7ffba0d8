//! What changes of a volume while it serves: its settings, its page size, and whether it is there.

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
    /// Sets the write mode, for requests that begin from now on. What is dirty stays so and is
    /// written as before, also where the mode becomes one that makes nothing dirty.
    ///
    /// # Errors
    /// If the store takes no writes, for any mode but [`WriteMode::ReadOnly`].
    pub fn set_write_mode(&self, mode: WriteMode) -> Result<(), SettingError> {
        if self.geometry.read_only && mode != WriteMode::ReadOnly {
            return Err(SettingError::ReadOnlyStore { volume: self.name.clone() });
        }
        let _logged = self.log_setting(|| Setting::WriteMode(mode));
        self.write_mode.store(index_in(WriteMode::ALL, &mode), Ordering::Release);
        Ok(())
    }

    /// Sets the flush mode, for requests that begin from now on. The first flush that is kept again
    /// covers also what was written while flushes were ignored.
    pub fn set_flush_mode(&self, mode: FlushMode) {
        let _logged = self.log_setting(|| Setting::FlushMode(mode));
        self.flush_mode.store(index_in(FlushMode::ALL, &mode), Ordering::Release);
        self.notify.notify();
    }

    /// Sets a tunable by name, in its own unit.
    ///
    /// # Errors
    /// If there is none of this name or the value is out of its range.
    pub fn set_tunable(&self, name: &str, value: u64) -> Result<(), SettingError> {
        let _logged = self.log_setting(|| Setting::Tunable { name: name.to_owned(), value });
        self.tunables.set(name, value)?;
        self.notify.notify();
        Ok(())
    }

    /// All tunables as they are now.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.tunables.snapshot()
    }

    /// The replacement policy.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        PolicyKind::ALL[usize::from(self.policy.load(Ordering::Relaxed))]
    }

    pub(crate) fn note_policy(&self, kind: PolicyKind) {
        self.policy.store(index_in(&PolicyKind::ALL, &kind), Ordering::Relaxed);
    }

    /// Whether it is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Release);
    }

    /// Frames that other volumes cannot take, and frames that it never exceeds.
    #[must_use]
    pub fn bounds(&self) -> (u32, u32) {
        (self.quota.min(), self.quota.max())
    }

    /// What it is promised and allowed.
    pub(crate) fn frame_bounds(&self) -> FrameBounds<'_> {
        let (min, max) = self.bounds();
        let page_blocks = self.requested_page_blocks().unwrap_or_else(|| self.page_blocks());
        FrameBounds { name: &self.name, min, max, page_blocks }
    }

    /// Frames that ratios of memory refer to.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_capacity(&self, frames: u32) {
        self.capacity.store(u64::from(frames), Ordering::Relaxed);
    }

    /// Blocks in a page.
    #[must_use]
    pub fn page_blocks(&self) -> u32 {
        self.page_blocks.load(Ordering::Acquire)
    }

    /// How its blocks are grouped into pages, as it was a moment ago.
    pub(crate) fn paging(&self) -> Paging {
        Paging { page_blocks: self.page_blocks(), blocks: self.blocks }
    }

    /// What the page size is to become.
    pub(crate) fn requested_page_blocks(&self) -> Option<u32> {
        let wanted = self.requested_page_blocks.load(Ordering::Acquire);
        (wanted != 0).then_some(wanted)
    }

    /// Whether the page size is about to change.
    #[must_use]
    pub fn is_regrouping(&self) -> bool {
        self.requested_page_blocks().is_some()
    }

    /// Asks for another page size.
    pub(crate) fn request_page_blocks(&self, blocks: u32) {
        if self.is_regrouping() || blocks != self.page_blocks() {
            self.requested_page_blocks.store(blocks, Ordering::Release);
        }
    }

    /// All shards have this page size; whether no other is asked for.
    pub(crate) fn note_page_blocks(&self, blocks: u32) -> bool {
        self.page_blocks.store(blocks, Ordering::Release);
        let wanted = &self.requested_page_blocks;
        wanted.compare_exchange(blocks, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Counts a lane.
    pub(crate) fn add_handle(&self) -> Result<(), SettingError> {
        let one_more = |handles: u32| (handles != CLOSED).then(|| handles + 1);
        let entered = self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        entered.map(drop).map_err(|_closed| SettingError::Removed { volume: self.name.clone() })
    }

    /// Counts a lane no more.
    pub(crate) fn remove_handle(&self) {
        let before = self.handles.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0 && before != CLOSED, "a lane was closed that was not open");
    }

    /// Lets no lane in any more, if none is open.
    pub(crate) fn close(&self) -> Result<(), SettingError> {
        let closed = self.handles.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        let volume = || self.name.clone();
        closed.map(drop).map_err(|handles| match handles {
            CLOSED => SettingError::Removed { volume: volume() },
            handles => SettingError::InUse { volume: volume(), handles },
        })
    }

    /// Takes [`Volume::close`] back.
    pub(crate) fn reopen(&self) {
        self.handles.store(0, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.handles.load(Ordering::Acquire) == CLOSED
    }

    /// Nothing is cached of it any more, and it asks for nothing.
    pub(crate) fn note_removed(&self) {
        self.quota.set_bounds(0, u32::MAX);
        self.quota.set_reserve(0);
        for coldest in &self.quota.coldest {
            coldest.store(Nanos::MAX, Ordering::Relaxed);
        }
        self.removed.store(true, Ordering::Release);
    }

    /// Whether it has been removed from its cache.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Whether it is removed and no frame remembers it.
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
