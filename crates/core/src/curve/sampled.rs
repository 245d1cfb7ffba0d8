//! The LRU curve from a sample of fixed size.
//!
//! SHARDS (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST
//! '15, section 3): a page is sampled if its hash is below a threshold, so the sample contains all
//! references of a sampled page and none of other pages; distances among sampled pages are divided
//! by the sampling rate. When there are too many pages, the page with the highest hash is dropped
//! and its hash is the new threshold. Each reference has the weight that the sampling rate gave it
//! when it was seen. The adjustment of section 3.3 counts references that the sample lacks or has
//! in excess as hits at the smallest distance; here this means that misses are estimated and hits
//! are the rest.
//!
//! One more quantity is known for all pages and not only for the sampled ones: the number of
//! references that miss in a small filter, a direct-mapped table with one page per entry. Where the
//! sampled pages have too many or too few of those misses, a regression corrects the estimated
//! misses (a control variate; Cochran, "Sampling techniques", 3rd edition, chapter 7). The number
//! of all references would not work as the control variate: a few pages may have most of the
//! references, and the sample either has such a page or not.
//!
//! Error bars: sampled pages fall into groups by other bits of their hash, and the curve is also
//! computed without each group in turn (delete-a-group jackknife, Kott, "The delete-a-group
//! jackknife", Journal of Official Statistics 17(4), 2001), with a separate stack, so that the
//! error of distances counts as well as that of weights. The possible rounding error of distances
//! is added.
//!
//! Memory: proportional to the sample, about 1 MiB for 8,192 pages, independent of the trace.

use super::bins;
use super::estimate::{Estimate, regression};
use super::sample_set::{GROUPS, SampleSet, group};
use super::stack::Stack;
use crate::mix;
use crate::replace::Reference;
use crate::units::as_f64;

/// The default number of pages in a sample.
pub const SAMPLE_PAGES: usize = 8192;
/// The 97.5 % quantile of Student's t with two degrees of freedom fewer than there are groups.
const STUDENT: f64 = 2.145;
/// Entries of the filter: few enough to stay in the processor cache.
const FILTER: usize = 1 << 15;
/// The share of a sample that remains without one group.
const REMAINING_SHARE: f64 = 15.0 / 16.0;
/// Bits that select a bin within an octave: a bin is at most 1.6 % wide.
const BIN_BITS: u32 = 6;
/// Distances up to 2^40 pages.
const BINS: usize = bins::count::<BIN_BITS>(40);

/// A curve over some of the pages: their stack, and the weights of their references by distance.
#[derive(Clone, Debug)]
struct Replicate {
    stack: Stack,
    /// The share of the sampled pages in this replicate.
    part: f64,
    bins: Vec<f64>,
    /// Weight of references that miss at every size.
    first: f64,
    /// Weight of references that miss in the filter.
    filtered: f64,
}

impl Replicate {
    fn new(part: f64) -> Self {
        Replicate { stack: Stack::new(), part, bins: vec![0.0; BINS], first: 0.0, filtered: 0.0 }
    }

    fn reference(&mut self, number: u32, rate: f64, filtered: bool) {
        let rate = rate * self.part;
        if filtered {
            self.filtered += 1.0 / rate;
        }
        match self.stack.reference(number) {
            // A sampled distance of d represents d / rate up to (d + 1) / rate: use the middle.
            Some(distance) => {
                let at = bins::bin::<BIN_BITS>((f64::from(distance) + 0.5) / rate, BINS);
                self.bins[at] += 1.0 / rate;
            }
            None => self.first += 1.0 / rate,
        }
    }

    /// Returns the weight of the references that miss at the size `pages`, and of the bin of this
    /// size.
    fn misses(&self, pages: u64) -> (f64, f64) {
        let at = bins::bin::<BIN_BITS>(as_f64(pages), BINS);
        let part = bins::missing_share::<BIN_BITS>(at, pages);
        let behind: f64 = self.bins[at + 1..].iter().sum();
        (self.first + behind + self.bins[at] * part, self.bins[at])
    }
}

/// A sampled curve of a trace.
#[derive(Clone, Debug)]
pub struct SampledCurve {
    salt: u64,
    members: SampleSet,
    whole: Replicate,
    leave_one_out: Vec<Replicate>,
    references: u64,
    /// The upper half of the hash of the last page in each entry.
    filter: Vec<u32>,
    /// References of all pages that missed in the filter.
    filtered: u64,
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
            whole: Replicate::new(1.0),
            leave_one_out: vec![Replicate::new(REMAINING_SHARE); GROUPS],
            references: 0,
            filter: vec![0; FILTER],
            filtered: 0,
        }
    }

    /// Samples the next references of the trace.
    pub fn run(&mut self, references: &[Reference]) {
        for reference in references {
            let hash = mix(reference.page ^ self.salt);
            let upper = u32::try_from(hash >> 32).expect("a shifted u64");
            let place = &mut self.filter[(hash >> 4) as usize % FILTER];
            let filtered = std::mem::replace(place, upper) != upper;
            self.filtered += u64::from(filtered);
            if !self.members.refuses(hash) {
                self.reference(reference.page, hash, filtered);
            }
        }
        self.references += references.len() as u64;
    }

    fn reference(&mut self, page: u64, hash: u64, filtered: bool) {
        let SampledCurve { members, whole, leave_one_out, .. } = self;
        let number = members.number(page, hash, |hash, dropped| {
            whole.stack.remove(dropped);
            replicates_with(leave_one_out, hash)
                .for_each(|replicate| replicate.stack.remove(dropped));
        });
        let Some(number) = number else { return };
        let rate = self.members.rate();
        self.whole.reference(number, rate, filtered);
        replicates_with(&mut self.leave_one_out, hash)
            .for_each(|replicate| replicate.reference(number, rate, filtered));
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

    /// Returns the hit ratio of an LRU cache of `pages`; `None` if there are no references.
    #[must_use]
    pub fn hit_ratio(&self, pages: u64) -> Option<Estimate> {
        if self.references == 0 {
            return None;
        }
        let references = as_f64(self.references);
        let (misses, rounded) = self.whole.misses(pages);
        let replicates_with: Vec<f64> =
            self.leave_one_out.iter().map(|replicate| replicate.misses(pages).0).collect();
        let controls: Vec<f64> =
            self.leave_one_out.iter().map(|replicate| replicate.filtered).collect();
        let (slope, rest) = regression(&controls, &replicates_with);
        let corrected = misses - slope * (self.whole.filtered - as_f64(self.filtered));
        let groups = as_f64(GROUPS as u64);
        // A sample of all pages has no sampling error.
        let variance =
            rest * (groups - 1.0).powi(2) / groups / (groups - 2.0) * (1.0 - self.rate());
        let half = STUDENT * variance.sqrt() + rounded;
        Some(Estimate::around(1.0 - corrected / references, half / references))
    }
}

/// Returns the replicates that contain the page of this hash: those that omit another group.
fn replicates_with(
    leave_one_out: &mut [Replicate],
    hash: u64,
) -> impl Iterator<Item = &mut Replicate> {
    let own_group = group(hash);
    leave_one_out
        .iter_mut()
        .enumerate()
        .filter(move |&(group, _)| group != own_group)
        .map(|(_, replicate)| replicate)
}

#[cfg(test)]
mod tests;
