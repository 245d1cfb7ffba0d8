//! What the references of a stretch of time weigh, by stack distance: a curve of LRU that can be
//! added to others and aged.
//!
//! Sampled pages fall into groups by bits of their hash, and each group has a histogram of its own.
//! The curve is their sum; how far they are apart is its error. One number is known of all pages,
//! however few are sampled: how many references really missed in the cache. Where the sampled pages
//! have too many or too few of those, the estimate is corrected by regression over the groups (a
//! control variate; Cochran, "Sampling techniques", 3rd edition, chapter 7).
//!
//! Memory: [`ReferenceTotals::BYTES`], whatever is added.

use super::bins;
use super::estimate::{Estimate, as_f64, regression};
use super::sample_set::GROUPS;

/// Bins to an octave, in bits: a bin is at most 6.3 % wide.
const BIN_BITS: u32 = 4;
/// Distances up to 2^32 pages, 16 TiB in pages of 4 KiB.
const BINS: usize = bins::count::<BIN_BITS>(32);
const GROUPS_F64: f64 = 16.0;
/// The quantile of Student's t with two degrees less than there are groups, 97.5 %.
const STUDENT: f64 = 2.145;

/// Weights of references.
#[derive(Clone, Debug)]
pub(super) struct HitWeights {
    /// By distance, then by group.
    bins: Box<[[f32; GROUPS]]>,
    /// References that miss at every size.
    first: [f64; GROUPS],
    /// References that missed in the cache, as the sampled pages tell.
    missed: [f64; GROUPS],
    /// The same of all pages, counted.
    misses: f64,
    /// References of all pages, counted.
    references: f64,
}

impl HitWeights {
    /// Bytes that one takes.
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

    /// References of all pages so far, aged as the rest.
    pub(super) fn references(&self) -> f64 {
        self.references
    }

    /// Those of them that missed.
    pub(super) fn misses(&self) -> f64 {
        self.misses
    }

    /// Counts references of all pages, and those of them that missed.
    pub(super) fn count(&mut self, references: u64, misses: u64) {
        self.references += as_f64(references);
        self.misses += as_f64(misses);
    }

    /// Adds a sampled reference that stands for `weight` of them. No distance is a first reference.
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

    /// Ends a window: of `recent` this part is kept, the window joins it and `lifetime`, and is
    /// empty then. All at once and row by row, of which the compiler makes wide operations: it is
    /// most of what a window costs.
    #[expect(clippy::cast_possible_truncation, reason = "a factor of a weight")]
    pub(super) fn turn(
        window: &mut HitWeights,
        recent: &mut HitWeights,
        lifetime: &mut HitWeights,
        keep: f64,
    ) {
        let fine = keep as f32;
        let past = recent.bins.iter_mut().zip(&mut lifetime.bins);
        for (row, (recent, lifetime)) in window.bins.iter_mut().zip(past) {
            recent.iter_mut().zip(&*row).for_each(|(sum, weight)| *sum = *sum * fine + weight);
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

    /// Adds all that another counted.
    pub(super) fn merge(&mut self, other: &HitWeights) {
        for (sums, weights) in self.bins.iter_mut().zip(&other.bins) {
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight);
        }
        self.add_sums(other);
    }

    /// Adds what is not by distance.
    fn add_sums(&mut self, other: &HitWeights) {
        self.first.iter_mut().zip(other.first).for_each(|(sum, weight)| *sum += weight);
        self.missed.iter_mut().zip(other.missed).for_each(|(sum, weight)| *sum += weight);
        self.misses += other.misses;
        self.references += other.references;
    }

    /// What misses with so many pages, by group, and the weight of the bin the size falls into.
    fn groups(&self, pages: u64) -> ([f64; GROUPS], f64) {
        let at = bins::bin::<BIN_BITS>(as_f64(pages), BINS);
        let part = bins::missing_part::<BIN_BITS>(at, pages);
        let mut misses = self.first;
        for bin in &self.bins[at + 1..] {
            misses.iter_mut().zip(bin).for_each(|(sum, &weight)| *sum += f64::from(weight));
        }
        let own = &self.bins[at];
        misses.iter_mut().zip(own).for_each(|(sum, &weight)| *sum += f64::from(weight) * part);
        (misses, own.iter().copied().map(f64::from).sum())
    }

    /// The hit ratio of an LRU cache of `pages`, where `rate` of the pages are sampled; nothing if
    /// there are no references.
    pub(super) fn hit_ratio(&self, pages: u64, rate: f64) -> Option<Estimate> {
        if self.references < 1.0 {
            return None;
        }
        let (misses, rounded) = self.groups(pages);
        let (slope, rest) = regression(&self.missed, &misses);
        let surplus = self.missed.iter().sum::<f64>() - self.misses;
        let corrected = misses.iter().sum::<f64>() - slope * surplus;
        let left_out = (1.0 - rate).max(0.0);
        let weights = rest * GROUPS_F64 / (GROUPS_F64 - 2.0) * left_out;
        // Among n sampled pages there may be sqrt(n) more or less, so a distance is off by that.
        let share = (left_out / (as_f64(pages) * rate).max(1.0)).sqrt().min(0.5);
        let at = |factor: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages")]
            let pages = (as_f64(pages) * factor) as u64;
            self.groups(pages).0.iter().sum::<f64>()
        };
        let distances = (at(1.0 - share) - at(1.0 + share)) / 2.0;
        let half = STUDENT * (weights + distances * distances).sqrt() + rounded / 4.0;
        let ratio = |weight: f64| weight / self.references;
        Some(Estimate::around(1.0 - ratio(corrected), ratio(half)))
    }
}
