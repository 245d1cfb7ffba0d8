//! The life of a volume: its handles, a stop, a freeze, its removal, and the error that ends it.

use super::NO_VOLUME;
use crate::page::BlockKey;
use crate::settings::SettingError;
use crate::store::StoreError;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// Value of `handles` for a closed volume: no handle can be opened.
const CLOSED: u32 = u32::MAX;

/// The state of a volume in its life.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// Number of open handles, or [`CLOSED`].
    handles: AtomicU32,
    stopping: AtomicBool,
    frozen: AtomicBool,
    removed: AtomicBool,
    /// The internal error that has ended the volume, if any.
    broken: OnceLock<StoreError>,
    /// Key of the first block in lookups of [`crate::request::Session::read_hit`]: that of the
    /// volume, or that of [`NO_VOLUME`] if the volume is broken or inputs are logged, so that the
    /// lookup finds no block. So a hit needs no extra check.
    lookup_key: AtomicU64,
}

impl Lifecycle {
    /// Returns the state of a new volume; `lookup_id` is its number for lookups.
    pub(super) fn new(lookup_id: u16) -> Self {
        Lifecycle {
            handles: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            broken: OnceLock::new(),
            lookup_key: AtomicU64::new(BlockKey::first_of(lookup_id)),
        }
    }

    #[inline]
    pub(crate) fn lookup_key(&self) -> u64 {
        self.lookup_key.load(Ordering::Relaxed)
    }

    /// Counts a handle of the volume `name`.
    pub(crate) fn add_handle(&self, name: &str) -> Result<(), SettingError> {
        let one_more = |handles: u32| (handles != CLOSED).then(|| handles + 1);
        let entered = self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        entered.map(drop).map_err(|_closed| SettingError::Removed { volume: name.to_owned() })
    }

    pub(crate) fn remove_handle(&self) {
        let before = self.handles.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0 && before != CLOSED, "a handle was closed that was not open");
    }

    /// Closes the volume `name` if no handle is open: no handle can be opened from now on.
    pub(crate) fn close(&self, name: &str) -> Result<(), SettingError> {
        let closed = self.handles.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        let volume = || name.to_owned();
        closed.map(drop).map_err(|handles| match handles {
            CLOSED => SettingError::Removed { volume: volume() },
            handles => SettingError::InUse { volume: volume(), handles },
        })
    }

    /// Reverts [`Lifecycle::close`].
    pub(crate) fn reopen(&self) {
        self.handles.store(0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.handles.load(Ordering::Acquire) == CLOSED
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn set_stopping(&self, stopping: bool) {
        self.stopping.store(stopping, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Release);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(super) fn note_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn broken(&self) -> Option<&StoreError> {
        self.broken.get()
    }

    /// Records that an internal error has ended the volume; the first error is kept.
    pub(crate) fn note_broken(&self, error: StoreError) {
        // The first error causes the later ones.
        let _is_first = self.broken.set(error).is_ok();
        self.lookup_key.store(BlockKey::first_of(NO_VOLUME), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    #[test]
    fn a_volume_closes_only_without_handles_and_opens_none_afterwards() {
        let life = Lifecycle::new(3);
        life.add_handle("v").unwrap();
        let volume = || "v".to_owned();
        assert_eq!(life.close("v"), Err(SettingError::InUse { volume: volume(), handles: 1 }));
        life.remove_handle();
        life.close("v").unwrap();
        let removed = Err(SettingError::Removed { volume: volume() });
        assert_eq!((life.add_handle("v"), life.close("v")), (removed.clone(), removed));
        life.reopen();
        assert!(!life.is_closed());
        life.add_handle("v").unwrap();
    }

    #[test]
    fn look_ups_of_a_broken_volume_find_nothing_and_the_first_error_stays() {
        let life = Lifecycle::new(3);
        assert_eq!(life.lookup_key(), BlockKey::first_of(3));
        let [first, second] = ["one", "two"]
            .map(|text| StoreError::new(StoreErrorKind::Io, format!("internal error: {text}")));
        life.note_broken(first.clone());
        life.note_broken(second);
        assert_eq!(life.broken(), Some(&first));
        assert_eq!(life.lookup_key(), BlockKey::first_of(NO_VOLUME));
    }
}
