//! Miniature caches: the hit ratio of any policy from a small cache over a sample of the pages.
//!
//! Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
//! simulations", ATC '17: a cache of `pages` over all references behaves like one of
//! `rate * pages` over the references of the pages that are sampled at `rate`.
//!
//! Each size has several such caches over samples that share no page; their mean is the estimate,
//! and their variation gives the error bar. The rate is such that each miniature has [`SLOTS_MIN`]
//! slots or all of them together see [`SAMPLE_PAGES`] pages, whichever is more; a cache that is too
//! small for that is simulated in full, without error. Misses are estimated and hits are the rest,
//! as in [`sampled`](super::sampled).
//!
//! The bars do not include the error that a cache of few slots behaves slightly differently from a
//! large one, regardless of the sampling.

use super::estimate::{Estimate, squares};
use crate::mix;
use crate::policy::PolicyKind;
use crate::replace::{self, Counts, IndexKind, Reference, Replace};
use crate::units::as_f64;

/// The minimum number of pages that all miniatures of a size see together.
pub const SAMPLE_PAGES: u64 = 16_384;
/// The number of miniatures per size.
const GROUPS: usize = 8;
/// The 97.5 % quantile of Student's t with one degree of freedom fewer than there are groups.
const STUDENT: f64 = 2.365;
/// The minimum number of slots of a miniature.
pub const SLOTS_MIN: u64 = 96;

/// All policies at one size.
#[derive(Debug)]
struct Size {
    /// A page belongs to the group whose number is its hash divided by this; 0 if all pages are
    /// simulated, in one group.
    width: u64,
    /// The share of the pages in each group.
    rate: f64,
    /// A cache per group, for each policy.
    caches: Vec<Vec<Box<dyn Replace>>>,
    /// The references of each group in the current batch.
    groups: Vec<Vec<Reference>>,
}

impl Size {
    fn new(pages: u32, policies: &[PolicyKind], footprint: u64) -> Self {
        let groups = GROUPS as u64;
        let (wanted, footprint) = (SAMPLE_PAGES / groups, footprint.max(1));
        let capacity = u64::from(pages);
        let slots = (capacity * wanted).div_ceil(footprint).max(SLOTS_MIN);
        let whole = slots * groups >= capacity;
        let (slots, count) = if whole { (capacity, 1) } else { (slots, GROUPS) };
        let slots = u32::try_from(slots).expect("at most the pages");
        let width = if whole { 0 } else { u64::MAX / capacity * u64::from(slots) };
        let miniatures = |&policy: &PolicyKind| {
            (0..count).map(|_| replace::cache(policy, slots, IndexKind::Page)).collect()
        };
        Size {
            width,
            rate: f64::from(slots) / f64::from(pages),
            caches: policies.iter().map(miniatures).collect(),
            groups: vec![Vec::new(); count],
        }
    }

    /// Returns the end of the range of hashes that belong to a group.
    fn end(&self) -> u64 {
        if self.width == 0 { u64::MAX } else { self.width * GROUPS as u64 }
    }

    fn run(&mut self, hashed: &[(u64, Reference)]) {
        self.groups.iter_mut().for_each(Vec::clear);
        for (hash, reference) in hashed {
            let group = hash.checked_div(self.width).unwrap_or(0);
            self.groups[usize::try_from(group).expect("a small number")].push(*reference);
        }
        for caches in &mut self.caches {
            for (cache, references) in caches.iter_mut().zip(&self.groups) {
                cache.run(references, &[]);
            }
        }
    }

    /// Returns the total of the count `of`, scaled to caches of full size over all references, and
    /// half the width of its error bar.
    fn total(&self, caches: &[Box<dyn Replace>], of: impl Fn(&Counts) -> u64) -> (f64, f64) {
        let totals: Vec<f64> =
            caches.iter().map(|cache| as_f64(of(&cache.counts())) / self.rate).collect();
        mean_and_half_interval(&totals, self.rate)
    }
}

/// Returns the mean of the totals of groups, and half the width of its 95 % confidence interval.
/// Each group contains the share `rate` of all pages.
fn mean_and_half_interval(totals: &[f64], rate: f64) -> (f64, f64) {
    let groups = as_f64(totals.len() as u64);
    let mean = totals.iter().sum::<f64>() / groups;
    if totals.len() == 1 {
        return (mean, 0.0);
    }
    let unsampled = (1.0 - rate * groups).max(0.0);
    let variance = squares(totals) / (groups - 1.0) / groups * unsampled;
    (mean, STUDENT * variance.sqrt())
}

/// Miniature caches of several sizes and policies.
#[derive(Debug)]
pub struct Miniature {
    salt: u64,
    /// Sizes in the order of falling rates.
    sizes: Vec<Size>,
    /// The index into `sizes` of each requested size.
    indices: Vec<usize>,
    hashed: Vec<(u64, Reference)>,
    references: u64,
}

impl Miniature {
    /// Creates a cache for each policy at each of these sizes, in pages, for a trace of about
    /// `footprint` pages.
    #[must_use]
    pub fn new(policies: &[PolicyKind], pages: &[u32], footprint: u64, seed: u64) -> Self {
        let mut sizes: Vec<(usize, Size)> =
            pages.iter().map(|&pages| Size::new(pages, policies, footprint)).enumerate().collect();
        sizes.sort_by_key(|(_, size)| std::cmp::Reverse(size.end()));
        let mut indices = vec![0; sizes.len()];
        for (index, (requested, _)) in sizes.iter().enumerate() {
            indices[*requested] = index;
        }
        Miniature {
            salt: mix(seed.wrapping_add(2)),
            sizes: sizes.into_iter().map(|(_, size)| size).collect(),
            indices,
            hashed: Vec::new(),
            references: 0,
        }
    }

    /// Runs all caches over the next references of the trace.
    pub fn run(&mut self, references: &[Reference]) {
        self.references += references.len() as u64;
        self.hashed.clear();
        let Some(end) = self.sizes.first().map(Size::end) else { return };
        let salt = self.salt;
        let hashed = references.iter().map(|reference| (mix(reference.page ^ salt), *reference));
        self.hashed.extend(hashed.filter(|(hash, _)| *hash < end || end == u64::MAX));
        for size in &mut self.sizes {
            // Each size uses a subset of the references of the previous one.
            let end = size.end();
            if end < u64::MAX {
                self.hashed.retain(|(hash, _)| *hash < end);
            }
            size.run(&self.hashed);
        }
    }

    /// Returns the hit ratio of a policy at a size, both given by their index in the arguments of
    /// [`Miniature::new`]; `None` if there are no references.
    #[must_use]
    pub fn hit_ratio(&self, policy: usize, size: usize) -> Option<Estimate> {
        self.share_without(policy, size, self.references, |counts| counts.misses().references)
    }

    /// Returns one minus the share of the count `of` in `whole`, as a hit ratio is one minus the
    /// miss ratio; `None` if `whole` is 0.
    #[must_use]
    pub fn share_without(
        &self,
        policy: usize,
        size: usize,
        whole: u64,
        of: impl Fn(&Counts) -> u64,
    ) -> Option<Estimate> {
        let (total, half) = self.total(policy, size, of);
        let whole = as_f64(whole);
        (whole > 0.0).then(|| Estimate::around(1.0 - total / whole, half / whole))
    }

    /// Returns the estimated count `of` for a cache of full size, and half the width of its error
    /// bar.
    #[must_use]
    pub fn total(&self, policy: usize, size: usize, of: impl Fn(&Counts) -> u64) -> (f64, f64) {
        let size = &self.sizes[self.indices[size]];
        size.total(&size.caches[policy], of)
    }

    /// Returns true if a size is simulated in full, without sampling.
    #[must_use]
    pub fn is_whole(&self, size: usize) -> bool {
        self.sizes[self.indices[size]].width == 0
    }
}

#[cfg(test)]
mod tests;
