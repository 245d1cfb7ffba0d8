//! Facts that the references to a volume show, and the policy switches that the cache has decided
//! on.

use crate::clock::Nanos;
use crate::curve::locked_tracker::LockedTracker;
use crate::curve::tracker::Tracker;
use crate::policy::PolicyKind;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};
use std::collections::VecDeque;

/// Maximum number of remembered switches.
const SWITCHES_MAX: usize = 16;

/// A change of policy that the cache decided on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicySwitch {
    /// Time on the clock of the cache.
    pub at: Nanos,
    /// The previous policy.
    pub from: PolicyKind,
    /// The new policy.
    pub to: PolicyKind,
    /// The share of references by which the new policy missed less in the miniature simulation.
    pub gain: f64,
}

/// The state of automatic decisions about a volume.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    /// Tracker of the references, if there is one.
    pub(crate) tracker: Option<LockedTracker>,
    /// True if most recent references would miss in a cache of any size.
    scan_dominated: AtomicBool,
    /// The latest switches, oldest first.
    switches: Mutex<VecDeque<PolicySwitch>>,
}

impl Tuning {
    pub(super) fn new(tracker: Option<Tracker>) -> Self {
        Tuning { tracker: tracker.map(LockedTracker::new), ..Tuning::default() }
    }

    #[inline]
    pub(super) fn is_scan_dominated(&self) -> bool {
        self.scan_dominated.load(Ordering::Relaxed)
    }

    pub(crate) fn set_scan_dominated(&self, dominated: bool) {
        self.scan_dominated.store(dominated, Ordering::Relaxed);
    }

    pub(crate) fn note_switch(&self, switch: PolicySwitch) {
        let mut switches = lock(&self.switches);
        if switches.len() == SWITCHES_MAX {
            switches.pop_front();
        }
        switches.push_back(switch);
    }

    pub(super) fn switches(&self) -> Vec<PolicySwitch> {
        lock(&self.switches).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_switches_are_kept_in_their_order() {
        let tuning = Tuning::default();
        for at in 0..SWITCHES_MAX as u64 + 3 {
            let (from, to) = (PolicyKind::Lru, PolicyKind::TwoQ);
            tuning.note_switch(PolicySwitch { at, from, to, gain: 0.1 });
        }
        let times: Vec<Nanos> = tuning.switches().iter().map(|switch| switch.at).collect();
        assert_eq!(times, (3..SWITCHES_MAX as u64 + 3).collect::<Vec<_>>());
    }
}
