//! Which policy a volume should have: the decision of `--policy auto`, a pure function of what the
//! candidates missed.
//!
//! A switch costs: the ghosts of the old policy are lost, and the new one learns anew what is hot.
//! And a workload has phases, in which another policy is best for a while. So another policy must
//! miss less by [`lead_of`] the references, and by [`CHANCE`] times what chance would make of the
//! windows; and after each switch nothing is changed for a while, twice as long if the policy that
//! was left a moment ago comes back. The numbers are those that came out best over the traces of
//! docs/curve.md.

use super::candidates::{CANDIDATES, WindowedTotals};
use crate::policy::PolicyKind;

/// The share of references that another policy must miss less.
pub const LEAD: f64 = 0.005;
/// The same for LIRS: where it wins at all it wins by far, on loops; elsewhere its phases pass
/// before a switch pays.
pub const LEAD_LIRS: f64 = 0.10;
/// How many times what chance explains that must be. One window alone is exactly what chance
/// explains, so several must agree.
pub const CHANCE: f64 = 1.5;
/// The longest rest after a switch, in windows.
pub const REST_MAX: u32 = 64;
/// The first rest after a switch, in windows.
pub const REST_MIN: u32 = 4;
/// What comes before the first decision, in windows.
const BEGIN: u32 = 2;

/// The share of references that a policy must miss less to take the place of another.
#[must_use]
pub fn lead_of(kind: PolicyKind) -> f64 {
    if kind == PolicyKind::Lirs { LEAD_LIRS } else { LEAD }
}

/// What is remembered between decisions.
#[derive(Clone, Debug)]
pub(super) struct Auto {
    /// The policy that the volume has.
    current: PolicyKind,
    /// The one that it had before.
    before: Option<PolicyKind>,
    /// Windows until a change is allowed, and how long the last rest was.
    wait: u32,
    rest: u32,
}

impl Auto {
    pub(super) fn new(current: PolicyKind) -> Self {
        Auto { current, before: None, wait: BEGIN, rest: REST_MIN }
    }

    /// The policy that the volume has.
    pub(super) fn current(&self) -> PolicyKind {
        self.current
    }

    /// Notes that the volume has this policy now.
    pub(super) fn note_switch(&mut self, kind: PolicyKind) {
        if kind == self.current {
            return;
        }
        let comes_back = self.before == Some(kind);
        self.rest = if comes_back { (self.rest * 2).min(REST_MAX) } else { self.rest };
        self.wait = self.rest;
        self.before = Some(self.current);
        self.current = kind;
    }

    /// The policy that misses least of those that miss less, clearly, and how much less. None if
    /// the present one is not compared: nothing is known of it.
    pub(super) fn better(&self, sums: &WindowedTotals) -> Option<(PolicyKind, f64)> {
        let current = CANDIDATES.iter().position(|&kind| kind == self.current)?;
        let leads = CANDIDATES.iter().enumerate().filter_map(|(number, &kind)| {
            let lead = sums.lead(current, number);
            let clear = lead.share > lead_of(kind) && lead.share > CHANCE * lead.chance;
            clear.then_some((kind, lead.share))
        });
        leads.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// The policy to switch to and how much less it misses, asked at the end of each window.
    pub(super) fn decide(&mut self, sums: &WindowedTotals) -> Option<(PolicyKind, f64)> {
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        self.better(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::candidates::COUNT;

    /// Windows of 1,000 references in which all miss half but for one candidate.
    fn windows(sums: &mut WindowedTotals, number: usize, misses: &[f64]) {
        for &misses in misses {
            let mut all = [500.0; COUNT];
            all[number] = misses;
            sums.turn(0.8, 1000.0, &all);
        }
    }

    fn decisions(auto: &mut Auto, sums: &WindowedTotals, count: usize) -> Vec<Option<PolicyKind>> {
        (0..count).map(|_| auto.decide(sums).map(|(kind, _)| kind)).collect()
    }

    #[test]
    fn a_steady_lead_is_followed_and_a_single_window_is_not() {
        let mut auto = Auto::new(PolicyKind::S3Fifo);
        let mut sums = WindowedTotals::default();
        windows(&mut sums, 2, &[500.0, 100.0]);
        assert_eq!(decisions(&mut auto, &sums, 3), [None; 3]);
        let mut sums = WindowedTotals::default();
        windows(&mut sums, 2, &[480.0; 4]);
        let (kind, gain) = auto.decide(&sums).unwrap();
        assert_eq!(kind, PolicyKind::TwoQ);
        assert!((gain - 0.02).abs() < 1e-9, "20 of 1,000 in each window: {gain}");
    }

    #[test]
    fn a_lead_too_small_for_the_policy_is_not_followed() {
        for (number, misses, wanted) in [
            (1, 497.0, None),
            (1, 490.0, Some(PolicyKind::Clock2QPlus)),
            (4, 450.0, None),
            (4, 350.0, Some(PolicyKind::Lirs)),
        ] {
            let mut auto = Auto::new(PolicyKind::S3Fifo);
            let mut sums = WindowedTotals::default();
            windows(&mut sums, number, &[misses; 8]);
            assert_eq!(decisions(&mut auto, &sums, 3)[2], wanted, "{number} {misses}");
        }
    }

    #[test]
    fn after_a_switch_it_rests_and_longer_when_it_goes_back() {
        let mut auto = Auto::new(PolicyKind::S3Fifo);
        let (mut toward, mut back) = (WindowedTotals::default(), WindowedTotals::default());
        windows(&mut toward, 1, &[400.0; 8]);
        windows(&mut back, 0, &[400.0; 8]);
        let mut waits = Vec::new();
        for turn in 0..5 {
            let sums = if turn % 2 == 0 { &toward } else { &back };
            let mut waited = 0;
            let kind = loop {
                match auto.decide(sums) {
                    Some((kind, _)) => break kind,
                    None => waited += 1,
                }
            };
            auto.note_switch(kind);
            waits.push(waited);
        }
        assert_eq!(waits, [2, 4, 8, 16, 32]);
    }

    #[test]
    fn of_a_policy_that_is_not_compared_nothing_is_known() {
        let mut auto = Auto::new(PolicyKind::Sieve);
        let mut sums = WindowedTotals::default();
        windows(&mut sums, 1, &[100.0; 8]);
        assert_eq!(decisions(&mut auto, &sums, 8), [None; 8]);
    }
}
