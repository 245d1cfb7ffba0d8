//! The policy switches that the cache has decided on.

use crate::clock::Nanos;
use crate::policy::PolicyKind;
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

/// The latest switches of a volume.
#[derive(Debug, Default)]
pub(crate) struct Switches(Mutex<VecDeque<PolicySwitch>>);

impl Switches {
    pub(crate) fn note(&self, switch: PolicySwitch) {
        let mut switches = lock(&self.0);
        if switches.len() == SWITCHES_MAX {
            switches.pop_front();
        }
        switches.push_back(switch);
    }

    /// Returns the switches, oldest first.
    pub(crate) fn list(&self) -> Vec<PolicySwitch> {
        lock(&self.0).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_switches_are_kept_in_their_order() {
        let switches = Switches::default();
        for at in 0..SWITCHES_MAX as u64 + 3 {
            let (from, to) = (PolicyKind::Lru, PolicyKind::TwoQ);
            switches.note(PolicySwitch { at, from, to, gain: 0.1 });
        }
        let times: Vec<Nanos> = switches.list().iter().map(|switch| switch.at).collect();
        assert_eq!(times, (3..SWITCHES_MAX as u64 + 3).collect::<Vec<_>>());
    }
}
