//! The curve of LRU of a running workload: a sample of bounded size whose counts are aged.
//!
//! As in [`sampled`](super::sampled) a page belongs to the sample if its hash is below a threshold,
//! and the threshold falls when there are too many. Different are the ends that a trace has and a
//! workload has not. Counts are kept by windows of references: at the end of a window what was
//! recent is worth a part of what it was, and the window joins it; another sum is never aged.
//! Pages that were not referenced while `depth` others were are forgotten: their next reference
//! misses at every size that is asked about, and a sample that kept them would thin out for ever.
//!
//! Memory: [`bytes`], whatever the workload.

use super::estimate::as_f64;
use super::hit_weights::HitWeights;
use super::sample_set::{SampleSet, group};
use super::stack::Stack;

/// Bytes of a sample of so many pages, with its counts: what each is as a member, its position in
/// the stack (4, rounded up) and two marks.
pub(super) const fn bytes(sample: usize) -> usize {
    3 * HitWeights::BYTES + sample * (SampleSet::BYTES + 2 * 4 + 1) + 4096
}

/// The sampled curve of a running workload.
#[derive(Clone, Debug)]
pub(super) struct Online {
    members: SampleSet,
    /// A page behind so many others is forgotten.
    depth: f64,
    stack: Stack,
    window: HitWeights,
    recent: HitWeights,
    lifetime: HitWeights,
}

impl Online {
    /// A sample of up to `size` pages, of those whose hash is below `threshold`, that are kept in
    /// mind while no more than `depth` others are referenced.
    pub(super) fn new(size: usize, threshold: u64, depth: u64) -> Self {
        Online {
            members: SampleSet::new(size, threshold),
            depth: as_f64(depth),
            stack: Stack::new(),
            window: HitWeights::new(),
            recent: HitWeights::new(),
            lifetime: HitWeights::new(),
        }
    }

    /// The part of the pages that are sampled now.
    pub(super) fn rate(&self) -> f64 {
        self.members.rate()
    }

    /// References of all pages in the window at hand.
    pub(super) fn in_window(&self) -> f64 {
        self.window.references()
    }

    /// References of all pages that the recent counts stand on, weighted by age, and the hit ratio
    /// that the volume really had over them.
    pub(super) fn recent_hits(&self) -> (f64, f64) {
        let references = self.recent.references() + self.window.references();
        let misses = self.recent.misses() + self.window.misses();
        (references, if references > 0.0 { 1.0 - misses / references } else { 0.0 })
    }

    /// Counts references of all pages.
    pub(super) fn count(&mut self, references: u64, misses: u64) {
        self.window.count(references, misses);
    }

    /// A reference to a page of this hash, below the threshold that it began with; whether it
    /// missed in the cache.
    #[inline]
    pub(super) fn reference(&mut self, page: u64, hash: u64, missed: bool) {
        if self.members.refuses(hash) {
            return;
        }
        let gone = |_, number| self.stack.remove(number);
        let Some(number) = self.members.number(page, hash, gone) else { return };
        let rate = self.members.rate();
        let distance = self.stack.reference(number);
        // A sampled distance of d stands for d / rate up to (d + 1) / rate: the middle.
        let distance = distance.map(|distance| (f64::from(distance) + 0.5) / rate);
        self.window.add(group(hash), distance, missed, 1.0 / rate);
    }

    /// Ends a window; what was recent is worth so much of what it was.
    pub(super) fn turn(&mut self, keep: f64) {
        let Online { window, recent, lifetime, .. } = self;
        HitWeights::turn(window, recent, lifetime, keep);
        self.forget_deep();
    }

    /// Forgets pages that lie too deep, before the sample is full of them.
    fn forget_deep(&mut self) {
        if self.members.len() * 8 < self.members.size() * 7 {
            return;
        }
        let deepest = self.depth * self.rate();
        let Online { members, stack, .. } = self;
        let gone = members.retain(|number| {
            stack.distance(number).is_some_and(|distance| f64::from(distance) <= deepest)
        });
        for number in gone {
            stack.remove(number);
        }
    }

    /// References of all pages ever.
    pub(super) fn lifetime_references(&self) -> f64 {
        self.lifetime.references() + self.window.references()
    }

    /// What was counted lately.
    pub(super) fn recent(&self) -> HitWeights {
        let mut recent = self.recent.clone();
        recent.merge(&self.window);
        recent
    }

    /// What was ever counted.
    pub(super) fn lifetime(&self) -> HitWeights {
        let mut lifetime = self.lifetime.clone();
        lifetime.merge(&self.window);
        lifetime
    }
}
