//! Which pages belong to a sample of fixed size: those whose hash is below a threshold, which falls
//! when there are too many (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with
//! SHARDS", FAST '15, section 3). Members have small numbers that are used again.

use super::estimate::rate;
use super::index::{Hash, Index};
use std::collections::BinaryHeap;

/// Groups of pages, by bits of the hash that the threshold does not look at, for the jackknife.
pub(super) const GROUPS: usize = 16;

/// The group of a page.
pub(super) fn group(hash: u64) -> usize {
    usize::try_from(hash % GROUPS as u64).expect("a small number")
}

/// The pages of a sample.
#[derive(Clone, Debug)]
pub(super) struct SampleSet {
    size: usize,
    threshold: u64,
    index: Index,
    pages: Vec<u64>,
    free: Vec<u32>,
    /// Hash and number.
    highest: BinaryHeap<(u64, u32)>,
}

impl SampleSet {
    /// Bytes for each page: an entry of the index (16 to 32 bytes), the page, its place in the heap
    /// (16), and rounding up of what grows.
    pub(super) const BYTES: usize = 32 + 2 * (8 + 16 + 4);

    /// Up to `size` pages, of those whose hash is below `threshold`.
    pub(super) fn new(size: usize, threshold: u64) -> Self {
        SampleSet {
            size,
            threshold,
            index: Index::for_numbers(size + 1),
            pages: Vec::new(),
            free: Vec::new(),
            highest: BinaryHeap::new(),
        }
    }

    /// Whether a page of this hash is no member and cannot become one.
    #[inline]
    pub(super) fn refuses(&self, hash: u64) -> bool {
        hash >= self.threshold
    }

    /// The part of all pages that are members.
    pub(super) fn rate(&self) -> f64 {
        rate(self.threshold)
    }

    pub(super) fn len(&self) -> usize {
        self.highest.len()
    }

    /// The most there may be.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The number of a page that is not refused, which becomes a member if it is none; nothing if
    /// it is the one that has to go for that. Should another go, `gone` is told its hash and
    /// number.
    pub(super) fn number(
        &mut self,
        page: u64,
        hash: u64,
        gone: impl FnOnce(u64, u32),
    ) -> Option<u32> {
        let SampleSet { index, pages, .. } = self;
        let found = index.find(Hash::of(page), |number| pages[number as usize] == page);
        found.or_else(|| self.enter(page, hash, gone))
    }

    fn enter(&mut self, page: u64, hash: u64, gone: impl FnOnce(u64, u32)) -> Option<u32> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.pages.push(page);
            u32::try_from(self.pages.len() - 1).expect("a sample of few pages")
        });
        self.pages[number as usize] = page;
        self.index.insert(Hash::of(page), number);
        self.highest.push((hash, number));
        if self.highest.len() > self.size {
            let (highest, out) = self.highest.pop().expect("more than the size");
            self.threshold = highest;
            self.forget(out);
            if out != number {
                gone(highest, out);
            }
        }
        // Others of the same hash stay until their turn comes, but are not counted any more.
        (hash < self.threshold).then_some(number)
    }

    /// Frees the number of a page that is not in the heap any more.
    fn forget(&mut self, number: u32) {
        self.index.remove(Hash::of(self.pages[number as usize]), number);
        self.free.push(number);
    }

    /// Lets those go that `stays` does not want, by number; these.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(u32) -> bool) -> Vec<u32> {
        let pages = std::mem::take(&mut self.highest).into_vec();
        let (kept, gone): (Vec<_>, Vec<_>) =
            pages.into_iter().partition(|&(_, number)| stays(number));
        self.highest = kept.into();
        let gone: Vec<u32> = gone.into_iter().map(|(_, number)| number).collect();
        for &number in &gone {
            self.forget(number);
        }
        gone
    }

    /// Numbers in use, and those that are free.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> usize {
        self.pages.len()
    }
}
