//! The tracker of a volume, as shards and drivers share it.

use super::sampler::{PendingSamples, Sampler};
use super::tracker::Tracker;
use super::write_traffic::DecayingCounter;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

/// A tracker behind a lock. Taken after the lock of a shard, and before none.
#[derive(Debug)]
pub(crate) struct LockedTracker {
    tracker: Mutex<Tracker>,
    /// What was written, window by window.
    traffic: Mutex<DecayingCounter>,
    /// A window has ended, and nobody has drawn conclusions yet.
    ended: AtomicBool,
}

impl LockedTracker {
    pub(crate) fn new(tracker: Tracker) -> Self {
        let (tracker, traffic) = (Mutex::new(tracker), Mutex::default());
        LockedTracker { tracker, traffic, ended: AtomicBool::new(false) }
    }

    pub(crate) fn gate(&self) -> Sampler {
        self.tracker().gate()
    }

    /// Puts another tracker in the place of the one that is there.
    pub(crate) fn begin_anew(&self, tracker: Tracker) {
        *self.tracker() = tracker;
        self.ended.store(false, Ordering::Release);
    }

    pub(crate) fn traffic(&self) -> MutexGuard<'_, DecayingCounter> {
        lock(&self.traffic)
    }

    pub(crate) fn tracker(&self) -> MutexGuard<'_, Tracker> {
        lock(&self.tracker)
    }

    /// Takes in what a shard has noted; whether a window ended with that.
    pub(crate) fn take_in(&self, notes: &mut PendingSamples) -> bool {
        let mut tracker = self.tracker();
        tracker.sampled(&notes.noted);
        notes.noted.clear();
        let references = std::mem::take(&mut notes.references);
        let ended = tracker.count(references, std::mem::take(&mut notes.misses));
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        ended
    }

    /// Whether a window has ended since this was asked last.
    pub(crate) fn take_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.ended.swap(false, Ordering::AcqRel)
    }
}
