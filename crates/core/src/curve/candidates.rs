//! Policy comparison by miniature simulation: the hits of each policy at the size of a volume.
//!
//! Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
//! simulations", ATC '17: a cache of `pages` over all references behaves like one of `rate * pages`
//! over the references of the pages that are sampled at `rate`. All candidates see the same pages,
//! so the difference between two candidates is known far better than the misses of each. Totals
//! over windows of references also give the uncertainty of a difference: a difference from a single
//! window, however large, may be particular to that window.
//!
//! Memory: `bytes`.

use super::sampler::SampledReference;
use crate::page_index::Hash;
use crate::policy::PolicyKind;
use crate::replace::{CacheEvent, SmallCache};
use crate::units::as_f64;

/// The policies that are compared: each is the best on some of the traces of docs/curve.md.
/// `wtinylfu` is not among them, since its miniatures do not behave like the full cache.
pub const CANDIDATES: [PolicyKind; 5] = [
    PolicyKind::S3Fifo,
    PolicyKind::Clock2QPlus,
    PolicyKind::TwoQ,
    PolicyKind::Lru,
    PolicyKind::Lirs,
];
pub(super) const COUNT: usize = CANDIDATES.len();

/// Returns the size in bytes of all miniatures with this many slots: the state of their policies,
/// an entry of the index (16 to 32 bytes), the page number and a flag.
pub(super) fn bytes(slots: usize) -> usize {
    CANDIDATES.iter().map(|&kind| slots * SmallCache::bytes_per_slot(kind)).sum()
}

/// Decayed totals over windows of sampled references.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowedTotals {
    /// References.
    references: f64,
    /// Misses of each candidate.
    misses: [f64; COUNT],
    /// For each pair, the sum over windows of the squared difference of their misses.
    squares: [[f64; COUNT]; COUNT],
}

/// The difference between the misses of two candidates, as shares of the references.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MissLead {
    /// The difference.
    pub(super) share: f64,
    /// Its standard deviation if the true difference is zero.
    pub(super) deviation: f64,
}

impl WindowedTotals {
    /// Decays the totals by `keep` and adds a window.
    pub(super) fn end_window(&mut self, keep: f64, references: f64, misses: &[f64; COUNT]) {
        self.references = self.references * keep + references;
        for one in 0..COUNT {
            self.misses[one] = self.misses[one] * keep + misses[one];
            for other in 0..COUNT {
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

/// The miniature caches of all candidates.
#[derive(Debug)]
pub(super) struct Candidates {
    /// A page is sampled if its hash is below this.
    threshold: u64,
    caches: Vec<SmallCache>,
    /// References and misses in the current window.
    references: u64,
    misses: [u64; COUNT],
    pub(super) totals: WindowedTotals,
}

impl Candidates {
    /// Creates miniatures with `slots` slots each, over the pages whose hash is below the
    /// threshold.
    pub(super) fn new(threshold: u64, slots: u64) -> Self {
        let slots = u32::try_from(slots.max(1)).expect("few slots");
        Candidates {
            threshold,
            caches: CANDIDATES.iter().map(|&kind| SmallCache::new(kind, slots)).collect(),
            references: 0,
            misses: [0; COUNT],
            totals: WindowedTotals::default(),
        }
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

    /// Ends a window; the totals so far are multiplied by `keep`.
    pub(super) fn end_window(&mut self, keep: f64) {
        let references = as_f64(std::mem::take(&mut self.references));
        let misses = std::mem::take(&mut self.misses).map(as_f64);
        self.totals.end_window(keep, references, &misses);
    }
}
