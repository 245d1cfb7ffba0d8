//! What is kept of one volume's references: the curve, the candidates, and the decision.
//!
//! The tracker is told of sampled references one by one and of all references by number. How much
//! it samples follows from its memory, and from the pages that the volume may have: so many
//! resident pages should be in the sample that the curve is good there, and no more, since each
//! sampled hit costs.

use super::auto::Auto;
use super::candidates::{self, CANDIDATES, Candidates};
use super::estimate::{as_f64, rate};
use super::hit_weights::HitWeights;
use super::online::{self, Online};
use super::report::{CandidateRatio, CurvePoint};
use super::sampler::{SampledReference, Sampler};
use crate::mix;
use crate::policy::PolicyKind;

/// Of so many resident pages one is in the sample, if that gives slots between the next two: a
/// sampled hit costs about twice a hit, so this is what keeps the cost of all below a hundredth.
const PAGES_PER_SLOT: u64 = 256;
/// Slots of a miniature, at most, and if memory allows, at least.
const SLOTS_MAX: u64 = 1024;
const SLOTS_WANTED: u64 = 320;
/// Slots with which miniatures still tell policies apart.
const SLOTS_MIN: u64 = 64;
/// Resident pages of the sample for each two slots: the curve costs less than the miniatures. With
/// four the curve is closer to the exact one, and a hit costs 1.45 % more instead of 1 %.
const RESIDENT_PER_TWO_SLOTS: u64 = 3;
/// Sampled pages for each slot: the sample also has pages that were evicted.
const SAMPLE_PER_SLOT: u64 = 10;
/// Pages are remembered while this many times as many others are referenced as the volume may
/// have.
const DEPTH: u64 = 8;
/// A window has so many references for each page of the volume, and at least [`WINDOW_MIN`].
const WINDOW_TURNS: u64 = 2;
const WINDOW_MIN: u64 = 16_384;
/// What the curve's past is worth after another window: half of it after eleven.
pub(super) const KEEP: f64 = 15.0 / 16.0;
/// The same of what policies are compared by: half of it after three.
const KEEP_CANDIDATES: f64 = 0.8;
/// Sizes of a curve to an octave.
const STEPS: i32 = 4;
/// The smallest size of a curve, as a power of two below the present one.
const OCTAVES_BELOW: i32 = 6;
/// The largest, above it: as far as pages are remembered.
const OCTAVES_ABOVE: i32 = 3;

/// Follows one volume.
#[derive(Debug)]
pub struct Tracker {
    gate: Sampler,
    /// Pages that the volume may have.
    pages: u64,
    slots: u64,
    online: Online,
    candidates: Candidates,
    auto: Auto,
    window: f64,
    bytes: usize,
}

/// Bytes of a tracker with so many slots.
fn bytes_of(slots: u64) -> usize {
    let [slots, sample] = [slots, slots * SAMPLE_PER_SLOT]
        .map(|count| usize::try_from(count).expect("a small sample"));
    size_of::<Tracker>() + online::bytes(sample) + candidates::bytes(slots)
}

/// The threshold that lets about `wanted` of `pages` in; all if there are no more.
fn threshold(wanted: u64, pages: u64) -> u64 {
    if wanted >= pages { u64::MAX } else { u64::MAX / pages * wanted }
}

impl Tracker {
    /// Bytes of the largest tracker.
    #[must_use]
    pub fn bytes_max() -> usize {
        bytes_of(SLOTS_MAX)
    }

    /// A tracker of at most so many bytes for a volume that may have `pages`, under `policy`; the
    /// seed decides which pages are sampled. None if the bytes are too few to tell anything.
    #[must_use]
    pub fn new(bytes: usize, pages: u64, policy: PolicyKind, seed: u64) -> Option<Self> {
        let pages = pages.max(1);
        let wanted = (pages / PAGES_PER_SLOT).clamp(SLOTS_WANTED, SLOTS_MAX);
        let mut slots = (1..=wanted / SLOTS_MIN).rev().map(|parts| parts * SLOTS_MIN);
        let slots = slots.find(|&slots| bytes_of(slots) <= bytes)?;
        let all = threshold(slots * RESIDENT_PER_TWO_SLOTS / 2, pages);
        let sample = usize::try_from(slots * SAMPLE_PER_SLOT).expect("a small sample");
        Some(Tracker {
            gate: Sampler::new(mix(seed.wrapping_add(3)), all),
            pages,
            slots,
            online: Online::new(sample, all, pages.saturating_mul(DEPTH)),
            candidates: Candidates::new(threshold(slots, pages), slots.min(pages)),
            auto: Auto::new(policy),
            window: as_f64((pages * WINDOW_TURNS).max(WINDOW_MIN)),
            bytes: bytes_of(slots),
        })
    }

    /// Bytes that it takes at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn gate(&self) -> Sampler {
        self.gate
    }

    /// References to pages of the sample.
    pub(crate) fn sampled(&mut self, noted: &[SampledReference]) {
        for &SampledReference { page, missed } in noted {
            let hash = self.gate.hash(page);
            self.online.reference(page, hash, missed);
            self.candidates.reference(page, hash);
        }
    }

    /// Counts references of all pages and those of them that missed; whether a window ended.
    pub(crate) fn count(&mut self, references: u64, misses: u64) -> bool {
        self.online.count(references, misses);
        if self.online.in_window() < self.window {
            return false;
        }
        self.online.turn(KEEP);
        self.candidates.turn(KEEP_CANDIDATES);
        true
    }

    /// The policy to switch to and how much less it misses, asked once at the end of each window.
    pub(crate) fn decide(&mut self) -> Option<(PolicyKind, f64)> {
        self.auto.decide(&self.candidates.sums)
    }

    /// A reference to any page, and whether it missed; the policy to switch to, if another one is
    /// better. For whoever has the references one by one.
    pub fn reference(&mut self, page: u64, missed: bool) -> Option<PolicyKind> {
        if self.gate.admits(page) {
            self.sampled(&[SampledReference { page, missed }]);
        }
        let ended = self.count(1, u64::from(missed));
        ended.then(|| self.decide()).flatten().map(|(kind, _)| kind)
    }

    /// Notes that the volume has this policy now.
    pub fn note_policy(&mut self, kind: PolicyKind) {
        self.auto.note_switch(kind);
    }

    /// Notes that the volume has about so many pages when it is full. The miniatures begin anew if
    /// that is far from what they stand for.
    pub fn note_pages(&mut self, pages: u64) {
        let pages = pages.max(1);
        let (low, high) = (self.pages.min(pages), self.pages.max(pages));
        if high * 4 <= low * 5 {
            return;
        }
        self.pages = pages;
        // The gate stays, so a volume that has become smaller has fewer slots.
        let threshold = threshold(self.slots, pages).min(self.gate.threshold());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few slots")]
        let slots = (as_f64(pages) * rate(threshold)).round() as u64;
        self.candidates = Candidates::new(threshold, slots.clamp(1, self.slots));
        self.window = as_f64((pages * WINDOW_TURNS).max(WINDOW_MIN));
    }

    /// The policy that the volume has.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        self.auto.current()
    }

    /// The part of the pages that are sampled now, 0 to 1.
    #[must_use]
    pub fn sample_rate(&self) -> f64 {
        self.online.rate()
    }

    /// References that the curve stands on, older ones weighing less, and the hit ratio that the
    /// volume really had over them.
    #[must_use]
    pub fn recent(&self) -> (f64, f64) {
        self.online.recent_hits()
    }

    /// References ever.
    pub(crate) fn references(&self) -> f64 {
        self.online.lifetime_references()
    }

    /// The curve of LRU lately, in pages of `page_bytes`, by rising size; empty if there were no
    /// references.
    #[must_use]
    pub fn curve(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.points(page_bytes, &self.online.recent())
    }

    /// The last point of that curve alone.
    pub(crate) fn curve_end(&self, page_bytes: u64) -> Option<CurvePoint> {
        let tally = self.online.recent();
        let point = |pages| self.point(page_bytes, &tally, pages);
        self.sizes().into_iter().rev().find_map(point)
    }

    /// The same over all references ever.
    #[must_use]
    pub fn lifetime_curve(&self, page_bytes: u64) -> Vec<CurvePoint> {
        self.points(page_bytes, &self.online.lifetime())
    }

    fn points(&self, page_bytes: u64, tally: &HitWeights) -> Vec<CurvePoint> {
        let point = |pages| self.point(page_bytes, tally, pages);
        self.sizes().into_iter().filter_map(point).collect()
    }

    /// The sizes of the curve, in pages, rising.
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

    fn point(&self, page_bytes: u64, tally: &HitWeights, pages: u64) -> Option<CurvePoint> {
        let estimate = tally.hit_ratio(pages, self.online.rate())?;
        Some(CurvePoint { bytes: pages * page_bytes, estimate })
    }

    /// The candidates at the size that the volume has; empty if the present policy is none of them
    /// or nothing was referenced.
    #[must_use]
    pub fn candidates(&self) -> Vec<CandidateRatio> {
        let current = CANDIDATES.iter().position(|&kind| kind == self.policy());
        let sums = &self.candidates.sums;
        let Some(current) = current.filter(|_| !sums.is_empty()) else { return Vec::new() };
        let (_, hit_ratio) = self.recent();
        let ratio = |(number, &policy): (usize, &PolicyKind)| {
            let lead = sums.lead(current, number);
            let hit_ratio = (hit_ratio + lead.share).clamp(0.0, 1.0);
            CandidateRatio { policy, hit_ratio, deviation: lead.chance }
        };
        CANDIDATES.iter().enumerate().map(ratio).collect()
    }

    /// Another policy that hits more, clearly, and how much more as a share of the references.
    #[must_use]
    pub fn better_policy(&self) -> Option<(PolicyKind, f64)> {
        self.auto.better(&self.candidates.sums)
    }
}

#[cfg(test)]
mod tests;
