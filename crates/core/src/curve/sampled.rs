//! The curve of LRU from a sample of fixed size.
//!
//! SHARDS (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS",
//! FAST '15, section 3): a page is sampled if its hash is below a threshold, so all references of
//! a sampled page are seen and those of the others none; distances among sampled pages are divided
//! by the sample rate. When there are more pages than wanted, the one with the highest hash goes
//! and its hash is the new threshold. Each reference weighs as many as it stood for when it was
//! seen. The adjustment of section 3.3, references that the sample lacks or has too many are put
//! down as hits at the smallest distance, means here that misses are estimated and hits are the
//! rest.
//!
//! One more thing is known of all pages and not only of those sampled: how many references miss in
//! a small filter, a table with one page in each place. Where the sampled pages have too many or
//! too few of those, the misses are corrected by regression (a control variate; Cochran, "Sampling
//! techniques", 3rd edition, chapter 7). All references would not do for this: a few pages may have
//! most of them, and the sample has such a page or not.
//!
//! Error bars: sampled pages fall into groups by other bits of their hash, and the curve is also
//! made without each group in turn (delete-a-group jackknife, Kott, "The delete-a-group
//! jackknife", Journal of Official Statistics 17(4), 2001), with a stack of its own, so that the
//! error of distances counts as well as that of weights. What the rounding of distances may do is
//! added.
//!
//! Memory: in proportion to the sample, about 1 MiB for 8,192 pages, whatever the trace.

use super::bins;
use super::estimate::{Estimate, as_f64, regression};
use super::sample_set::{GROUPS, SampleSet, group};
use super::stack::Stack;
use crate::mix;
use crate::replace::Reference;

/// Pages in a sample unless said otherwise.
pub const SAMPLE_PAGES: usize = 8192;
/// The quantile of Student's t with two degrees less than there are groups, 97.5 %.
const STUDENT: f64 = 2.145;
/// Places of the filter: they stay in the processor's cache.
const FILTER: usize = 1 << 15;
/// Leaving out one group of the pages leaves this part of a sample.
const REST: f64 = 15.0 / 16.0;
/// Bins of distances in each octave, in bits: so a bin is at most 1.6 % wide.
const BIN_BITS: u32 = 6;
/// Distances up to 2^40 pages.
const BINS: usize = bins::count::<BIN_BITS>(40);

/// One curve in the making: the stack of some pages, and what their references weigh by distance.
#[derive(Clone, Debug)]
struct Replicate {
    stack: Stack,
    /// The part of the sampled pages that it has.
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
            // A sampled distance of d stands for d / rate up to (d + 1) / rate: the middle.
            Some(distance) => {
                let at = bins::bin::<BIN_BITS>((f64::from(distance) + 0.5) / rate, BINS);
                self.bins[at] += 1.0 / rate;
            }
            None => self.first += 1.0 / rate,
        }
    }

    /// Weight of what misses with so many pages, and of the bin that the size falls into.
    fn misses(&self, pages: u64) -> (f64, f64) {
        let at = bins::bin::<BIN_BITS>(as_f64(pages), BINS);
        let part = bins::missing_part::<BIN_BITS>(at, pages);
        let behind: f64 = self.bins[at + 1..].iter().sum();
        (self.first + behind + self.bins[at] * part, self.bins[at])
    }
}

/// Samples a trace.
#[derive(Clone, Debug)]
pub struct Sampled {
    salt: u64,
    members: SampleSet,
    whole: Replicate,
    without: Vec<Replicate>,
    references: u64,
    /// The upper half of the hash of the page that was in each place last.
    filter: Vec<u32>,
    /// References of all pages that missed in the filter.
    filtered: u64,
}

impl Sampled {
    /// A sample of `size` pages, at least 256, that the seed decides.
    ///
    /// # Panics
    /// The size is below 256.
    #[must_use]
    pub fn new(size: usize, seed: u64) -> Self {
        assert!(size >= 256, "a sample of {size} pages has no groups to speak of");
        Sampled {
            salt: mix(seed.wrapping_add(1)),
            members: SampleSet::new(size, u64::MAX),
            whole: Replicate::new(1.0),
            without: vec![Replicate::new(REST); GROUPS],
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
        let Sampled { members, whole, without, .. } = self;
        let number = members.number(page, hash, |hash, gone| {
            whole.stack.remove(gone);
            others(without, hash).for_each(|other| other.stack.remove(gone));
        });
        let Some(number) = number else { return };
        let rate = self.members.rate();
        self.whole.reference(number, rate, filtered);
        others(&mut self.without, hash).for_each(|other| other.reference(number, rate, filtered));
    }

    /// The part of the pages that are sampled now.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.members.rate()
    }

    /// References so far.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// About how many pages the trace has.
    #[must_use]
    pub fn footprint(&self) -> f64 {
        as_f64(self.members.len() as u64) / self.rate()
    }

    /// The hit ratio of an LRU cache of `pages`; nothing if there are no references.
    #[must_use]
    pub fn hit_ratio(&self, pages: u64) -> Option<Estimate> {
        if self.references == 0 {
            return None;
        }
        let references = as_f64(self.references);
        let (misses, rounded) = self.whole.misses(pages);
        let others: Vec<f64> = self.without.iter().map(|other| other.misses(pages).0).collect();
        let controls: Vec<f64> = self.without.iter().map(|other| other.filtered).collect();
        let (slope, rest) = regression(&controls, &others);
        let corrected = misses - slope * (self.whole.filtered - as_f64(self.filtered));
        let groups = as_f64(GROUPS as u64);
        // A sample of all pages has no error of sampling.
        let variance =
            rest * (groups - 1.0).powi(2) / groups / (groups - 2.0) * (1.0 - self.rate());
        let half = STUDENT * variance.sqrt() + rounded;
        Some(Estimate::around(1.0 - corrected / references, half / references))
    }
}

/// The curves that have the page of this hash: those that are not without its group.
fn others(without: &mut [Replicate], hash: u64) -> impl Iterator<Item = &mut Replicate> {
    let own = group(hash);
    without.iter_mut().enumerate().filter(move |&(group, _)| group != own).map(|(_, other)| other)
}

#[cfg(test)]
mod tests;
