//! Miniature caches: the hit ratio of any policy from small caches over samples of the pages.
//!
//! Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature
//! simulations", ATC '17: a cache of `pages` over all references behaves like one of
//! `rate * pages` over the references of the pages that are sampled at `rate`.
//!
//! The sample of a size contains [`SAMPLE_PAGES`] pages or those of [`SLOTS_MIN`] slots, whichever
//! is more. It consists of groups that share no page. Three errors make up the interval:
//!
//! * *Sampled pages.* Each group has a small cache of its own. A regression over the groups
//!   corrects the estimate by a control variate (see `control.rs`); the residual
//!   variation gives the error.
//! * *Represented size.* The number of sampled pages in a part of the trace varies, so a sampled
//!   cache may represent a slightly smaller or larger one. Two caches over the whole sample have
//!   the smallest and the largest size in question. Their mean is the estimate; their difference is
//!   the error. It is large at a cliff of the curve.
//! * *Small caches.* A cache of few slots can behave differently from a large one. The caches over
//!   the whole sample are as many times larger than those of the groups as there are groups. If the
//!   difference from a large cache falls at least with the power 0.4 of the size, at most half of
//!   what is between these two remains.
//!
//! If the sample is not clearly cheaper, a cache of full size is simulated, without error. Misses
//! are estimated and hits are the rest, as in [`sampled`](super::sampled).

use super::control::{Filter, GroupCounts, size_error};
use super::estimate::{Estimate, mean};
use super::sample_set::GROUPS;
use crate::mix;
use crate::policy::PolicyKind;
use crate::replace::{self, Counts, IndexKind, Reference, Replace};
use crate::units::as_f64;

/// The minimum number of pages in the sample of a size.
pub const SAMPLE_PAGES: u64 = 32_768;
/// The minimum number of slots of a cache over the whole sample.
pub const SLOTS_MIN: u64 = 768;
/// References to the sample that are simulated, per sampled reference: in the groups, and in the
/// two caches over the whole sample.
pub const PASSES: u64 = 3;
/// The share of the difference between caches of groups and of the whole sample that may remain
/// between the latter and caches of full size: 1 / (GROUPS^0.4 - 1).
const REMAINING_DIFFERENCE: f64 = 0.5;
/// The policy without miniatures: it compares how often pages were referenced and forgets after a
/// number of references, most of which are to a few pages that a sample contains or not.
pub const NOT_ESTIMATED: PolicyKind = PolicyKind::WTinyLfu;

/// The caches of one policy at one size.
#[derive(Debug)]
enum Caches {
    /// A cache of full size over all references.
    Full(Box<dyn Replace>),
    Sampled {
        groups: Vec<Box<dyn Replace>>,
        /// The smallest and the largest cache over all groups.
        bounds: [Box<dyn Replace>; 2],
    },
    /// None: the policy is [`NOT_ESTIMATED`], and the size is sampled.
    NotEstimated,
}

/// All policies at one size.
#[derive(Debug)]
struct Size {
    /// A page belongs to the group whose number is its hash divided by this; 0 if all pages are
    /// simulated.
    width: u64,
    /// The share of the pages in all groups together.
    rate: f64,
    /// By policy.
    caches: Vec<Caches>,
    /// The references to the sample in the current batch.
    sample: Vec<Reference>,
    /// Those of each group.
    groups: Vec<Vec<Reference>>,
    /// References that missed in the filter, by group.
    filtered: [f64; GROUPS],
}

impl Size {
    fn new(pages: u32, policies: &[PolicyKind], footprint: u64, sample: u64) -> Self {
        let (count, capacity) = (GROUPS as u64, u64::from(pages));
        let slots = (capacity * sample).div_ceil(footprint.max(1)).max(SLOTS_MIN);
        let group_slots = slots.div_ceil(count);
        let slots = group_slots * count;
        let whole = slots * PASSES >= capacity;
        let rate = if whole { 1.0 } else { as_f64(slots) / as_f64(capacity) };
        let cache = |kind: PolicyKind, slots: u64| {
            let slots = u32::try_from(slots).expect("at most the pages");
            replace::cache(kind, slots, IndexKind::Page)
        };
        let bound = |factor: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "slots")]
            let bound = (as_f64(slots) * factor).round() as u64;
            bound.max(1)
        };
        let error = size_error(as_f64(slots), rate);
        let caches = |&kind: &PolicyKind| match kind {
            _ if whole => Caches::Full(cache(kind, capacity)),
            NOT_ESTIMATED => Caches::NotEstimated,
            _ => Caches::Sampled {
                groups: (0..count).map(|_| cache(kind, group_slots)).collect(),
                bounds: [bound(1.0 - error), bound(1.0 + error)].map(|slots| cache(kind, slots)),
            },
        };
        Size {
            width: if whole { 0 } else { u64::MAX / capacity * group_slots },
            rate,
            caches: policies.iter().map(caches).collect(),
            sample: Vec::new(),
            groups: vec![Vec::new(); GROUPS],
            filtered: [0.0; GROUPS],
        }
    }

    fn is_whole(&self) -> bool {
        self.width == 0
    }

    /// Returns the end of the range of hashes that belong to the sample.
    fn end(&self) -> u64 {
        if self.is_whole() { u64::MAX } else { self.width * GROUPS as u64 }
    }

    fn run(&mut self, hashed: &[HashedReference]) {
        self.sample.clear();
        self.sample.extend(hashed.iter().map(|hashed| hashed.reference));
        if !self.is_whole() {
            self.groups.iter_mut().for_each(Vec::clear);
            for hashed in hashed {
                let group = usize::try_from(hashed.hash / self.width).expect("a small number");
                self.groups[group].push(hashed.reference);
                self.filtered[group] += f64::from(u8::from(hashed.filtered));
            }
        }
        for caches in &mut self.caches {
            match caches {
                Caches::Full(cache) => cache.run(&self.sample, &[]),
                Caches::Sampled { groups, bounds } => {
                    for (cache, references) in groups.iter_mut().zip(&self.groups) {
                        cache.run(references, &[]);
                    }
                    for cache in bounds {
                        cache.run(&self.sample, &[]);
                    }
                }
                Caches::NotEstimated => {}
            }
        }
    }

    /// Returns the total of the count `of` for a cache of full size over all references, and half
    /// the width of its 95 % interval; `None` without an estimate. `control` is the true value of
    /// the control variate.
    fn total(
        &self,
        policy: usize,
        control: f64,
        of: impl Fn(&Counts) -> u64,
    ) -> Option<(f64, f64)> {
        let count = |cache: &dyn Replace| as_f64(of(&cache.counts()));
        let (groups, bounds) = match &self.caches[policy] {
            Caches::Full(cache) => return Some((count(&**cache), 0.0)),
            Caches::Sampled { groups, bounds } => (groups, bounds),
            Caches::NotEstimated => return None,
        };
        let group_rate = self.rate / as_f64(GROUPS as u64);
        let counts: [f64; GROUPS] = std::array::from_fn(|at| count(&*groups[at]) / group_rate);
        let controls = self.filtered.map(|missed| missed / group_rate);
        let groups = GroupCounts { counts, controls, control, rate: self.rate };
        let [low, high] = bounds.each_ref().map(|cache| count(&**cache) / self.rate);
        let middle = f64::midpoint(low, high);
        let size_error = (low - high).abs() / 2.0;
        // At a cliff the groups lie on both sides of it, and a regression over them says nothing.
        let uncorrected = groups.error_without_control();
        let is_cliff = size_error > uncorrected;
        let (more, pages_error) = if is_cliff { (0.0, uncorrected) } else { groups.correction() };
        let small_caches = (mean(&counts) - middle).abs() * REMAINING_DIFFERENCE;
        Some(((middle + more).max(0.0), pages_error.hypot(size_error) + small_caches))
    }
}

/// A reference with the hash of its page.
#[derive(Clone, Copy, Debug)]
struct HashedReference {
    hash: u64,
    /// True if it missed in the filter.
    filtered: bool,
    reference: Reference,
}

/// Miniature caches of several sizes and policies.
#[derive(Debug)]
pub struct Miniature {
    salt: u64,
    /// Sizes in the order of falling rates.
    sizes: Vec<Size>,
    /// The index into `sizes` of each requested size.
    indices: Vec<usize>,
    hashed: Vec<HashedReference>,
    references: u64,
    filter: Filter,
}

impl Miniature {
    /// Creates a cache for each policy at each of these sizes, in pages, for a trace of about
    /// `footprint` pages.
    #[must_use]
    pub fn new(policies: &[PolicyKind], pages: &[u32], footprint: u64, seed: u64) -> Self {
        Miniature::with_sample(policies, pages, (footprint, SAMPLE_PAGES), seed)
    }

    /// Does the same with a sample of `sample` of the pages instead of [`SAMPLE_PAGES`].
    #[must_use]
    pub fn with_sample(
        policies: &[PolicyKind],
        pages: &[u32],
        (footprint, sample): (u64, u64),
        seed: u64,
    ) -> Self {
        let size = |&pages: &u32| Size::new(pages, policies, footprint, sample);
        let mut sizes: Vec<(usize, Size)> = pages.iter().map(size).enumerate().collect();
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
            filter: Filter::new(),
        }
    }

    /// Runs all caches over the next references of the trace.
    pub fn run(&mut self, references: &[Reference]) {
        self.references += references.len() as u64;
        self.hashed.clear();
        let Some(end) = self.sizes.first().map(Size::end) else { return };
        for &reference in references {
            let hash = mix(reference.page ^ self.salt);
            let filtered = self.filter.misses(hash);
            if hash < end || end == u64::MAX {
                self.hashed.push(HashedReference { hash, filtered, reference });
            }
        }
        for size in &mut self.sizes {
            // Each size uses a subset of the references of the previous one.
            let end = size.end();
            if end < u64::MAX {
                self.hashed.retain(|hashed| hashed.hash < end);
            }
            size.run(&self.hashed);
        }
    }

    /// Returns the hit ratio of a policy at a size, both given by their index in the arguments of
    /// [`Miniature::new`]; `None` if there are no references, or for [`NOT_ESTIMATED`] at a size
    /// that is sampled.
    #[must_use]
    pub fn hit_ratio(&self, policy: usize, size: usize) -> Option<Estimate> {
        self.share_without(policy, size, self.references, |counts| counts.misses().references)
    }

    /// Returns one minus the share of the count `of` in `whole`, as a hit ratio is one minus the
    /// miss ratio; `None` if `whole` is 0 or there is no estimate.
    #[must_use]
    pub fn share_without(
        &self,
        policy: usize,
        size: usize,
        whole: u64,
        of: impl Fn(&Counts) -> u64,
    ) -> Option<Estimate> {
        let (total, half) = self.total(policy, size, of)?;
        let whole = as_f64(whole);
        (whole > 0.0).then(|| Estimate::around(1.0 - total / whole, half / whole))
    }

    /// Returns the estimated count `of` for a cache of full size, and half the width of its 95 %
    /// interval; `None` for [`NOT_ESTIMATED`] at a size that is sampled.
    #[must_use]
    pub fn total(
        &self,
        policy: usize,
        size: usize,
        of: impl Fn(&Counts) -> u64,
    ) -> Option<(f64, f64)> {
        self.sizes[self.indices[size]].total(policy, self.filter.total(), of)
    }

    /// Returns true if a size is simulated in full, without sampling.
    #[must_use]
    pub fn is_whole(&self, size: usize) -> bool {
        self.sizes[self.indices[size]].is_whole()
    }
}

#[cfg(test)]
mod tests;
