//! What the cache has changed of a volume by itself: its policy, when, and why.

use crate::clock::Nanos;
use crate::policy::PolicyKind;
use crate::sync::{Mutex, lock};
use std::collections::VecDeque;

/// So many switches are remembered.
const SWITCHES_MAX: usize = 16;

/// A change of policy that the cache decided on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicySwitch {
    /// When, on the clock of the cache.
    pub at: Nanos,
    /// The policy before.
    pub from: PolicyKind,
    /// The policy since then.
    pub to: PolicyKind,
    /// What the new one missed less in miniature, as a share of the references.
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

    /// Oldest first.
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
