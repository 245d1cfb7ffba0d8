//! Policy comparison by miniature simulation: the hits of each policy at the size of a volume.
//!
//! Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
//! simulations", ATC '17: a cache of `pages` over all references behaves like one of `rate * pages`
//! over the references of the pages that are sampled at `rate`. All candidates see the same pages,
//! so the difference between two candidates is known far better than the misses of each. The
//! simulation of a volume that has no more pages than a miniature is not a sample: it is exact.
//!
//! The counts of a *step* are for the decision (see [`auto`](super::auto)), those of a window of
//! references for the report: totals over windows also give the uncertainty of a difference.
//!
//! Memory: `bytes`.

use super::miniature::NOT_ESTIMATED;
use super::sampler::SampledReference;
use crate::page_index::Hash;
use crate::policy::PolicyKind;
use crate::replace::{CacheEvent, SmallCache};
use crate::units::as_f64;

/// The policies that `--policy auto` chooses from. Another policy seldom hits 0.2 points more than
/// the best of these; docs/curve.md has the figures. [`NOT_ESTIMATED`] is compared only where the
/// comparison is exact.
pub const CANDIDATES: [PolicyKind; 6] = [
    PolicyKind::S3Fifo,
    PolicyKind::Clock2QPlus,
    PolicyKind::TwoQ,
    PolicyKind::Linux,
    PolicyKind::Lirs,
    PolicyKind::WTinyLfu,
];
/// The maximum number of compared policies: the candidates, and the current one.
pub(super) const COMPARED_MAX: usize = CANDIDATES.len() + 1;

/// Returns the maximum size in bytes of all miniatures with this many slots: the state of their
/// policies, an entry of the index (16 to 32 bytes), the page number and a flag.
pub(super) fn bytes(slots: usize) -> usize {
    let of = |&kind: &PolicyKind| slots * SmallCache::bytes_per_slot(kind);
    let others = PolicyKind::ALL.iter().filter(|kind| !CANDIDATES.contains(kind));
    let current = others.map(of).max().expect("there are other policies");
    CANDIDATES.iter().map(of).sum::<usize>() + current
}

/// The misses of several policies over the same references.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    pub(super) policies: &'a [PolicyKind],
    /// The slots of each simulated cache.
    pub(super) slots: f64,
    pub(super) references: f64,
    /// The misses of each policy.
    pub(super) misses: &'a [f64],
}

impl Comparison<'_> {
    /// Returns the index of a policy.
    pub(super) fn number_of(&self, kind: PolicyKind) -> Option<usize> {
        self.policies.iter().position(|&other| other == kind)
    }
}

/// Decayed totals over windows of sampled references.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowedTotals {
    /// References.
    references: f64,
    /// Misses of each policy.
    misses: [f64; COMPARED_MAX],
    /// For each pair, the sum over windows of the squared difference of their misses.
    squares: [[f64; COMPARED_MAX]; COMPARED_MAX],
}

/// The difference between the misses of two policies, as shares of the references.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MissLead {
    /// The difference.
    pub(super) share: f64,
    /// Its standard deviation if the true difference is zero.
    pub(super) deviation: f64,
}

impl WindowedTotals {
    /// Decays the totals by `keep` and adds a window.
    fn end_window(&mut self, keep: f64, references: f64, misses: &[f64; COMPARED_MAX]) {
        self.references = self.references * keep + references;
        for one in 0..COMPARED_MAX {
            self.misses[one] = self.misses[one] * keep + misses[one];
            for other in 0..COMPARED_MAX {
                let more = misses[one] - misses[other];
                let square = &mut self.squares[one][other];
                *square = *square * keep * keep + more * more;
            }
        }
    }

    /// Returns the misses of `one` in excess of those of `other`.
    pub(super) fn lead(&self, one: usize, other: usize) -> MissLead {
        let references = self.references.max(1.0);
        MissLead {
            share: (self.misses[one] - self.misses[other]) / references,
            deviation: self.squares[one][other].sqrt() / references,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.references < 1.0
    }
}

/// The miniature caches of all candidates, and of the current policy.
#[derive(Debug)]
pub(super) struct Candidates {
    /// A page is sampled if its hash is below this.
    threshold: u64,
    policies: Vec<PolicyKind>,
    caches: Vec<SmallCache>,
    slots: u32,
    /// References and misses in the current step.
    references: u64,
    misses: [u64; COMPARED_MAX],
    /// References and misses in the earlier steps of the window.
    window: (f64, [f64; COMPARED_MAX]),
    pub(super) totals: WindowedTotals,
}

impl Candidates {
    /// Creates miniatures with `slots` slots each, over the pages whose hash is below the
    /// threshold, for a volume under `current`.
    pub(super) fn new(threshold: u64, slots: u64, current: PolicyKind) -> Self {
        let is_exact = threshold == u64::MAX;
        let mut policies = CANDIDATES.to_vec();
        if !policies.contains(&current) {
            policies.push(current);
        }
        policies.retain(|&kind| is_exact || kind != NOT_ESTIMATED);
        let slots = u32::try_from(slots.max(1)).expect("few slots");
        Candidates {
            threshold,
            caches: policies.iter().map(|&kind| SmallCache::new(kind, slots)).collect(),
            policies,
            slots,
            references: 0,
            misses: [0; COMPARED_MAX],
            window: Default::default(),
            totals: WindowedTotals::default(),
        }
    }

    /// Returns the compared policies.
    pub(super) fn policies(&self) -> &[PolicyKind] {
        &self.policies
    }

    /// Returns the slots of each miniature.
    pub(super) fn slots(&self) -> f64 {
        f64::from(self.slots)
    }

    #[inline]
    pub(super) fn note(&mut self, SampledReference { page, event }: SampledReference, hash: u64) {
        if hash >= self.threshold {
            return;
        }
        let name = Hash::of(page);
        self.references += u64::from(event != CacheEvent::ReadAhead);
        for (cache, misses) in self.caches.iter_mut().zip(&mut self.misses) {
            *misses += u64::from(!cache.replay(page, name, event));
        }
    }

    /// Ends a step; `with` receives its counts.
    pub(super) fn end_step(&mut self, with: impl FnOnce(&Comparison<'_>)) {
        let references = as_f64(std::mem::take(&mut self.references));
        let misses = std::mem::take(&mut self.misses).map(as_f64);
        self.window.0 += references;
        for (sum, misses) in self.window.1.iter_mut().zip(misses) {
            *sum += misses;
        }
        let (policies, slots) = (&self.policies[..], self.slots());
        with(&Comparison { policies, slots, references, misses: &misses[..policies.len()] });
    }

    /// Ends a window, at the end of a step; the totals so far are multiplied by `keep`.
    pub(super) fn end_window(&mut self, keep: f64) {
        let (references, misses) = std::mem::take(&mut self.window);
        self.totals.end_window(keep, references, &misses);
    }
}
