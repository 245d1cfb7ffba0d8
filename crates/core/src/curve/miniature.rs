//! Miniature caches: the hit ratio of any policy from a small cache over a sample of the pages.
//!
//! Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
//! simulations", ATC '17: a cache of `pages` over all references behaves like one of
//! `rate * pages` over the references of the pages that are sampled at `rate`.
//!
//! Here each size has several such caches over samples that share no page; their mean is the
//! estimate, and how far they are apart gives the error bar. The rate is such that each miniature
//! has [`SLOTS_MIN`] slots or all of them together see [`SAMPLE_PAGES`] pages, whichever is more;
//! a cache that is too small for that is simulated as it is, without error. Misses are estimated
//! and hits are the rest, as in [`sampled`](super::sampled).
//!
//! What the bars leave out is that a cache of few slots is not quite like a large one, however the
//! pages are sampled.

use super::estimate::{Estimate, as_f64, squares};
use crate::mix;
use crate::policy::PolicyKind;
use crate::replace::{self, Counts, FindBy, Reference, Replace};

/// Pages that all miniatures of a size see together, at least.
pub const SAMPLE_PAGES: u64 = 16_384;
/// Miniatures of each size.
const GROUPS: usize = 8;
/// The quantile of Student's t with one degree less than there are groups, 97.5 %.
const STUDENT: f64 = 2.365;
/// Slots that a miniature has at least.
pub const SLOTS_MIN: u64 = 96;

/// All policies at one size.
#[derive(Debug)]
struct Size {
    /// A page belongs to a group if its hash, divided by this, is the group's number; 0 if all
    /// pages are simulated, in one group.
    width: u64,
    /// The part of the pages in each group.
    rate: f64,
    /// For each policy, a cache for each group.
    caches: Vec<Vec<Box<dyn Replace>>>,
    /// The references of each group, in a batch.
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
            (0..count).map(|_| replace::cache(policy, slots, FindBy::Page)).collect()
        };
        Size {
            width,
            rate: f64::from(slots) / f64::from(pages),
            caches: policies.iter().map(miniatures).collect(),
            groups: vec![Vec::new(); count],
        }
    }

    /// Behind the hashes that belong to a group.
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

    /// What `of` counts, as many as it were with caches of full size over all references, and how
    /// far that may be off to both sides.
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
    let left_out = (1.0 - rate * groups).max(0.0);
    let variance = squares(totals) / (groups - 1.0) / groups * left_out;
    (mean, STUDENT * variance.sqrt())
}

/// Caches of several sizes and policies, in miniature.
#[derive(Debug)]
pub struct Miniature {
    salt: u64,
    /// In the order of falling rates.
    sizes: Vec<Size>,
    /// Where each asked size is.
    places: Vec<usize>,
    hashed: Vec<(u64, Reference)>,
    references: u64,
}

impl Miniature {
    /// Each policy at each of these sizes, in pages, over a trace of about `footprint` pages.
    #[must_use]
    pub fn new(policies: &[PolicyKind], pages: &[u32], footprint: u64, seed: u64) -> Self {
        let mut sizes: Vec<(usize, Size)> =
            pages.iter().map(|&pages| Size::new(pages, policies, footprint)).enumerate().collect();
        sizes.sort_by_key(|(_, size)| std::cmp::Reverse(size.end()));
        let mut places = vec![0; sizes.len()];
        for (place, (asked, _)) in sizes.iter().enumerate() {
            places[*asked] = place;
        }
        Miniature {
            salt: mix(seed.wrapping_add(2)),
            sizes: sizes.into_iter().map(|(_, size)| size).collect(),
            places,
            hashed: Vec::new(),
            references: 0,
        }
    }

    /// Runs all over the next references of the trace.
    pub fn run(&mut self, references: &[Reference]) {
        self.references += references.len() as u64;
        self.hashed.clear();
        let Some(most) = self.sizes.first().map(Size::end) else { return };
        let salt = self.salt;
        let hashed = references.iter().map(|reference| (mix(reference.page ^ salt), *reference));
        self.hashed.extend(hashed.filter(|(hash, _)| *hash < most || most == u64::MAX));
        for size in &mut self.sizes {
            // Each size takes a part of what the one before took.
            let end = size.end();
            if end < u64::MAX {
                self.hashed.retain(|(hash, _)| *hash < end);
            }
            size.run(&self.hashed);
        }
    }

    /// The hit ratio of a policy at a size, both by their places in what was asked for; nothing if
    /// there are no references.
    #[must_use]
    pub fn hit_ratio(&self, policy: usize, size: usize) -> Option<Estimate> {
        self.share_without(policy, size, self.references, |counts| counts.misses().references)
    }

    /// One less what `of` counts as a share of `whole`, as a hit ratio is one less the misses;
    /// nothing if `whole` is 0.
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

    /// About what `of` counts with a cache of full size, and half of its error bar.
    #[must_use]
    pub fn total(&self, policy: usize, size: usize, of: impl Fn(&Counts) -> u64) -> (f64, f64) {
        let size = &self.sizes[self.places[size]];
        size.total(&size.caches[policy], of)
    }

    /// Whether a size is simulated as it is, without any sampling.
    #[must_use]
    pub fn is_whole(&self, size: usize) -> bool {
        self.sizes[self.places[size]].width == 0
    }
}

#[cfg(test)]
mod tests;
