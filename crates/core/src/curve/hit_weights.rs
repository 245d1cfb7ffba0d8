//! Weights of references by stack distance: an LRU curve that can be added to others and decayed.
//!
//! Sampled pages fall into groups by bits of their hash, and each group has its own histogram. The
//! curve is their sum; the variation between groups gives its error. The number of references that
//! really missed in the cache is known for all pages, not only for the sampled ones. Where the
//! sampled pages have too many or too few misses, a regression over the groups corrects the
//! estimate (a control variate; Cochran, "Sampling techniques", 3rd edition, chapter 7).
//!
//! Memory: [`HitWeights::BYTES`], independent of the references added.

use super::bins;
use super::control::STUDENT;
use super::estimate::{Estimate, regression};
use super::sample_set::{GROUPS, GROUPS_F64};
use crate::units::as_f64;

/// Bits that select a bin within an octave: a bin is at most 6.3 % wide.
const BIN_BITS: u32 = 4;
/// Distances up to 2^32 pages, 16 TiB in pages of 4 KiB.
const BINS: usize = bins::count::<BIN_BITS>(32);

/// Weights of references by stack distance.
#[derive(Clone, Debug)]
pub(super) struct HitWeights {
    /// Weights by distance, then by group.
    bins: Box<[[f32; GROUPS]]>,
    /// Weights of references that miss at every size.
    first: [f64; GROUPS],
    /// Weights of references that missed in the cache, from the sampled pages.
    missed: [f64; GROUPS],
    /// Misses of all pages, counted.
    misses: f64,
    /// References of all pages, counted.
    references: f64,
}

impl HitWeights {
    /// Size of an instance in bytes.
    pub(super) const BYTES: usize = BINS * GROUPS * size_of::<f32>() + size_of::<HitWeights>();

    pub(super) fn new() -> Self {
        HitWeights {
            bins: vec![[0.0; GROUPS]; BINS].into(),
            first: [0.0; GROUPS],
            missed: [0.0; GROUPS],
            misses: 0.0,
            references: 0.0,
        }
    }

    /// Returns the references of all pages so far, decayed like the weights.
    pub(super) fn references(&self) -> f64 {
        self.references
    }

    /// Returns the misses among them.
    pub(super) fn misses(&self) -> f64 {
        self.misses
    }

    /// Counts references of all pages, and the misses among them.
    pub(super) fn count(&mut self, references: u64, misses: u64) {
        self.references += as_f64(references);
        self.misses += as_f64(misses);
    }

    /// Adds a sampled reference that represents `weight` references. `distance` is `None` for a
    /// first reference.
    #[inline]
    pub(super) fn add(&mut self, group: usize, distance: Option<f64>, missed: bool, weight: f64) {
        match distance {
            #[expect(clippy::cast_possible_truncation, reason = "a weight needs no 53 bits")]
            Some(distance) => {
                self.bins[bins::bin::<BIN_BITS>(distance, BINS)][group] += weight as f32;
            }
            None => self.first[group] += weight,
        }
        if missed {
            self.missed[group] += weight;
        }
    }

    /// Ends a window: multiplies `recent` by `keep`, adds the window to it and to `lifetime`, and
    /// clears the window. A single pass row by row, which the compiler vectorizes: this is most of
    /// the cost of a window.
    #[expect(clippy::cast_possible_truncation, reason = "a factor of a weight")]
    pub(super) fn end_window(
        window: &mut HitWeights,
        recent: &mut HitWeights,
        lifetime: &mut HitWeights,
        keep: f64,
    ) {
        let keep_f32 = keep as f32;
        let past = recent.bins.iter_mut().zip(&mut lifetime.bins);
        for (row, (recent, lifetime)) in window.bins.iter_mut().zip(past) {
            recent.iter_mut().zip(&*row).for_each(|(sum, weight)| *sum = *sum * keep_f32 + weight);
            lifetime.iter_mut().zip(&*row).for_each(|(sum, weight)| *sum += weight);
            *row = [0.0; GROUPS];
        }
        for sum in recent.first.iter_mut().chain(&mut recent.missed) {
            *sum *= keep;
        }
        recent.misses *= keep;
        recent.references *= keep;
        recent.add_sums(window);
        lifetime.add_sums(window);
        window.first = [0.0; GROUPS];
        window.missed = [0.0; GROUPS];
        (window.misses, window.references) = (0.0, 0.0);
    }

    /// Adds all weights of another instance.
    pub(super) fn merge(&mut self, other: &HitWeights) {
        for (sums, weights) in self.bins.iter_mut().zip(&other.bins) {
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight);
        }
        self.add_sums(other);
    }

    /// Adds the totals that are not split by distance.
    fn add_sums(&mut self, other: &HitWeights) {
        self.first.iter_mut().zip(other.first).for_each(|(sum, weight)| *sum += weight);
        self.missed.iter_mut().zip(other.missed).for_each(|(sum, weight)| *sum += weight);
        self.misses += other.misses;
        self.references += other.references;
    }

    /// Returns the weights that miss at the size `pages`, by group, and the weight of the bin of
    /// this size.
    fn groups(&self, pages: u64) -> ([f64; GROUPS], f64) {
        let at = bins::bin::<BIN_BITS>(as_f64(pages), BINS);
        let part = bins::missing_share::<BIN_BITS>(at, pages);
        let mut misses = self.first;
        for bin in &self.bins[at + 1..] {
            misses.iter_mut().zip(bin).for_each(|(sum, &weight)| *sum += f64::from(weight));
        }
        let bin_at_size = &self.bins[at];
        misses
            .iter_mut()
            .zip(bin_at_size)
            .for_each(|(sum, &weight)| *sum += f64::from(weight) * part);
        (misses, bin_at_size.iter().copied().map(f64::from).sum())
    }

    /// Returns the hit ratio of an LRU cache of `pages`, where `rate` of the pages are sampled;
    /// `None` if there are no references.
    pub(super) fn hit_ratio(&self, pages: u64, rate: f64) -> Option<Estimate> {
        if self.references < 1.0 {
            return None;
        }
        let (misses, rounded) = self.groups(pages);
        let (slope, rest) = regression(&self.missed, &misses);
        let surplus = self.missed.iter().sum::<f64>() - self.misses;
        let corrected = misses.iter().sum::<f64>() - slope * surplus;
        let unsampled = (1.0 - rate).max(0.0);
        let weight_error = rest * GROUPS_F64 / (GROUPS_F64 - 2.0) * unsampled;
        // A count of n sampled pages varies by sqrt(n), so a distance has this relative error.
        let share = (unsampled / (as_f64(pages) * rate).max(1.0)).sqrt().min(0.5);
        let at = |factor: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages")]
            let pages = (as_f64(pages) * factor) as u64;
            self.groups(pages).0.iter().sum::<f64>()
        };
        let distance_error = (at(1.0 - share) - at(1.0 + share)) / 2.0;
        let half =
            STUDENT * (weight_error + distance_error * distance_error).sqrt() + rounded / 4.0;
        let ratio = |weight: f64| weight / self.references;
        Some(Estimate::around(1.0 - ratio(corrected), ratio(half)))
    }
}
