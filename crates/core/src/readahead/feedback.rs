//! Accuracy of read-ahead, over all handles of a volume.
//!
//! It counts the pages that were touched after they had been read ahead, and those that were not:
//! pages evicted untouched, and pages of a stream that was displaced. Both counts decay. The more
//! pages are wasted, the smaller are windows, and the more requests must match before there is a
//! window.

use super::WindowLimits;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::units::as_f64;

/// Sum of the counts at which both are halved: the memory covers some thousand pages.
const REMEMBERED: u64 = 8192;
/// Initial value of both counts, so that the first few pages have little effect.
const GRANTED: u64 = 64;

/// Counts of used and unused read-ahead pages.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    used: AtomicU64,
    unused: AtomicU64,
    /// Number of pages evicted untouched since the start.
    wasted: AtomicU64,
}

impl Feedback {
    /// Counts a page that was touched.
    pub(crate) fn used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
        self.age();
    }

    /// Counts a page that was evicted untouched.
    pub(crate) fn wasted(&self) {
        self.wasted.fetch_add(1, Ordering::Relaxed);
        self.unused(1);
    }

    /// Counts pages that will most likely not be touched.
    pub(crate) fn unused(&self, pages: u64) {
        self.unused.fetch_add(pages, Ordering::Relaxed);
        self.age();
    }

    /// Returns the number of pages evicted untouched so far.
    pub(crate) fn wasted_so_far(&self) -> u64 {
        self.wasted.load(Ordering::Relaxed)
    }

    /// Halves the counts when their sum reaches the limit. If threads do so at the same time, they
    /// are halved twice, which does no harm.
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

    /// Returns the share of recent read-ahead pages that were not touched, 0 to 1.
    pub(crate) fn unused_share(&self) -> f64 {
        let (used, unused) = self.counts();
        as_f64(unused) / as_f64(used + unused + GRANTED)
    }

    /// Returns `limits` reduced by waste: the maximum window is proportional to the share of used
    /// pages, and `steps` doubles for each halving of that share.
    pub(crate) fn apply(&self, limits: WindowLimits) -> WindowLimits {
        let (used, unused) = self.counts();
        let (used, all) = (used + GRANTED, used + unused + GRANTED);
        let max = u128::from(limits.max) * u128::from(used) / u128::from(all);
        let max = u64::try_from(max).expect("a part of a u64").max(limits.min);
        let halvings = (all / used).ilog2().min(4);
        WindowLimits { max, steps: limits.steps << halvings, ..limits }
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
