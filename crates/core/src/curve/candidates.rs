//! Policies side by side, in miniature: what each would hit at the size that a volume has.
//!
//! Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
//! simulations", ATC '17: a cache of `pages` over all references behaves like one of
//! `rate * pages` over the references of the pages that are sampled at `rate`. All candidates see
//! the same pages, so that what one misses more than another is known far better than what each
//! misses. What is summed by windows of references also says how sure a difference is: one that
//! comes from a single window, however large, is a thing of that window.
//!
//! Memory: `bytes`.

use super::estimate::as_f64;
use super::index::Hash;
use crate::policy::PolicyKind;
use crate::replace::Small;

/// The policies that are compared: those that are best somewhere over the traces of
/// docs/curve.md. `wtinylfu` is not among them, since its miniatures are not like it.
pub const CANDIDATES: [PolicyKind; 5] = [
    PolicyKind::S3Fifo,
    PolicyKind::Clock2QPlus,
    PolicyKind::TwoQ,
    PolicyKind::Lru,
    PolicyKind::Lirs,
];
pub(super) const COUNT: usize = CANDIDATES.len();

/// Bytes of all miniatures of so many slots: what their policies keep, an entry of the index (16 to
/// 32) and the page.
pub(super) fn bytes(slots: usize) -> usize {
    CANDIDATES.iter().map(|kind| slots * (kind.bytes_per_page() + 40)).sum()
}

/// Sums over windows of sampled references, aged.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowedTotals {
    /// References.
    references: f64,
    /// Misses of each candidate.
    misses: [f64; COUNT],
    /// For each pair, the squares of how much more one missed than the other, window by window.
    squares: [[f64; COUNT]; COUNT],
}

/// How much more one candidate misses than another, as shares of the references.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Lead {
    /// The share.
    pub(super) share: f64,
    /// What it would be if only chance decided who missed more in a window.
    pub(super) chance: f64,
}

impl WindowedTotals {
    /// Ages what was summed and adds a window.
    pub(super) fn turn(&mut self, keep: f64, references: f64, misses: &[f64; COUNT]) {
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

    /// What `one` misses more than `other`.
    pub(super) fn lead(&self, one: usize, other: usize) -> Lead {
        let references = self.references.max(1.0);
        Lead {
            share: (self.misses[one] - self.misses[other]) / references,
            chance: self.squares[one][other].sqrt() / references,
        }
    }

    /// Whether anything was referenced.
    pub(super) fn is_empty(&self) -> bool {
        self.references < 1.0
    }
}

/// The miniatures.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Pages are sampled whose hash is below.
    threshold: u64,
    caches: Vec<Small>,
    /// References and misses in the window at hand.
    references: u64,
    misses: [u64; COUNT],
    pub(super) sums: WindowedTotals,
}

impl Candidates {
    /// Miniatures with so many slots each, over the pages whose hash is below the threshold.
    pub(super) fn new(threshold: u64, slots: u64) -> Self {
        let slots = u32::try_from(slots.max(1)).expect("few slots");
        Candidates {
            threshold,
            caches: CANDIDATES.iter().map(|&kind| Small::new(kind, slots)).collect(),
            references: 0,
            misses: [0; COUNT],
            sums: WindowedTotals::default(),
        }
    }

    #[inline]
    pub(super) fn reference(&mut self, page: u64, hash: u64) {
        if hash >= self.threshold {
            return;
        }
        let name = Hash::of(page);
        self.references += 1;
        for (cache, misses) in self.caches.iter_mut().zip(&mut self.misses) {
            *misses += u64::from(!cache.touch(page, name));
        }
    }

    /// Ends a window; what was summed before is worth so much.
    pub(super) fn turn(&mut self, keep: f64) {
        let references = as_f64(std::mem::take(&mut self.references));
        let misses = std::mem::take(&mut self.misses).map(as_f64);
        self.sums.turn(keep, references, &misses);
    }
}
