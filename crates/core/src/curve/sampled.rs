//! The LRU curve from a sample of fixed size.
//!
//! SHARDS (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST
//! '15, section 3): a page is sampled if its hash is below a threshold, so the sample contains all
//! references of a sampled page and none of other pages; distances among sampled pages are divided
//! by the sampling rate. When there are too many pages, the page with the highest hash is dropped
//! and its hash is the new threshold. Each reference has the weight that the sampling rate gave it
//! when it was seen. The adjustment of section 3.3 counts references that the sample lacks or has
//! in excess as hits at the smallest distance; here this means that misses are estimated and hits
//! are the rest. A control variate corrects them (see `control.rs`).
//!
//! Error bars have three parts: the variation between groups of sampled pages, by other bits of
//! their hash; the difference between the curve at the smallest and at the largest size that a
//! number of sampled pages may represent; and the width of a bin of distances.
//!
//! Memory: proportional to the sample, about 3 MiB for 32,768 pages, independent of the trace.

use super::bins;
use super::control::{Filter, GroupCounts, size_error};
use super::estimate::{Estimate, mean};
use super::sample_set::{GROUPS, SampleSet, group};
use super::stack::Stack;
use crate::mix;
use crate::replace::Reference;
use crate::units::as_f64;

/// The default number of pages in a sample.
pub const SAMPLE_PAGES: usize = 32_768;
/// The number of pages in each sample if there are many.
pub const SAMPLE_PAGES_OF_MANY: usize = 8192;
/// Bits that select a bin within an octave: a bin is at most 1.6 % wide.
const BIN_BITS: u32 = 6;
/// Distances up to 2^40 pages.
const BINS: usize = bins::count::<BIN_BITS>(40);

/// A sampled curve of a trace.
#[derive(Clone, Debug)]
pub struct SampledCurve {
    salt: u64,
    members: SampleSet,
    stack: Stack,
    /// Weights of references by distance, then by group.
    bins: Box<[[f64; GROUPS]]>,
    /// Weights of references that miss at every size.
    first: [f64; GROUPS],
    /// Weights of references that miss in the filter.
    filtered: [f64; GROUPS],
    references: u64,
    filter: Filter,
}

impl SampledCurve {
    /// Creates a sample of `size` pages, at least 256; `seed` selects the pages.
    ///
    /// # Panics
    /// The size is below 256.
    #[must_use]
    pub fn new(size: usize, seed: u64) -> Self {
        assert!(size >= 256, "a sample of {size} pages has no groups to speak of");
        SampledCurve {
            salt: mix(seed.wrapping_add(1)),
            members: SampleSet::new(size, u64::MAX),
            stack: Stack::new(),
            bins: vec![[0.0; GROUPS]; BINS].into(),
            first: [0.0; GROUPS],
            filtered: [0.0; GROUPS],
            references: 0,
            filter: Filter::new(),
        }
    }

    /// Samples the next references of the trace.
    pub fn run(&mut self, references: &[Reference]) {
        for reference in references {
            let hash = mix(reference.page ^ self.salt);
            let filtered = self.filter.misses(hash);
            if !self.members.refuses(hash) {
                self.reference(reference.page, hash, filtered);
            }
        }
        self.references += references.len() as u64;
    }

    fn reference(&mut self, page: u64, hash: u64, filtered: bool) {
        let stack = &mut self.stack;
        let Some(number) = self.members.number(page, hash, |_, dropped| stack.remove(dropped))
        else {
            return;
        };
        let (rate, group) = (self.members.rate(), group(hash));
        if filtered {
            self.filtered[group] += 1.0 / rate;
        }
        match self.stack.reference(number) {
            // A sampled distance of d represents d / rate up to (d + 1) / rate: use the middle.
            Some(distance) => {
                let at = bins::bin::<BIN_BITS>((f64::from(distance) + 0.5) / rate, BINS);
                self.bins[at][group] += 1.0 / rate;
            }
            None => self.first[group] += 1.0 / rate,
        }
    }

    /// Returns the share of the pages that are sampled now.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.members.rate()
    }

    /// Returns the number of references so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Returns the estimated number of distinct pages of the trace.
    #[must_use]
    pub fn footprint(&self) -> f64 {
        as_f64(self.members.len() as u64) / self.rate()
    }

    /// Returns the misses at the size `pages` as each group estimates them, and the weight of the
    /// bin of this size.
    fn misses(&self, pages: u64) -> ([f64; GROUPS], f64) {
        let at = bins::bin::<BIN_BITS>(as_f64(pages), BINS);
        let part = bins::missing_share::<BIN_BITS>(at, pages);
        let mut misses = self.first;
        for bin in &self.bins[at + 1..] {
            misses.iter_mut().zip(bin).for_each(|(sum, weight)| *sum += weight);
        }
        misses.iter_mut().zip(&self.bins[at]).for_each(|(sum, weight)| *sum += weight * part);
        (misses.map(of_all_groups), self.bins[at].iter().sum())
    }

    /// Returns the hit ratio of an LRU cache of `pages`; `None` if there are no references.
    #[must_use]
    pub fn hit_ratio(&self, pages: u64) -> Option<Estimate> {
        if self.references == 0 {
            return None;
        }
        let (counts, rounded) = self.misses(pages);
        let rate = self.rate();
        let controls = self.filtered.map(of_all_groups);
        let groups = GroupCounts { counts, controls, control: self.filter.total(), rate };
        let (more, pages_error) = groups.correction();
        let misses = mean(&counts);
        let factor = size_error(as_f64(pages) * rate, rate);
        let misses_at = |factor: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages")]
            let pages = (as_f64(pages) * factor.max(0.0)).round() as u64;
            mean(&self.misses(pages).0)
        };
        let (most, fewest) = (misses_at(1.0 - factor), misses_at(1.0 + factor));
        let error = |of_size: f64| pages_error.hypot(of_size).hypot(rounded);
        let ratio = |weight: f64| weight / as_f64(self.references);
        Some(Estimate::between(
            1.0 - ratio(misses + more),
            ratio(error(most - misses)),
            ratio(error(misses - fewest)),
        ))
    }
}

/// Scales a weight of one group to all groups.
fn of_all_groups(weight: f64) -> f64 {
    weight * as_f64(GROUPS as u64)
}

#[cfg(test)]
mod tests;
