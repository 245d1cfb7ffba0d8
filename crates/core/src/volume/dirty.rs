//! The data of a volume that its store does not have yet, and the errors of its writes.
//!
//! A block is clean, dirty, or being written; a dirty block is *failing* if its last write failed.
//! The sum of the dirty and written blocks of all volumes is kept in [`AllVolumes`].

use super::quota::AllVolumes;
use crate::store::StoreError;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, lock};

/// Counts of unclean blocks, and the errors.
#[derive(Debug)]
pub(crate) struct DirtyState {
    /// Blocks newer than the store and not being written.
    dirty: CachePadded<AtomicU64>,
    /// Blocks being written.
    writing: CachePadded<AtomicU64>,
    /// Blocks whose last write failed.
    failing: AtomicU64,
    /// Number of flushes so far; each page records the value at which it became dirty.
    epoch: AtomicU64,
    /// Number of failed writes and flushes.
    errors: AtomicU64,
    last_error: Mutex<Option<StoreError>>,
    all: Arc<AllVolumes>,
}

impl DirtyState {
    pub(super) fn new(all: Arc<AllVolumes>) -> Self {
        DirtyState {
            dirty: CachePadded::default(),
            writing: CachePadded::default(),
            failing: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            all,
        }
    }

    #[inline]
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn writing(&self) -> u64 {
        self.writing.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn failing(&self) -> u64 {
        self.failing.load(Ordering::Acquire)
    }

    /// Returns the number of blocks that are dirty or being written. A block that changes from one
    /// to the other during the call may be counted twice.
    #[inline]
    pub(crate) fn unclean(&self) -> u64 {
        let dirty = self.dirty();
        let writing = self.writing();
        // The blocks of a write that has just failed are dirty again.
        dirty.max(self.dirty()) + writing
    }

    /// Returns the number of unclean blocks of the other volumes.
    #[inline]
    pub(super) fn unclean_of_others(&self) -> u64 {
        self.all.unclean.load(Ordering::Acquire).saturating_sub(self.unclean())
    }

    /// Returns the number of frames of the pool.
    #[inline]
    pub(super) fn frames_of_all(&self) -> u64 {
        self.all.frames.load(Ordering::Relaxed)
    }

    /// Counts blocks that became dirty. Returns the number of dirty blocks before.
    #[inline]
    pub(crate) fn add(&self, blocks: u64) -> u64 {
        self.all.unclean.fetch_add(blocks, Ordering::AcqRel);
        self.dirty.fetch_add(blocks, Ordering::AcqRel)
    }

    pub(crate) fn start_write(&self, blocks: u64) {
        self.writing.fetch_add(blocks, Ordering::AcqRel);
        self.dirty.fetch_sub(blocks, Ordering::AcqRel);
    }

    /// Ends the write of `written` blocks, of which `back` are dirty again because it failed.
    pub(crate) fn end_write(&self, written: u64, back: u64) {
        self.dirty.fetch_add(back, Ordering::AcqRel);
        self.writing.fetch_sub(written, Ordering::AcqRel);
        self.all.unclean.fetch_sub(written - back, Ordering::AcqRel);
    }

    pub(crate) fn discard(&self, blocks: u64) {
        self.dirty.fetch_sub(blocks, Ordering::AcqRel);
        self.all.unclean.fetch_sub(blocks, Ordering::AcqRel);
    }

    /// Counts `added` blocks as failing and `removed` ones no longer.
    pub(crate) fn change_failing(&self, added: u64, removed: u64) {
        // Most writes succeed: the cache line stays with the threads that read it.
        if added != removed {
            self.failing.fetch_add(added, Ordering::AcqRel);
            self.failing.fetch_sub(removed, Ordering::AcqRel);
        }
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Begins the next epoch. Returns the one that ends.
    pub(crate) fn end_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel)
    }

    /// Records a failed write or flush. The next flush of every handle reports it.
    pub(crate) fn note_error(&self, error: &StoreError) {
        *lock(&self.last_error) = Some(error.clone());
        self.errors.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn last_error(&self) -> Option<StoreError> {
        lock(&self.last_error).clone()
    }

    /// Returns the last error of a write or flush, while writes are failing.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        (self.failing() > 0).then(|| self.last_error()).flatten()
    }

    /// Returns the number of errors that a new handle counts as reported: those whose data was
    /// written since.
    pub(crate) fn resolved_errors(&self) -> u64 {
        if self.failing() > 0 { 0 } else { self.errors.load(Ordering::Acquire) }
    }

    /// Returns the last error if a handle that has reported `seen` errors has not reported it, and
    /// marks it as reported.
    pub(crate) fn take_unreported_error(&self, seen: &AtomicU64) -> Option<StoreError> {
        let errors = self.errors.load(Ordering::Acquire);
        (seen.swap(errors, Ordering::AcqRel) < errors).then(|| self.last_error()).flatten()
    }

    pub(crate) fn mark_reported(&self, seen: &AtomicU64) {
        seen.store(self.errors.load(Ordering::Acquire), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    #[test]
    fn blocks_of_a_failed_write_are_dirty_and_failing_until_they_are_written() {
        let all = Arc::new(AllVolumes::default());
        let [state, other] = [(), ()].map(|()| DirtyState::new(Arc::clone(&all)));
        assert_eq!((state.add(5), other.add(2)), (0, 0));
        state.start_write(4);
        assert_eq!((state.dirty(), state.writing(), state.unclean()), (1, 4, 5));
        state.end_write(4, 3);
        state.change_failing(3, 0);
        assert_eq!((state.dirty(), state.writing(), state.failing()), (4, 0, 3));
        assert_eq!((other.unclean_of_others(), state.unclean_of_others()), (4, 2));
        state.start_write(3);
        state.end_write(3, 0);
        state.change_failing(0, 3);
        state.discard(1);
        assert_eq!((state.unclean(), state.failing(), other.unclean_of_others()), (0, 0, 0));
    }

    #[test]
    fn each_handle_reports_an_error_once() {
        let state = DirtyState::new(Arc::default());
        let handles = [AtomicU64::new(0), AtomicU64::new(0)];
        let error = StoreError::new(StoreErrorKind::Io, "write: no space".to_owned());
        state.add(1);
        state.note_error(&error);
        state.change_failing(1, 0);
        assert_eq!(state.failure(), Some(error.clone()));
        assert_eq!(state.resolved_errors(), 0, "a new handle reports it too");
        assert_eq!(state.take_unreported_error(&handles[0]), Some(error));
        assert_eq!(state.take_unreported_error(&handles[0]), None);
        state.mark_reported(&handles[1]);
        assert_eq!(state.take_unreported_error(&handles[1]), None);
        state.change_failing(0, 1);
        assert_eq!((state.failure(), state.resolved_errors()), (None, 1));
    }
}
