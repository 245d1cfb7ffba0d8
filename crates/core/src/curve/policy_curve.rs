//! The hit ratio of the policy in use at multiples of the present size, by miniature simulation.
//!
//! Small caches of each size replay the events of the same sampled pages (see
//! [`candidates`](super::candidates)). The misses of the volume itself are counted for all pages.
//! The sampled pages and the small cache of the present size miss more or less than that; a
//! regression over groups of pages corrects the other sizes by the same error (a control variate,
//! as in [`hit_weights`](super::hit_weights)).
//!
//! The error bar also contains the error of the size that a small cache represents, from the slope
//! between neighboring sizes.
//!
//! Read-ahead at another size is that of the volume: a small cache that has evicted a page which
//! read-ahead had brought in reads it ahead again.
//!
//! Memory: [`bytes`].

use super::control::{STUDENT, size_error};
use super::estimate::{Estimate, rate, regression};
use super::miniature::NOT_ESTIMATED;
use super::report::CurvePoint;
use super::sample_set::{GROUPS, GROUPS_F64, group};
use super::sampler::SampledReference;
use crate::page_index::Hash;
use crate::policy::PolicyKind;
use crate::replace::SmallCache;
use crate::units::as_f64;

/// Sizes, as multiples of the present one.
const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// The index of the present size.
const PRESENT: usize = 2;
const SIZES: usize = FACTORS.len();
/// A cache with fewer slots gives no estimate if there is read-ahead.
const SLOTS_FOR_READ_AHEAD: u32 = 32;
/// Fewer references give no estimate.
const REFERENCES_MIN: f64 = 1_000.0;

/// Returns the maximum size in bytes of the caches, where that of the present size has `slots`.
pub(super) fn bytes(slots: usize) -> usize {
    let per_slot = PolicyKind::ALL.iter().map(|&kind| SmallCache::bytes_per_slot(kind)).max();
    // The factors add up to 7.75.
    slots * 8 * per_slot.expect("there are policies")
}

/// Counts over some references.
#[derive(Clone, Debug, Default)]
struct Totals {
    /// Misses of the small cache of each size, by group.
    misses: [[f64; GROUPS]; SIZES],
    /// References of all pages, and the misses among them in the cache itself.
    all_references: f64,
    all_misses: f64,
}

impl Totals {
    /// Multiplies the counts by `keep`, and adds others.
    fn add(&mut self, keep: f64, other: &Totals) {
        for (sum, more) in self.misses.iter_mut().flatten().zip(other.misses.iter().flatten()) {
            *sum = *sum * keep + more;
        }
        self.all_references = self.all_references * keep + other.all_references;
        self.all_misses = self.all_misses * keep + other.all_misses;
    }

    /// Returns the hit ratio at a size with small caches of `slots`, where `rate` of the pages are
    /// sampled.
    fn hit_ratio(&self, size: usize, slots: u32, rate: f64) -> Estimate {
        let ratio = |misses: f64| misses / self.all_references.max(1.0);
        if size == PRESENT {
            return Estimate::exact(1.0 - ratio(self.all_misses));
        }
        let (present, misses) = (&self.misses[PRESENT], &self.misses[size]);
        let (slope, rest) = regression(present, misses);
        let total = |groups: &[f64; GROUPS]| groups.iter().sum::<f64>() / rate;
        let corrected = total(misses) - slope * (total(present) - self.all_misses);
        let variance = rest * GROUPS_F64 / (GROUPS_F64 - 2.0) * (1.0 - rate).max(0.0);
        let size_error = self.slope(size) * size_error(f64::from(slots), rate);
        let half = (STUDENT * variance.sqrt()).hypot(size_error) / rate;
        Estimate::around(1.0 - ratio(corrected), ratio(half))
    }

    /// Returns the change of the misses of the small caches around a size per relative change of
    /// the size, from the steeper side.
    fn slope(&self, size: usize) -> f64 {
        let octave = |lower: usize| {
            let [low, high] = [lower, lower + 1].map(|size| self.misses[size].iter().sum::<f64>());
            (low - high).abs() / std::f64::consts::LN_2
        };
        (size.saturating_sub(1)..=size.min(SIZES - 2)).map(octave).fold(0.0, f64::max)
    }
}

/// The curve of one policy.
#[derive(Debug)]
pub(super) struct PolicyCurve {
    policy: PolicyKind,
    /// Pages of the volume at the present size.
    pages: u64,
    /// A page is sampled if its hash is below this.
    threshold: u64,
    caches: [SmallCache; SIZES],
    window: Totals,
    recent: Totals,
    lifetime: Totals,
}

impl PolicyCurve {
    /// Creates an empty curve for a volume that has `pages`, from the pages whose hash is below
    /// `threshold`.
    pub(super) fn new(policy: PolicyKind, threshold: u64, pages: u64) -> Self {
        let threshold = if policy == NOT_ESTIMATED { 0 } else { threshold };
        let cache = |factor: f64| {
            let slots = as_f64(pages) * rate(threshold) * factor;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few")]
            let slots = slots.round().max(1.0) as u32;
            SmallCache::new(policy, slots)
        };
        PolicyCurve {
            policy,
            pages,
            threshold,
            caches: FACTORS.map(cache),
            window: Totals::default(),
            recent: Totals::default(),
            lifetime: Totals::default(),
        }
    }

    pub(super) fn policy(&self) -> PolicyKind {
        self.policy
    }

    /// Replays an event of a page.
    #[inline]
    pub(super) fn note(&mut self, SampledReference { page, event }: SampledReference, hash: u64) {
        if hash >= self.threshold {
            return;
        }
        let (name, group) = (Hash::of(page), group(hash));
        for (cache, misses) in self.caches.iter_mut().zip(&mut self.window.misses) {
            if !cache.replay(page, name, event) {
                misses[group] += 1.0;
            }
        }
    }

    /// Counts references of all pages, and the misses among them.
    pub(super) fn count(&mut self, references: u64, misses: u64) {
        self.window.all_references += as_f64(references);
        self.window.all_misses += as_f64(misses);
    }

    /// Ends a window; the recent counts so far are multiplied by `keep`.
    pub(super) fn end_window(&mut self, keep: f64) {
        let window = std::mem::take(&mut self.window);
        self.recent.add(keep, &window);
        self.lifetime.add(1.0, &window);
    }

    /// Returns the recent curve, by rising size; empty while there is no estimate.
    pub(super) fn recent(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.points(page_bytes, &self.recent)
    }

    /// Returns the curve over all references.
    pub(super) fn lifetime(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.points(page_bytes, &self.lifetime)
    }

    /// Returns false for a cache that is too small for read-ahead: the pages of one window would
    /// displace each other.
    fn is_estimated(&self, size: usize) -> bool {
        let cache = &self.caches[size];
        !cache.has_read_ahead() || cache.slots() >= SLOTS_FOR_READ_AHEAD
    }

    fn points(&self, page_bytes: u64, earlier: &Totals) -> Vec<CurvePoint> {
        let mut totals = earlier.clone();
        totals.add(1.0, &self.window);
        let point = |(size, factor): (usize, f64)| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages")]
            let pages = (as_f64(self.pages) * factor).round() as u64;
            let slots = self.caches[size].slots();
            let estimate = totals.hit_ratio(size, slots, rate(self.threshold));
            CurvePoint { bytes: pages * page_bytes, estimate }
        };
        if totals.all_references < REFERENCES_MIN || self.policy == NOT_ESTIMATED {
            return Vec::new();
        }
        let sizes = FACTORS.into_iter().enumerate();
        let estimated = sizes.filter(|&(size, _)| size == PRESENT || self.is_estimated(size));
        estimated.map(point).filter(|point| point.bytes > 0).collect()
    }
}
