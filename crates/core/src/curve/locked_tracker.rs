//! The tracker of a volume, shared by shards and drivers.

use super::sampler::{PendingSamples, Sampler};
use super::tracker::Tracker;
use super::write_traffic::DecayingCounter;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

/// A tracker behind a lock, which is acquired after the lock of a shard; no lock is acquired while
/// it is held.
#[derive(Debug)]
pub(crate) struct LockedTracker {
    tracker: Mutex<Tracker>,
    /// Write traffic, by window.
    traffic: Mutex<DecayingCounter>,
    /// A step has ended, and no driver has evaluated it yet.
    step_ended: AtomicBool,
}

impl LockedTracker {
    pub(crate) fn new(tracker: Tracker) -> Self {
        let (tracker, traffic) = (Mutex::new(tracker), Mutex::default());
        LockedTracker { tracker, traffic, step_ended: AtomicBool::new(false) }
    }

    pub(crate) fn sampler(&self) -> Sampler {
        self.tracker().sampler()
    }

    pub(crate) fn replace(&self, tracker: Tracker) {
        *self.tracker() = tracker;
        self.step_ended.store(false, Ordering::Release);
    }

    pub(crate) fn traffic(&self) -> MutexGuard<'_, DecayingCounter> {
        lock(&self.traffic)
    }

    pub(crate) fn tracker(&self) -> MutexGuard<'_, Tracker> {
        lock(&self.tracker)
    }

    /// Records the samples that a shard has collected; returns true if a step ended with them.
    pub(crate) fn record_samples(&self, pending: &mut PendingSamples) -> bool {
        let mut tracker = self.tracker();
        tracker.record_samples(&pending.samples);
        pending.samples.clear();
        let step_ended = tracker.count(std::mem::take(&mut pending.counts));
        if step_ended {
            self.step_ended.store(true, Ordering::Release);
        }
        step_ended
    }

    /// Returns true if a step has ended since the last call.
    pub(crate) fn take_step_ended(&self) -> bool {
        self.step_ended.load(Ordering::Acquire) && self.step_ended.swap(false, Ordering::AcqRel)
    }
}
