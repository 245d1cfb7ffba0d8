//! The LRU curve of a running workload: a sample of bounded size with decayed counts.
//!
//! As in [`sampled`](super::sampled), a page belongs to the sample if its hash is below a
//! threshold, and the threshold falls when there are too many pages. Unlike a trace, a workload has
//! no end. Counts are kept by windows of references: at the end of a window the recent counts are
//! multiplied by a factor below one and the window is added to them; the lifetime counts are not
//! decayed. Pages that were not referenced while `depth` others were are removed: their next
//! reference misses at every size of the curve, and if they stayed the sample would thin out
//! without limit.
//!
//! Memory: [`bytes`], independent of the workload.

use super::hit_weights::HitWeights;
use super::sample_set::{SampleSet, group};
use super::stack::Stack;
use crate::units::as_f64;

/// Returns the size in bytes of a sample of this many pages with its counts: the member, its
/// position in the stack (4 bytes, rounded up) and two marks per page.
pub(super) const fn bytes(sample: usize) -> usize {
    3 * HitWeights::BYTES + sample * (SampleSet::BYTES + 2 * 4 + 1) + 4096
}

/// The sampled curve of a running workload.
#[derive(Clone, Debug)]
pub(super) struct OnlineCurve {
    members: SampleSet,
    /// A page with more than this many others above it in the stack is removed.
    depth: f64,
    stack: Stack,
    window: HitWeights,
    recent: HitWeights,
    lifetime: HitWeights,
}

impl OnlineCurve {
    /// Creates a sample of up to `size` pages, of those whose hash is below `threshold`. A page
    /// leaves it after references to `depth` others.
    pub(super) fn new(size: usize, threshold: u64, depth: u64) -> Self {
        OnlineCurve {
            members: SampleSet::new(size, threshold),
            depth: as_f64(depth),
            stack: Stack::new(),
            window: HitWeights::new(),
            recent: HitWeights::new(),
            lifetime: HitWeights::new(),
        }
    }

    /// Returns the share of the pages that are sampled now.
    pub(super) fn rate(&self) -> f64 {
        self.members.rate()
    }

    /// Returns the references of all pages in the current window.
    pub(super) fn in_window(&self) -> f64 {
        self.window.references()
    }

    /// Returns the references of all pages behind the recent counts, weighted by age, and the
    /// measured hit ratio of the volume over them.
    pub(super) fn recent_hits(&self) -> (f64, f64) {
        let references = self.recent.references() + self.window.references();
        let misses = self.recent.misses() + self.window.misses();
        (references, if references > 0.0 { 1.0 - misses / references } else { 0.0 })
    }

    /// Counts references of all pages.
    pub(super) fn count(&mut self, references: u64, misses: u64) {
        self.window.count(references, misses);
    }

    /// Records a reference to a page whose hash is below the initial threshold; `missed` is true if
    /// the reference missed in the cache.
    #[inline]
    pub(super) fn reference(&mut self, page: u64, hash: u64, missed: bool) {
        if self.members.refuses(hash) {
            return;
        }
        let dropped = |_, number| self.stack.remove(number);
        let Some(number) = self.members.number(page, hash, dropped) else { return };
        let rate = self.members.rate();
        let distance = self.stack.reference(number);
        // A sampled distance of d represents d / rate up to (d + 1) / rate: use the middle.
        let distance = distance.map(|distance| (f64::from(distance) + 0.5) / rate);
        self.window.add(group(hash), distance, missed, 1.0 / rate);
    }

    /// Ends a window; the recent counts so far are multiplied by `keep`.
    pub(super) fn end_window(&mut self, keep: f64) {
        let OnlineCurve { window, recent, lifetime, .. } = self;
        HitWeights::end_window(window, recent, lifetime, keep);
        self.forget_deep();
    }

    /// Removes pages that lie too deep, before the sample is full of them.
    fn forget_deep(&mut self) {
        if self.members.len() * 8 < self.members.size() * 7 {
            return;
        }
        let deepest = self.depth * self.rate();
        let OnlineCurve { members, stack, .. } = self;
        let dropped = members.retain(|number| {
            stack.distance(number).is_some_and(|distance| f64::from(distance) <= deepest)
        });
        for number in dropped {
            stack.remove(number);
        }
    }

    /// Returns the references of all pages since the start.
    pub(super) fn lifetime_references(&self) -> f64 {
        self.lifetime.references() + self.window.references()
    }

    pub(super) fn recent(&self) -> HitWeights {
        let mut recent = self.recent.clone();
        recent.merge(&self.window);
        recent
    }

    /// Returns the counts since the start.
    pub(super) fn lifetime(&self) -> HitWeights {
        let mut lifetime = self.lifetime.clone();
        lifetime.merge(&self.window);
        lifetime
    }
}
