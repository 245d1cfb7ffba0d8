//! The tracker of one volume's references: the curve, the candidates, and the policy decision.
//!
//! The tracker receives sampled references one by one and all references as counts. Its sampling
//! rate follows from its memory and from the number of pages that the volume may have: the sample
//! contains enough resident pages for a good curve and no more, since each sampled hit has a cost.

use super::auto::AutoPolicy;
use super::candidates::{self, Candidates};
use super::estimate::rate;
use super::hit_weights::HitWeights;
use super::online::{self, OnlineCurve};
use super::policy_curve::{self, PolicyCurve};
use super::report::{CandidateRatio, CurvePoint};
use super::sampler::{ReferenceCounts, SampledReference, Sampler};
use crate::mix;
use crate::policy::PolicyKind;
use crate::replace::CacheEvent;
use crate::units::as_f64;

/// From this many pages on, 256 MiB, the cost of a hit limits the sample; below, the error does.
const LARGE_VOLUME: u64 = 65_536;
/// Pages per slot, for large volumes up to [`SLOTS_MAX`]. The slots are those of a candidate's
/// miniature; the samples of the curves follow from them.
const PAGES_PER_SLOT: u64 = 320;
/// The maximum number of slots.
const SLOTS_MAX: u64 = 1024;
/// The number of slots of a small volume, if memory allows.
const SLOTS_SMALL: u64 = 320;
/// The miniatures of a small volume have twice the slots, up to this many: they compare policies
/// over few references.
const CANDIDATE_SLOTS_SMALL: u64 = 384;
/// The minimum number of slots with which miniatures still distinguish policies.
const SLOTS_MIN: u64 = 64;
/// Slots of the miniatures per slot of the curve of the policy, at the current size, of large and
/// small volumes. A reference costs this curve most: its smaller caches miss where the volume hits.
const SLOTS_PER_CURVE_SLOT: [u64; 2] = [3, 5];
/// Sampled pages per slot: the sample also contains pages that were evicted.
const SAMPLE_PER_SLOT: u64 = 10;
/// A page stays in the sample while at most this many times as many others are referenced as the
/// volume may have pages.
const DEPTH: u64 = 8;
/// References per page from which first references are at most half of all: the threshold of
/// [`Finding::Scanned`](super::report::Finding::Scanned).
pub const TURNS_FOR_MISSES: u64 = 2;
/// References in a window per page of the volume, and the minimum [`WINDOW_MIN`].
const WINDOW_TURNS: u64 = 2;
const WINDOW_MIN: u64 = 16_384;
/// Steps, after each of which the policies are compared, for the references to as many pages as the
/// volume has. Shorter steps gain nothing: hardly any page is referenced twice within a step.
const STEPS_PER_TURN: u64 = 8;
/// The minimum number of references in a step.
const STEP_MIN: u64 = 256;
/// Decay factor of the curve per window: half of the weight remains after eleven windows.
pub(super) const KEEP: f64 = 15.0 / 16.0;
/// Decay factor of the reported comparison: half of the weight remains after three windows.
const KEEP_CANDIDATES: f64 = 0.8;
/// The number of curve sizes per octave.
const STEPS: i32 = 4;
/// The smallest size of a curve, in octaves below the current one.
const OCTAVES_BELOW: i32 = 6;
/// The largest size, in octaves above it: as far as pages stay in the sample.
const OCTAVES_ABOVE: i32 = 3;

/// The reference tracker of one volume.
#[derive(Debug)]
pub struct Tracker {
    sampler: Sampler,
    /// The number of pages that the volume may have.
    pages: u64,
    slots: u64,
    online: OnlineCurve,
    candidates: Candidates,
    policy_curve: PolicyCurve,
    auto: AutoPolicy,
    /// References that hit since read-ahead had brought their page in, of this window and of
    /// earlier ones, decayed.
    first_uses: [f64; 2],
    /// References in a window and in a step, and those of the current step.
    window: f64,
    step: u64,
    in_step: u64,
    /// A window has ended since the last call of [`Tracker::take_window_ended`].
    window_ended: bool,
    bytes: usize,
}

/// Returns true if the error limits the sample of a volume with this many pages, not the cost.
fn is_small(pages: u64) -> bool {
    pages < LARGE_VOLUME
}

/// Returns the slots of the miniatures of a tracker with this many slots.
fn candidate_slots(slots: u64, pages: u64) -> u64 {
    let wanted = if is_small(pages) { (2 * slots).min(CANDIDATE_SLOTS_SMALL) } else { slots };
    wanted.min(pages)
}

/// Returns the size in bytes of a tracker with this many slots for a volume of `pages`.
fn bytes_of(slots: u64, pages: u64) -> usize {
    let [candidate_slots, sample, curve_slots] =
        [candidate_slots(slots, pages), slots * SAMPLE_PER_SLOT, slots / SLOTS_PER_CURVE_SLOT[0]]
            .map(|count| usize::try_from(count).expect("a small sample"));
    let curves = online::bytes(sample) + policy_curve::bytes(curve_slots);
    size_of::<Tracker>() + curves + candidates::bytes(candidate_slots)
}

/// Returns the threshold that selects about `wanted` of `pages`; all if there are no more.
fn threshold(wanted: u64, pages: u64) -> u64 {
    if wanted >= pages { u64::MAX } else { u64::MAX / pages * wanted }
}

impl Tracker {
    /// Returns the size in bytes of the largest tracker.
    #[must_use]
    pub fn bytes_max() -> usize {
        bytes_of(SLOTS_MAX, u64::MAX)
    }

    /// Creates a tracker of at most `bytes` for a volume that may have `pages`, under `policy`;
    /// `seed` selects the sampled pages. Returns `None` if `bytes` is too small for a useful
    /// sample.
    #[must_use]
    pub fn new(bytes: usize, pages: u64, policy: PolicyKind, seed: u64) -> Option<Self> {
        let pages = pages.max(1);
        let is_small = is_small(pages);
        let wanted = if is_small { SLOTS_SMALL } else { (pages / PAGES_PER_SLOT).min(SLOTS_MAX) };
        let mut slots = (1..=wanted / SLOTS_MIN).rev().map(|parts| parts * SLOTS_MIN);
        let slots = slots.find(|&slots| bytes_of(slots, pages) <= bytes)?;
        // More resident pages make the LRU curve more exact and hits more expensive.
        let resident = if is_small { slots * 3 / 2 } else { slots * 4 / 3 };
        let of_curve = threshold(resident, pages);
        let candidate_slots = candidate_slots(slots, pages);
        let of_candidates = threshold(candidate_slots, pages);
        let all = of_curve.max(of_candidates);
        let sample = usize::try_from(slots * SAMPLE_PER_SLOT).expect("a small sample");
        Some(Tracker {
            sampler: Sampler::new(mix(seed.wrapping_add(3)), all),
            pages,
            slots,
            online: OnlineCurve::new(sample, of_curve, pages.saturating_mul(DEPTH)),
            candidates: Candidates::new(of_candidates, candidate_slots, policy),
            policy_curve: Self::policy_curve(policy, slots, pages, all),
            auto: AutoPolicy::new(policy),
            first_uses: [0.0; 2],
            window: Self::window_of(pages),
            step: Self::step_of(pages),
            in_step: 0,
            window_ended: false,
            bytes: bytes_of(slots, pages),
        })
    }

    /// Returns the references in a window of a volume of `pages`.
    fn window_of(pages: u64) -> f64 {
        as_f64((pages * WINDOW_TURNS).max(WINDOW_MIN))
    }

    /// Returns the references in a step of a volume of `pages`.
    fn step_of(pages: u64) -> u64 {
        (pages / STEPS_PER_TURN).max(STEP_MIN)
    }

    /// Returns an empty curve of `policy` for a volume of `pages`.
    fn policy_curve(policy: PolicyKind, slots: u64, pages: u64, sampled: u64) -> PolicyCurve {
        let per_slot = SLOTS_PER_CURVE_SLOT[usize::from(is_small(pages))];
        let threshold = threshold(slots / per_slot, pages).min(sampled);
        PolicyCurve::new(policy, threshold, pages)
    }

    /// Returns the maximum size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn sampler(&self) -> Sampler {
        self.sampler
    }

    /// Records references to pages of the sample.
    pub(crate) fn record_samples(&mut self, samples: &[SampledReference]) {
        for &sample in samples {
            let SampledReference { page, event } = sample;
            let hash = self.sampler.hash(page);
            if event != CacheEvent::ReadAhead {
                // The LRU curve is that of a cache without read-ahead.
                let missed = matches!(event, CacheEvent::Miss | CacheEvent::FirstUse);
                self.online.reference(page, hash, missed);
            }
            self.candidates.note(sample, hash);
            self.policy_curve.note(sample, hash);
        }
    }

    /// Counts references of all pages; returns true if a step ended.
    pub(crate) fn count(&mut self, counts: ReferenceCounts) -> bool {
        self.online.count(counts.references, counts.misses + counts.first_uses);
        self.policy_curve.count(counts.references, counts.misses);
        let [window, recent] = &mut self.first_uses;
        *window += as_f64(counts.first_uses);
        self.in_step += counts.references;
        if self.in_step < self.step {
            return false;
        }
        self.in_step = 0;
        self.candidates.end_step(|step| self.auto.end_step(step));
        if self.online.in_window() >= self.window {
            *recent = *recent * KEEP + std::mem::take(window);
            self.online.end_window(KEEP);
            self.policy_curve.end_window(KEEP);
            self.candidates.end_window(KEEP_CANDIDATES);
            self.window_ended = true;
        }
        true
    }

    /// Returns true if a window has ended since the last call.
    pub(crate) fn take_window_ended(&mut self) -> bool {
        std::mem::take(&mut self.window_ended)
    }

    /// Returns the policy to switch to and its lead; called at the end of each step.
    pub(crate) fn decide(&self) -> Option<(PolicyKind, f64)> {
        self.auto.decide(self.candidates.policies(), self.candidates.slots())
    }

    /// Records a reference to any page and if it missed; returns the policy to switch to, if
    /// another one is better. For callers that have individual references.
    pub fn reference(&mut self, page: u64, missed: bool) -> Option<PolicyKind> {
        if self.sampler.admits(page) {
            let event = if missed { CacheEvent::Miss } else { CacheEvent::Hit };
            self.record_samples(&[SampledReference { page, event }]);
        }
        let ended =
            self.count(ReferenceCounts { references: 1, misses: u64::from(missed), first_uses: 0 });
        ended.then(|| self.decide()).flatten().map(|(kind, _)| kind)
    }

    /// Records that the volume now has this policy.
    pub fn note_policy(&mut self, kind: PolicyKind) {
        if kind == self.auto.current() {
            return;
        }
        self.auto.note_switch(kind);
        if !self.candidates.policies().contains(&kind) {
            self.restart_candidates();
        }
        if kind != self.policy_curve.policy() {
            let sampled = self.sampler.threshold();
            self.policy_curve = Self::policy_curve(kind, self.slots, self.pages, sampled);
        }
    }

    /// Records that the volume has about this many pages when it is full. The miniatures are
    /// restarted if this is far from the size that they represent.
    pub fn note_pages(&mut self, pages: u64) {
        let pages = pages.max(1);
        let (low, high) = (self.pages.min(pages), self.pages.max(pages));
        if high * 4 <= low * 5 {
            return;
        }
        self.pages = pages;
        self.restart_candidates();
        self.policy_curve =
            Self::policy_curve(self.policy(), self.slots, pages, self.sampler.threshold());
        self.window = Self::window_of(pages);
        self.step = Self::step_of(pages);
    }

    /// Replaces the miniatures by empty ones for the current size and policy.
    fn restart_candidates(&mut self) {
        // The sampler does not change, so a volume that has become smaller has fewer slots.
        let slots_max = candidate_slots(self.slots, self.pages);
        let threshold = threshold(slots_max, self.pages).min(self.sampler.threshold());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few slots")]
        let slots = (as_f64(self.pages) * rate(threshold)).round() as u64;
        self.candidates = Candidates::new(threshold, slots.clamp(1, slots_max), self.policy());
        self.auto.restart();
    }

    /// Returns the current policy of the volume.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        self.auto.current()
    }

    /// Returns the share of the pages that are sampled now, 0 to 1.
    #[must_use]
    pub fn sample_rate(&self) -> f64 {
        self.online.rate()
    }

    /// Returns the references behind the curve, weighted by age, and the measured hit ratio of the
    /// volume over them. The first use of a page that was read ahead is a hit.
    #[must_use]
    pub fn recent(&self) -> (f64, f64) {
        let (references, hit_ratio) = self.online.recent_hits();
        let first_uses: f64 = self.first_uses.iter().sum();
        (references, (hit_ratio + first_uses / references.max(1.0)).clamp(0.0, 1.0))
    }

    /// Returns the references since the start.
    pub(crate) fn references(&self) -> f64 {
        self.online.lifetime_references()
    }

    /// Returns the references that are missing before the curve of a volume of `volume_pages` shows
    /// that pages are not used again: twice the pages up to its largest size. Until then most
    /// references of any workload may be first references, which miss at every size.
    pub(crate) fn references_missing(&self, volume_pages: u64) -> u64 {
        let reachable = self.pages.saturating_mul(DEPTH).min(volume_pages);
        let wanted = reachable.saturating_mul(TURNS_FOR_MISSES);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let references = self.references() as u64;
        wanted.saturating_sub(references)
    }

    /// Returns the recent LRU curve, in pages of `page_bytes`, by rising size; empty if there were
    /// no references.
    #[must_use]
    pub fn curve(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.points(page_bytes, &self.online.recent())
    }

    /// Returns the last point of the recent curve.
    pub(crate) fn curve_end(&self, page_bytes: u64) -> Option<CurvePoint> {
        let weights = self.online.recent();
        let point = |pages| self.point(page_bytes, &weights, pages);
        self.sizes().into_iter().rev().find_map(point)
    }

    /// Returns the recent curve of the current policy at multiples of the size of the volume, with
    /// the read-ahead that the volume has; empty while there is no estimate.
    #[must_use]
    pub fn policy_points(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.policy_curve.recent(page_bytes)
    }

    /// Returns the same over all references since the policy or the size changed.
    #[must_use]
    pub fn lifetime_policy_points(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.policy_curve.lifetime(page_bytes)
    }

    /// Returns the LRU curve over all references since the start.
    #[must_use]
    pub fn lifetime_curve(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.points(page_bytes, &self.online.lifetime())
    }

    fn points(&self, page_bytes: u64, weights: &HitWeights) -> Vec<CurvePoint> {
        let point = |pages| self.point(page_bytes, weights, pages);
        self.sizes().into_iter().filter_map(point).collect()
    }

    /// Returns the sizes of the curve, in pages, rising.
    fn sizes(&self) -> Vec<u64> {
        let size = |step: i32| {
            let factor = (f64::from(step) / f64::from(STEPS)).exp2();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages")]
            let pages = (as_f64(self.pages) * factor).round() as u64;
            pages
        };
        let mut sizes: Vec<u64> = (-OCTAVES_BELOW * STEPS..=OCTAVES_ABOVE * STEPS)
            .map(size)
            .filter(|&pages| pages > 0)
            .collect();
        sizes.dedup();
        sizes
    }

    fn point(&self, page_bytes: u64, weights: &HitWeights, pages: u64) -> Option<CurvePoint> {
        let estimate = weights.hit_ratio(pages, self.online.rate())?;
        Some(CurvePoint { bytes: pages * page_bytes, estimate })
    }

    /// Returns the compared policies at the current size of the volume; empty if the current policy
    /// is not one of them or there were no references.
    #[must_use]
    pub fn candidates(&self) -> Vec<CandidateRatio> {
        let policies = self.candidates.policies();
        let current = policies.iter().position(|&kind| kind == self.policy());
        let totals = &self.candidates.totals;
        let Some(current) = current.filter(|_| !totals.is_empty()) else { return Vec::new() };
        let (_, hit_ratio) = self.recent();
        let ratio = |(number, &policy): (usize, &PolicyKind)| {
            let lead = totals.lead(current, number);
            let hit_ratio = (hit_ratio + lead.share).clamp(0.0, 1.0);
            CandidateRatio { policy, hit_ratio, deviation: lead.deviation }
        };
        policies.iter().enumerate().map(ratio).collect()
    }

    /// Returns another policy that has clearly more hits, and its gain as a share of the
    /// references.
    #[must_use]
    pub fn better_policy(&self) -> Option<(PolicyKind, f64)> {
        self.auto.better_policy(self.candidates.policies(), self.candidates.slots())
    }
}

#[cfg(test)]
mod tests;
