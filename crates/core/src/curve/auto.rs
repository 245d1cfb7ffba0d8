//! Policy selection: the decision of `--policy auto`, a pure function of the misses of the
//! candidates.
//!
//! A change of the policy has a cost: the ghosts of the old policy are lost, and the new policy
//! must learn the hot pages again. A change that comes late has a cost, too: the misses that
//! another policy would have avoided. The rule balances the two, as one rents skis until the rent
//! has cost as much as skis: the policy changes when another one has avoided [`COST`] misses for
//! each page of the cache.
//!
//! The avoided misses are a cumulative sum (Page, "Continuous inspection schemes", Biometrika 41,
//! 1954): it never falls below zero, so a phase in which the current policy is the better one
//! leaves no debt, and the start of another phase is noticed soon. A return to the previous policy
//! doubles the cost, since phases then alternate too fast to follow.

use super::candidates::{CANDIDATES, COMPARED_MAX, Comparison};
use crate::policy::PolicyKind;

/// Avoided misses for each page of the cache after which the policy changes. A change costs several
/// times as many in the worst case, a loop that the new policy does not know, and hardly any in the
/// usual one, since the pages stay. The figures are in docs/curve.md.
pub const COST: f64 = 1.0 / 12.0;
/// The minimum number of avoided misses: fewer are chance in a cache of a few pages.
pub const MISSES_MIN: f64 = 8.0;
/// The share of the references by which a policy must miss less, so that a small lead of a sample,
/// which is an error as often as not, does not add up.
pub const LEAD_MIN: f64 = 0.002;
/// The maximum factor of the cost after returns to the previous policy.
pub const CAUTION_MAX: f64 = 16.0;

/// Misses that another policy has avoided since it last had no lead.
#[derive(Clone, Copy, Debug, Default)]
struct AvoidedMisses {
    /// The cumulative sum of the misses beyond [`LEAD_MIN`].
    sum: f64,
    misses: f64,
    references: f64,
}

impl AvoidedMisses {
    /// Adds misses avoided over some references; the sum stays between zero and `sum_max`.
    fn add(&mut self, misses: f64, references: f64, sum_max: f64) {
        self.sum += misses - LEAD_MIN * references;
        self.misses += misses;
        self.references += references;
        if self.sum <= 0.0 {
            *self = AvoidedMisses::default();
        }
        self.sum = self.sum.min(sum_max);
    }
}

/// State kept between decisions.
#[derive(Clone, Debug)]
pub(super) struct AutoPolicy {
    /// The current policy of the volume.
    current: PolicyKind,
    /// The previous policy.
    previous: Option<PolicyKind>,
    /// The factor of the cost of a change.
    caution: f64,
    /// By number of the compared policy.
    avoided: Vec<AvoidedMisses>,
}

impl AutoPolicy {
    pub(super) fn new(current: PolicyKind) -> Self {
        AutoPolicy {
            current,
            previous: None,
            caution: 1.0,
            avoided: Vec::with_capacity(COMPARED_MAX),
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
        if self.previous == Some(kind) {
            self.caution = (self.caution * 2.0).min(CAUTION_MAX);
        }
        self.previous = Some(self.current);
        self.current = kind;
        self.restart();
    }

    /// Forgets the misses, since other policies or other sizes are compared from now on.
    pub(super) fn restart(&mut self) {
        self.avoided.clear();
    }

    /// Returns the avoided misses after which the policy changes, in caches of `slots` slots.
    fn cost(&self, slots: f64) -> f64 {
        (COST * slots * self.caution).max(MISSES_MIN)
    }

    /// Adds the misses of a step; nothing if those of the current policy are not known.
    pub(super) fn end_step(&mut self, step: &Comparison<'_>) {
        let Some(current) = step.number_of(self.current) else { return };
        self.avoided.resize(step.policies.len(), AvoidedMisses::default());
        // The next phase of a volume that keeps its policy is noticed after twice the cost.
        let sum_max = 2.0 * self.cost(step.slots);
        for (avoided, misses) in self.avoided.iter_mut().zip(step.misses) {
            avoided.add(step.misses[current] - misses, step.references, sum_max);
        }
    }

    /// Returns the policy to switch to, and its lead as a share of the references, given the
    /// compared policies and the slots of their caches. A policy that is not compared, since it
    /// has no miniatures, is replaced by the first candidate.
    pub(super) fn decide(&self, policies: &[PolicyKind], slots: f64) -> Option<(PolicyKind, f64)> {
        if !policies.contains(&self.current) {
            return Some((CANDIDATES[0], 0.0));
        }
        self.better_policy(policies, slots)
    }

    /// Returns the candidate that has avoided the most misses, if they justify a change.
    pub(super) fn better_policy(
        &self,
        policies: &[PolicyKind],
        slots: f64,
    ) -> Option<(PolicyKind, f64)> {
        let cost = self.cost(slots);
        let better = policies.iter().zip(&self.avoided).filter(|(_, avoided)| avoided.sum > cost);
        let best = better.max_by(|one, other| one.1.misses.total_cmp(&other.1.misses));
        best.map(|(&kind, avoided)| (kind, avoided.misses / avoided.references))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: f64 = 1_200.0;

    /// Adds steps of 1,000 references in which all candidates but one miss half.
    fn steps(auto: &mut AutoPolicy, kind: PolicyKind, misses: &[f64]) {
        for &misses in misses {
            let all = CANDIDATES.map(|other| if other == kind { misses } else { 500.0 });
            auto.end_step(&Comparison {
                policies: &CANDIDATES,
                slots: SLOTS,
                references: 1_000.0,
                misses: &all,
            });
        }
    }

    fn decision(auto: &AutoPolicy) -> Option<PolicyKind> {
        auto.decide(&CANDIDATES, SLOTS).map(|(kind, _)| kind)
    }

    #[test]
    fn a_policy_is_followed_when_it_has_avoided_the_cost_of_a_change() {
        // The cost is 100 misses; each step leaves out 2, the minimum lead.
        for (misses, steps_before) in [(300.0, 0), (448.0, 1), (468.0, 3), (497.0, 99)] {
            let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
            for step in 0..=steps_before {
                assert_eq!(decision(&auto), None, "{misses}, {step}");
                steps(&mut auto, PolicyKind::Lirs, &[misses]);
            }
            steps(&mut auto, PolicyKind::Lirs, &[misses]);
            let (kind, gain) = auto.decide(&CANDIDATES, SLOTS).unwrap();
            assert_eq!(kind, PolicyKind::Lirs);
            assert!((gain - (500.0 - misses) / 1000.0).abs() < 1e-9, "{misses}: {gain}");
        }
    }

    #[test]
    fn a_lead_that_is_too_small_never_adds_up() {
        let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
        steps(&mut auto, PolicyKind::Lirs, &[498.5; 1_000]);
        assert_eq!(decision(&auto), None);
    }

    #[test]
    fn a_phase_in_which_the_current_policy_is_better_leaves_no_debt() {
        let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
        steps(&mut auto, PolicyKind::TwoQ, &[700.0; 1_000]);
        steps(&mut auto, PolicyKind::TwoQ, &[450.0; 3]);
        assert_eq!(decision(&auto), Some(PolicyKind::TwoQ));
    }

    #[test]
    fn without_a_change_the_lead_of_an_earlier_phase_is_soon_forgotten() {
        let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
        steps(&mut auto, PolicyKind::TwoQ, &[100.0; 1_000]);
        assert_eq!(decision(&auto), Some(PolicyKind::TwoQ));
        steps(&mut auto, PolicyKind::TwoQ, &[600.0; 2]);
        assert_eq!(decision(&auto), None);
    }

    #[test]
    fn each_return_doubles_the_cost() {
        let mut auto = AutoPolicy::new(PolicyKind::S3Fifo);
        let mut waits = Vec::new();
        for switch in 0..7 {
            let kind = if switch % 2 == 0 { PolicyKind::Lirs } else { PolicyKind::S3Fifo };
            let mut waited = 0;
            while decision(&auto) != Some(kind) {
                steps(&mut auto, kind, &[448.0]);
                waited += 1;
            }
            auto.note_switch(kind);
            waits.push(waited);
        }
        assert_eq!(waits, [3, 3, 5, 9, 17, 33, 33]);
    }

    #[test]
    fn a_policy_without_miniatures_gives_way_to_the_first_candidate() {
        let auto = AutoPolicy::new(PolicyKind::WTinyLfu);
        assert_eq!(auto.decide(&CANDIDATES[..2], SLOTS), Some((CANDIDATES[0], 0.0)));
        assert_eq!(auto.better_policy(&CANDIDATES[..2], SLOTS), None, "nothing is known of it");
    }
}
