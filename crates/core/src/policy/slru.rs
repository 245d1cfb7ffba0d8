//! Segmented LRU: each reference promotes a page by one segment.
//!
//! Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE Computer
//! 27(3), 1994, with the four segments of equal size (S4LRU) of Huang, Birman, van Renesse, Lloyd,
//! Kumar, Li, "An analysis of Facebook photo caching", SOSP '13. A referenced page moves to the new
//! end of the next higher segment, or of its own if that is the highest; the oldest page of a
//! segment that has become too long moves to the new end of the next lower one. Victims are the
//! oldest pages of the lowest segment. While a segment has room, new pages fill it, the lowest
//! first: the papers leave open how an empty cache is filled. No ghosts.

use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, Slot};
use crate::page::ChunkedArray;

/// The number of segments; each has an equal share of the cache.
const SEGMENTS: usize = 4;

/// Segments in LRU order and their pages, the lowest first: also the main cache of W-TinyLFU.
#[derive(Debug)]
pub(super) struct Segments<const N: usize> {
    lists: [List; N],
    /// The segment of each slot.
    segment_of: ChunkedArray<u8>,
    /// The sizes of the segments in pages. The lowest one exceeds its size if all are full.
    sizes: [usize; N],
}

impl<const N: usize> Default for Segments<N> {
    fn default() -> Self {
        let lists = std::array::from_fn(|_| List::default());
        Segments { lists, segment_of: ChunkedArray::default(), sizes: [0; N] }
    }
}

impl<const N: usize> Segments<N> {
    /// Memory per resident page in bytes.
    pub(super) const BYTES: usize = size_of::<u8>();

    pub(super) fn len(&self) -> usize {
        self.lists.iter().map(List::len).sum()
    }

    /// Sets the sizes of the segments, which new pages and references enforce.
    pub(super) fn set_sizes(&mut self, sizes: [usize; N]) {
        self.sizes = sizes;
    }

    /// Inserts a page into the lowest segment that has room, or else into the lowest one.
    pub(super) fn insert(&mut self, links: &mut Links, slot: Slot) {
        let has_room = |&segment: &usize| self.lists[segment].len() < self.sizes[segment];
        self.push(links, slot, (0..N).find(has_room).unwrap_or(0));
    }

    fn push(&mut self, links: &mut Links, slot: Slot, segment: usize) {
        *self.segment_of.get_mut(slot) = u8::try_from(segment).expect("a few segments");
        links.push_head(&mut self.lists[segment], slot);
    }

    fn segment_of(&self, slot: Slot) -> usize {
        usize::from(*self.segment_of.get(slot))
    }

    /// Records a reference.
    pub(super) fn hit(&mut self, links: &mut Links, slot: Slot) {
        let segment = self.segment_of(slot);
        if segment == N - 1 {
            links.move_to_head(&mut self.lists[segment], slot);
            return;
        }
        links.remove(&mut self.lists[segment], slot);
        self.push(links, slot, segment + 1);
        for segment in (1..=segment + 1).rev() {
            while self.lists[segment].len() > self.sizes[segment]
                && let Some(oldest) = links.pop_tail(&mut self.lists[segment])
            {
                self.push(links, oldest, segment - 1);
            }
        }
    }

    /// Returns the oldest page in the order of eviction, even if it cannot be evicted now.
    pub(super) fn oldest(&self) -> Slot {
        self.lists.iter().map(List::tail).find(|&slot| slot != NO_SLOT).unwrap_or(NO_SLOT)
    }

    pub(super) fn victim(
        &self,
        links: &Links,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        self.lists.iter().find_map(|segment| links.find_oldest(segment, budget, accept))
    }

    pub(super) fn remove(&mut self, links: &mut Links, slot: Slot) {
        let segment = self.segment_of(slot);
        links.remove(&mut self.lists[segment], slot);
    }

    pub(super) fn slots<'a>(&'a self, links: &'a Links) -> impl Iterator<Item = Slot> + 'a {
        self.lists.iter().flat_map(|segment| links.oldest_first(segment))
    }

    /// Asserts that the lists are consistent and agree with the pages.
    pub(super) fn check(&self, links: &Links) {
        for (number, segment) in self.lists.iter().enumerate() {
            links.check(segment);
            let is_right = |slot| self.segment_of(slot) == number;
            assert!(links.oldest_first(segment).all(is_right), "a page in the wrong segment");
        }
    }
}

/// Segmented LRU.
#[derive(Debug, Default)]
pub struct Slru {
    links: Links,
    segments: Segments<SEGMENTS>,
    capacity: usize,
}

impl Slru {
    /// Memory per resident page in bytes.
    pub(super) const BYTES: usize = Links::BYTES + Segments::<SEGMENTS>::BYTES;

    fn fit(&mut self, len: usize) {
        self.segments.set_sizes([self.capacity.max(len) / SEGMENTS; SEGMENTS]);
    }
}

impl Policy for Slru {
    fn on_capacity(&mut self, pages: usize) {
        self.capacity = pages;
    }

    fn on_insert(&mut self, slot: Slot, _page: u64) {
        self.fit(self.len() + 1);
        self.segments.insert(&mut self.links, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        self.fit(self.len());
        self.segments.hit(&mut self.links, slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        self.segments.victim(&self.links, &mut budget, accept)
    }

    fn on_remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        self.segments.remove(&mut self.links, slot);
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn check(&self) {
        self.segments.check(&self.links);
    }
}
