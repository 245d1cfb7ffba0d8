//! A control variate for samples of pages: a quantity that is known for all pages as well as for
//! the sampled ones.
//!
//! The quantity is the number of references that miss in a small filter, a direct-mapped table with
//! one page per entry. Where the sampled pages have too many or too few of those misses, a
//! regression over groups of pages corrects the estimated misses of a cache (Cochran, "Sampling
//! techniques", 3rd edition, chapter 7). The number of all references would not work as the
//! control: a few pages may have most of the references, and the sample either has such a page or
//! not.

use super::estimate::{mean, regression, squares};
use super::sample_set::{GROUPS, GROUPS_F64};
use crate::units::as_f64;

/// Entries of the filter: few enough to stay in the processor cache.
const ENTRIES: usize = 1 << 15;
/// The 97.5 % quantile of Student's t with two degrees of freedom fewer than there are groups.
pub(super) const STUDENT: f64 = 2.145;
/// The half width of a 95 % interval of a normal distribution, in standard deviations.
const NORMAL: f64 = 2.0;

/// The filter.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// The upper half of the hash of the last page in each entry.
    entries: Vec<u32>,
    /// References that missed, of all pages.
    misses: u64,
}

impl Filter {
    pub(super) fn new() -> Self {
        Filter { entries: vec![0; ENTRIES], misses: 0 }
    }

    /// References the page with this hash; returns true if it missed.
    #[inline]
    pub(super) fn misses(&mut self, hash: u64) -> bool {
        let upper = u32::try_from(hash >> 32).expect("a shifted u64");
        // Samples and groups are selected by other bits.
        let entry = &mut self.entries[(hash >> 4) as usize % ENTRIES];
        let missed = std::mem::replace(entry, upper) != upper;
        self.misses += u64::from(missed);
        missed
    }

    /// Returns the number of references of all pages that missed.
    pub(super) fn total(&self) -> f64 {
        as_f64(self.misses)
    }
}

/// Estimated counts of the groups of a sample. All of them are scaled to all pages, so that each is
/// an estimate of the whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupCounts {
    /// The count that is estimated.
    pub(super) counts: [f64; GROUPS],
    /// The control variate.
    pub(super) controls: [f64; GROUPS],
    /// The true value of the control variate.
    pub(super) control: f64,
    /// The share of the pages that all groups together contain.
    pub(super) rate: f64,
}

impl GroupCounts {
    /// Returns what the control variate adds to an estimate from all groups, and half the width of
    /// the 95 % interval of their mean after this correction.
    pub(super) fn correction(&self) -> (f64, f64) {
        let (slope, rest) = regression(&self.controls, &self.counts);
        (slope * (self.control - mean(&self.controls)), self.half_interval(rest))
    }

    /// Returns half the width of the interval without the correction.
    pub(super) fn error_without_control(&self) -> f64 {
        self.half_interval(squares(&self.counts))
    }

    /// Returns half the width of the interval that follows from a sum of squared residuals.
    fn half_interval(&self, squares: f64) -> f64 {
        let unsampled = (1.0 - self.rate).max(0.0);
        let variance = squares / GROUPS_F64 / (GROUPS_F64 - 2.0) * unsampled;
        // The interval of a few references would be too narrow: one more or less is possible.
        STUDENT * variance.sqrt() + unsampled / self.rate
    }
}

/// Returns half the width of the 95 % interval, as a share of the size, of the cache size that a
/// sampled cache of `slots` slots represents, where `rate` of the pages are sampled: the number of
/// sampled pages among those of a large cache varies by its square root.
pub(super) fn size_error(slots: f64, rate: f64) -> f64 {
    NORMAL * ((1.0 - rate).max(0.0) / slots.max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_in_proportion_to_the_control_is_corrected_without_error() {
        let controls = std::array::from_fn(|group| 100.0 + as_f64(group as u64));
        let counts = controls.map(|control| 3.0 * control + 5.0);
        let groups = GroupCounts { counts, controls, control: 110.0, rate: 0.1 };
        let (more, half) = groups.correction();
        assert!((mean(&counts) + more - 335.0).abs() < 1e-9, "{more}");
        assert!((half - 9.0).abs() < 1e-6, "one sampled reference stands for ten: {half}");
    }

    #[test]
    fn the_interval_is_that_of_the_mean_of_the_groups() {
        let counts = std::array::from_fn(|group| if group % 2 == 0 { 9.0 } else { 11.0 });
        let of = |rate| GroupCounts { counts, controls: [1.0; GROUPS], control: 1.0, rate };
        // Without a control the residual sum of squares is 16. Half of all pages were sampled: only
        // the other half is uncertain.
        let (more, half) = of(0.5).correction();
        let expected = STUDENT * (16.0_f64 / (16.0 * 14.0) * 0.5).sqrt() + 1.0;
        assert!(more.abs() < 1e-9 && (half - expected).abs() < 1e-9, "{more} {half}");
        assert!((of(0.5).error_without_control() - half).abs() < 1e-9);
        assert!(of(1.0).correction().1.abs() < 1e-9);
    }

    #[test]
    fn the_filter_misses_first_references_and_conflicts() {
        let mut filter = Filter::new();
        let (one, other) = (7_u64 << 40, 9_u64 << 40);
        let missed = [one, one, other, one].map(|hash| filter.misses(hash));
        assert_eq!(missed, [true, false, true, true]);
        assert!((filter.total() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_sample_knows_the_size_less_exactly() {
        assert!((size_error(10_000.0, 0.0) - 0.02).abs() < 1e-9);
        assert!(size_error(100.0, 0.0) > size_error(100.0, 0.5));
        assert!(size_error(100.0, 1.0).abs() < 1e-9 && size_error(0.0, 0.0) <= NORMAL);
    }
}
