//! A sample of fixed size: it contains the pages whose hash is below a threshold, which falls when
//! there are too many (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with
//! SHARDS", FAST '15, section 3). Members have small numbers, which are reused.

use super::estimate::rate;
use crate::page_index::{Hash, Index};
use std::collections::BinaryHeap;

/// The number of groups of pages for the error, by bits of the hash that the threshold does not
/// use.
pub(super) const GROUPS: usize = 16;
pub(super) const GROUPS_F64: f64 = 16.0;

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
    /// Size per page in bytes: an entry of the index (16 to 32 bytes), the page, its entry in the
    /// heap (16), and the slack of growing vectors.
    pub(super) const BYTES: usize = 32 + 2 * (8 + 16 + 4);

    /// Creates a sample of up to `size` pages, of those whose hash is below `threshold`.
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

    /// Returns true if a page with this hash is not a member and cannot become one.
    #[inline]
    pub(super) fn refuses(&self, hash: u64) -> bool {
        hash >= self.threshold
    }

    /// Returns the share of all pages that are members.
    pub(super) fn rate(&self) -> f64 {
        rate(self.threshold)
    }

    pub(super) fn len(&self) -> usize {
        self.highest.len()
    }

    /// Returns the maximum number of members.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of a page that is not refused. The page becomes a member if it is not one
    /// yet. Returns `None` if the page itself is the one that the sample drops. If the sample drops
    /// another page, `dropped` receives its hash and number.
    pub(super) fn number(
        &mut self,
        page: u64,
        hash: u64,
        dropped: impl FnOnce(u64, u32),
    ) -> Option<u32> {
        let SampleSet { index, pages, .. } = self;
        let found = index.find(Hash::of(page), |number| pages[number as usize] == page);
        found.or_else(|| self.enter(page, hash, dropped))
    }

    fn enter(&mut self, page: u64, hash: u64, dropped: impl FnOnce(u64, u32)) -> Option<u32> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.pages.push(page);
            u32::try_from(self.pages.len() - 1).expect("a sample of few pages")
        });
        self.pages[number as usize] = page;
        self.index.insert(Hash::of(page), number);
        self.highest.push((hash, number));
        if self.highest.len() > self.size {
            let (highest, dropped_number) = self.highest.pop().expect("more than the size");
            self.threshold = highest;
            self.free_number(dropped_number);
            if dropped_number != number {
                dropped(highest, dropped_number);
            }
        }
        // Other members with the same hash stay until they are dropped, but no longer count.
        (hash < self.threshold).then_some(number)
    }

    /// Frees the number of a page that is no longer in the heap.
    fn free_number(&mut self, number: u32) {
        self.index.remove(Hash::of(self.pages[number as usize]), number);
        self.free.push(number);
    }

    /// Removes the members for which `keep` returns false, and returns their numbers.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) -> Vec<u32> {
        let pages = std::mem::take(&mut self.highest).into_vec();
        let (kept, dropped): (Vec<_>, Vec<_>) =
            pages.into_iter().partition(|&(_, number)| keep(number));
        self.highest = kept.into();
        let dropped: Vec<u32> = dropped.into_iter().map(|(_, number)| number).collect();
        for &number in &dropped {
            self.free_number(number);
        }
        dropped
    }

    /// Returns the number of allocated numbers, used and free.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> usize {
        self.pages.len()
    }
}
