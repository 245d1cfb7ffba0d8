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

use super::estimate::{as_f64, rate};
use super::index::{Hash, Index};
use super::stack::Stack;
use super::tally::{GROUPS, Tally};
use std::collections::BinaryHeap;

/// Bytes of a sample of so many pages, with its counts: an entry of the index (16 to 32 bytes), the
/// page, its place in the heap (16), its position (4), two marks, and rounding up of what grows.
pub(super) const fn bytes(sample: usize) -> usize {
    3 * Tally::BYTES + sample * (32 + 2 * (8 + 16 + 4 + 4) + 1) + 4096
}

/// The sampled curve of a running workload.
#[derive(Clone, Debug)]
pub(super) struct Online {
    size: usize,
    /// Pages are sampled whose hash is below.
    threshold: u64,
    /// A page behind so many others is forgotten.
    depth: f64,
    index: Index,
    pages: Vec<u64>,
    free: Vec<u32>,
    /// Hash and number of the sampled pages.
    highest: BinaryHeap<(u64, u32)>,
    stack: Stack,
    window: Tally,
    recent: Tally,
    lifetime: Tally,
}

impl Online {
    /// A sample of up to `size` pages, of those whose hash is below `threshold`, that are kept in
    /// mind while no more than `depth` others are referenced.
    pub(super) fn new(size: usize, threshold: u64, depth: u64) -> Self {
        Online {
            size,
            threshold,
            depth: as_f64(depth),
            index: Index::for_numbers(size + 1),
            pages: Vec::new(),
            free: Vec::new(),
            highest: BinaryHeap::new(),
            stack: Stack::new(),
            window: Tally::new(),
            recent: Tally::new(),
            lifetime: Tally::new(),
        }
    }

    /// The part of the pages that are sampled now.
    pub(super) fn rate(&self) -> f64 {
        rate(self.threshold)
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
        if hash >= self.threshold {
            return;
        }
        let Online { index, pages, .. } = self;
        let found = index.find(Hash::of(page), |number| pages[number as usize] == page);
        let number = found.unwrap_or_else(|| self.enter(page, hash));
        // The page itself may have been the one to go.
        if hash >= self.threshold {
            return;
        }
        let rate = rate(self.threshold);
        let distance = self.stack.reference(number);
        // A sampled distance of d stands for d / rate up to (d + 1) / rate: the middle.
        let distance = distance.map(|distance| (f64::from(distance) + 0.5) / rate);
        self.window.add(group(hash), distance, missed, 1.0 / rate);
    }

    fn enter(&mut self, page: u64, hash: u64) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.pages.push(page);
            u32::try_from(self.pages.len() - 1).expect("a sample of few pages")
        });
        self.pages[number as usize] = page;
        self.index.insert(Hash::of(page), number);
        self.highest.push((hash, number));
        if self.highest.len() > self.size {
            let (highest, gone) = self.highest.pop().expect("more than the size");
            self.threshold = highest;
            if gone != number {
                self.stack.remove(gone);
            }
            self.forget(gone);
        }
        number
    }

    /// Frees the number of a page that is in neither stack nor heap.
    fn forget(&mut self, number: u32) {
        self.index.remove(Hash::of(self.pages[number as usize]), number);
        self.free.push(number);
    }

    /// Ends a window; what was recent is worth so much of what it was.
    pub(super) fn turn(&mut self, keep: f64) {
        self.recent.age(keep);
        self.recent.merge(&self.window);
        self.lifetime.merge(&self.window);
        self.window.clear();
        self.forget_deep();
    }

    /// Forgets pages that lie too deep, before the sample is full of them.
    fn forget_deep(&mut self) {
        if self.highest.len() * 8 < self.size * 7 {
            return;
        }
        let deepest = self.depth * self.rate();
        let pages = std::mem::take(&mut self.highest).into_vec();
        let (kept, gone): (Vec<_>, Vec<_>) = pages.into_iter().partition(|&(_, number)| {
            self.stack.distance(number).is_some_and(|distance| f64::from(distance) <= deepest)
        });
        self.highest = kept.into();
        for (_, number) in gone {
            self.stack.remove(number);
            self.forget(number);
        }
    }

    /// References of all pages ever.
    pub(super) fn lifetime_references(&self) -> f64 {
        self.lifetime.references() + self.window.references()
    }

    /// What was counted lately.
    pub(super) fn recent(&self) -> Tally {
        let mut recent = self.recent.clone();
        recent.merge(&self.window);
        recent
    }

    /// What was ever counted.
    pub(super) fn lifetime(&self) -> Tally {
        let mut lifetime = self.lifetime.clone();
        lifetime.merge(&self.window);
        lifetime
    }
}

/// The group of a page: bits that the threshold does not look at.
fn group(hash: u64) -> usize {
    usize::try_from(hash % GROUPS as u64).expect("a small number")
}
