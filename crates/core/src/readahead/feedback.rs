//! Whether reading ahead is worth it, over all lanes of a volume.
//!
//! Two counts of pages: those that were touched after they had been read ahead, and those that were
//! not: evicted untouched, or ahead of a stream that was given up. Old counts weigh less and less.
//! Where much is wasted, windows shrink and more requests must agree before there is one.

use super::Limits;
use crate::curve::estimate::as_f64;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Counts are halved when they reach this together: some thousand pages are remembered.
const REMEMBERED: u64 = 8192;
/// Both counts begin with this, so that a few pages decide nothing.
const GRANTED: u64 = 64;

/// What became of the pages that were read ahead.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    used: AtomicU64,
    unused: AtomicU64,
    /// Pages evicted untouched, ever.
    wasted: AtomicU64,
}

impl Feedback {
    /// A page was touched.
    pub(crate) fn used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
        self.age();
    }

    /// A page was evicted untouched.
    pub(crate) fn wasted(&self) {
        self.wasted.fetch_add(1, Ordering::Relaxed);
        self.unused(1);
    }

    /// Pages will not be touched, as far as can be told.
    pub(crate) fn unused(&self, pages: u64) {
        self.unused.fetch_add(pages, Ordering::Relaxed);
        self.age();
    }

    /// Pages evicted untouched so far.
    pub(crate) fn wasted_so_far(&self) -> u64 {
        self.wasted.load(Ordering::Relaxed)
    }

    /// Halves the counts now and then. Threads that do so at the same time halve them twice, which
    /// is as good.
    fn age(&self) {
        let (used, unused) = self.counts();
        if used + unused >= REMEMBERED {
            self.used.store(used / 2, Ordering::Relaxed);
            self.unused.store(unused / 2, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.unused.load(Ordering::Relaxed))
    }

    /// The share of the pages that were read ahead lately and not touched, 0 to 1.
    pub(crate) fn unused_share(&self) -> f64 {
        let (used, unused) = self.counts();
        as_f64(unused) / as_f64(used + unused + GRANTED)
    }

    /// `limits` as far as they are deserved: the largest window in proportion to the share of pages
    /// that are used, and twice as many steps for each halving of that share.
    pub(crate) fn apply(&self, limits: Limits) -> Limits {
        let (used, unused) = self.counts();
        let (used, all) = (used + GRANTED, used + unused + GRANTED);
        let max = u128::from(limits.max) * u128::from(used) / u128::from(all);
        let max = u64::try_from(max).expect("a part of a u64").max(limits.min);
        let halvings = (all / used).ilog2().min(4);
        Limits { max, steps: limits.steps << halvings, ..limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unused_share_is_that_of_the_pages_read_ahead_lately() {
        let near = |feedback: &Feedback, share: f64| {
            let found = feedback.unused_share();
            assert!((found - share).abs() < 0.01, "{found} and not {share}");
        };
        let feedback = Feedback::default();
        near(&feedback, 0.0);
        feedback.unused(GRANTED);
        near(&feedback, 0.5);
        (0..6 * GRANTED).for_each(|_| feedback.used());
        near(&feedback, 0.125);
        feedback.unused(100 * GRANTED);
        near(&feedback, 101.0 / 108.0);
        (0..20 * REMEMBERED).for_each(|_| feedback.used());
        near(&feedback, 0.0);
    }
}
