//! Policy selection: the decision of `--policy auto`, a pure function of the misses of the
//! candidates.
//!
//! A switch has a cost: the ghosts of the old policy are lost, and the new policy must learn the
//! hot pages again. A workload also has phases, in which another policy is best for a while.
//! Another policy must therefore miss less by [`lead_for`] of the references, and by [`DEVIATIONS`]
//! times the standard deviation over the windows. After each switch the policy stays for a number
//! of windows, twice as many if the switch returns to the previous policy. The constants are those
//! that gave the best results over the traces of docs/curve.md.

use super::candidates::{CANDIDATES, WindowedTotals};
use crate::policy::PolicyKind;

/// The share of the references by which another policy must miss less.
pub const LEAD: f64 = 0.005;
/// The same for LIRS: where LIRS wins it wins by far, on loops; on other workloads its good phases
/// end before a switch pays.
pub const LEAD_LIRS: f64 = 0.10;
/// The lead, in standard deviations, that a switch requires. A single window always lies at exactly
/// one standard deviation, so several windows must agree.
pub const DEVIATIONS: f64 = 1.5;
/// The longest cool-down after a switch, in windows.
pub const COOLDOWN_MAX: u32 = 64;
/// The first cool-down after a switch, in windows.
pub const COOLDOWN_MIN: u32 = 4;
/// The number of windows before the first decision.
const WINDOWS_BEFORE_FIRST: u32 = 2;

/// Returns the share of the references by which `kind` must miss less to replace another policy.
#[must_use]
pub fn lead_for(kind: PolicyKind) -> f64 {
    if kind == PolicyKind::Lirs { LEAD_LIRS } else { LEAD }
}

/// State kept between decisions.
#[derive(Clone, Debug)]
pub(super) struct AutoPolicy {
    /// The current policy of the volume.
    current: PolicyKind,
    /// The previous policy.
    previous: Option<PolicyKind>,
    /// Windows until a switch is allowed, and the length of the last cool-down.
    cooldown_left: u32,
    cooldown: u32,
}

impl AutoPolicy {
    pub(super) fn new(current: PolicyKind) -> Self {
        AutoPolicy {
            current,
            previous: None,
            cooldown_left: WINDOWS_BEFORE_FIRST,
            cooldown: COOLDOWN_MIN,
        }
    }

    pub(super) fn current(&self) -> PolicyKind {
        self.current
    }

    /// Records that the volume now has this policy.
    pub(super) fn note_switch(&mut self, kind: PolicyKind) {
        if kind == self.current {
            return;
        }
        let returns = self.previous == Some(kind);
        self.cooldown = if returns { (self.cooldown * 2).min(COOLDOWN_MAX) } else { self.cooldown };
        self.cooldown_left = self.cooldown;
        self.previous = Some(self.current);
        self.current = kind;
    }

    /// Returns the policy with the fewest misses among those with a clear lead, and its lead.
    /// Returns `None` if the current policy is not a candidate: its misses are not known.
    pub(super) fn better_policy(&self, totals: &WindowedTotals) -> Option<(PolicyKind, f64)> {
        let current = CANDIDATES.iter().position(|&kind| kind == self.current)?;
        let leads = CANDIDATES.iter().enumerate().filter_map(|(number, &kind)| {
            let lead = totals.lead(current, number);
            let is_clear = lead.share > lead_for(kind) && lead.share > DEVIATIONS * lead.deviation;
            is_clear.then_some((kind, lead.share))
        });
        leads.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Returns the policy to switch to and its lead; called at the end of each window.
    pub(super) fn decide(&mut self, totals: &WindowedTotals) -> Option<(PolicyKind, f64)> {
        if self.cooldown_left > 0 {
            self.cooldown_left -= 1;
            return None;
        }
        self.better_policy(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::candidates::COUNT;

    /// Adds windows of 1,000 references in which all candidates but one miss half.
    fn windows(totals: &mut WindowedTotals, number: usize, misses: &[f64]) {
        for &misses in misses {
            let mut all = [500.0; COUNT];
            all[number] = misses;
            totals.end_window(0.8, 1000.0, &all);
        }
    }

    fn decisions(
        auto: &mut AutoPolicy,
        totals: &WindowedTotals,
        count: usize,
    ) -> Vec<Option<PolicyKind>> {
        (0..count).map(|_| auto.decide(totals).map(|(kind, _)| kind)).collect()
    }

    #[test]
    fn a_steady_lead_is_followed_and_a_single_window_is_not() {
        let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
        let mut totals = WindowedTotals::default();
        windows(&mut totals, 2, &[500.0, 100.0]);
        assert_eq!(decisions(&mut auto, &totals, 3), [None; 3]);
        let mut totals = WindowedTotals::default();
        windows(&mut totals, 2, &[480.0; 4]);
        let (kind, gain) = auto.decide(&totals).unwrap();
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
            let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
            let mut totals = WindowedTotals::default();
            windows(&mut totals, number, &[misses; 8]);
            assert_eq!(decisions(&mut auto, &totals, 3)[2], wanted, "{number} {misses}");
        }
    }

    #[test]
    fn after_a_switch_it_rests_and_longer_when_it_goes_back() {
        let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
        let (mut toward, mut back) = (WindowedTotals::default(), WindowedTotals::default());
        windows(&mut toward, 1, &[400.0; 8]);
        windows(&mut back, 0, &[400.0; 8]);
        let mut waits = Vec::new();
        for end_window in 0..5 {
            let totals = if end_window % 2 == 0 { &toward } else { &back };
            let mut waited = 0;
            let kind = loop {
                match auto.decide(totals) {
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
        let mut auto = AutoPolicy::new(PolicyKind::Sieve);
        let mut totals = WindowedTotals::default();
        windows(&mut totals, 1, &[100.0; 8]);
        assert_eq!(decisions(&mut auto, &totals, 8), [None; 8]);
    }
}
