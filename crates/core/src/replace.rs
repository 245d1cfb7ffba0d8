//! Simulation of replacement only: the hits of references in a cache of a given size under a given
//! policy.
//!
//! The policies are those of the engine, called without dynamic dispatch: a cache is compiled for
//! its policy and runs batches of references. A miss in a full cache evicts one victim before the
//! page enters; a page always enters completely. No page is protected from eviction, since no page
//! is dirty, pinned or being filled here.

mod find;
mod small;

use crate::page_index::Hash;
use crate::policy::{Policy, PolicyKind, PolicyVisitor, Slot, hand_over};
use find::{BATCH, NumberIndex, PageIndex, SlotIndex};
pub(crate) use small::{CacheEvent, SmallCache};

/// One page touched by one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Volume and page number in one number.
    pub page: u64,
    /// Bytes of the page that the request touches; 2^32 - 1 stands for that or more.
    pub bytes: u32,
    /// True if the bytes are written.
    pub write: bool,
    /// True if the request touches only a part of the page.
    pub partial: bool,
    /// True for the first reference of a request.
    pub first: bool,
}

/// Totals of one kind of references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceTotals {
    /// Number of pages touched, counted for each request.
    pub references: u64,
    /// Bytes that requests touched in those pages.
    pub bytes: u64,
}

impl ReferenceTotals {
    fn add(&mut self, reference: &Reference) {
        self.references += 1;
        self.bytes += u64::from(reference.bytes);
    }

    fn plus(self, other: ReferenceTotals) -> ReferenceTotals {
        ReferenceTotals {
            references: self.references + other.references,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Counts of hits, misses and evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of resident pages.
    pub read_hits: ReferenceTotals,
    /// Reads of pages that were not resident.
    pub read_misses: ReferenceTotals,
    /// Writes to resident pages.
    pub write_hits: ReferenceTotals,
    /// Writes to pages that were not resident.
    pub write_misses: ReferenceTotals,
    /// Pages evicted to make room.
    pub evictions: u64,
}

impl Counts {
    /// Returns all hits.
    #[must_use]
    pub fn hits(&self) -> ReferenceTotals {
        self.read_hits.plus(self.write_hits)
    }

    /// Returns all misses.
    #[must_use]
    pub fn misses(&self) -> ReferenceTotals {
        self.read_misses.plus(self.write_misses)
    }

    /// Returns all references.
    #[must_use]
    pub fn all(&self) -> ReferenceTotals {
        self.hits().plus(self.misses())
    }

    /// Counts a reference.
    pub fn count(&mut self, reference: &Reference, hit: bool) {
        let totals = match (reference.write, hit) {
            (false, true) => &mut self.read_hits,
            (false, false) => &mut self.read_misses,
            (true, true) => &mut self.write_hits,
            (true, false) => &mut self.write_misses,
        };
        totals.add(reference);
    }
}

/// A simulated cache.
pub trait Replace: Send + std::fmt::Debug {
    /// Runs the next references of the trace; `numbers` are the numbers of their pages if the cache
    /// looks pages up by number.
    fn run(&mut self, references: &[Reference], numbers: &[u32]);
    /// Returns the counts so far.
    fn counts(&self) -> Counts;
    /// Asserts every invariant; for tests.
    fn check(&self);
}

/// The key by which a cache looks up the slot of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// The page, in an index of each cache: 16 to 32 bytes for each resident page.
    Page,
    /// The number of the page, which one index assigns for all caches: 4 bytes for each page of the
    /// trace up to the highest number that the cache has seen.
    Number,
}

/// Returns a cache of `capacity` pages (at least one) under `kind`.
#[must_use]
pub fn cache(kind: PolicyKind, capacity: u32, find_by: IndexKind) -> Box<dyn Replace> {
    kind.visit(CacheBuilder { capacity, find_by })
}

struct CacheBuilder {
    capacity: u32,
    find_by: IndexKind,
}

impl PolicyVisitor for CacheBuilder {
    type Output = Box<dyn Replace>;

    fn visit<P: Policy + 'static>(self, policy: P) -> Box<dyn Replace> {
        let capacity = self.capacity;
        match self.find_by {
            IndexKind::Page => {
                Box::new(Cache::new(policy, capacity, PageIndex::for_capacity(capacity)))
            }
            IndexKind::Number => Box::new(Cache::new(policy, capacity, NumberIndex::default())),
        }
    }
}

/// A cache under one policy.
#[derive(Debug)]
struct Cache<P, F> {
    policy: P,
    slot_index: F,
    capacity: u32,
    /// The page of each slot. Slots are assigned in order until the cache is full; then each new
    /// page takes the slot of its victim.
    pages: Vec<u64>,
    counts: Counts,
}

impl<P: Policy, F: SlotIndex> Cache<P, F> {
    fn new(mut policy: P, capacity: u32, slot_index: F) -> Self {
        assert!(capacity > 0, "a cache of at least one page");
        assert!(policy.is_empty(), "a policy that is new");
        policy.on_capacity(capacity as usize);
        Cache { policy, slot_index, capacity, pages: Vec::new(), counts: Counts::default() }
    }

    #[inline]
    fn reference(&mut self, reference: &Reference, key: F::Key) {
        let (hit, _) = self.touch(reference.page, key);
        self.counts.count(reference, hit);
    }

    /// References a page. Returns true if it was resident, and its slot after the reference.
    #[inline]
    fn touch(&mut self, page: u64, key: F::Key) -> (bool, Slot) {
        if let Some(slot) = self.slot_index.slot(key, page, &self.pages) {
            self.policy.on_hit(slot);
            return (true, slot);
        }
        self.policy.on_miss(page);
        (false, self.insert(page, key))
    }

    /// Adds a page that is not resident. Returns its slot.
    #[inline]
    fn insert(&mut self, page: u64, key: F::Key) -> Slot {
        let slot = self.slot_for_new(page);
        self.slot_index.insert(key, slot);
        self.policy.on_insert(slot, page);
        slot
    }

    /// Returns the slot for a page that enters.
    fn slot_for_new(&mut self, page: u64) -> Slot {
        let used = u32::try_from(self.pages.len()).expect("at most the capacity");
        if used < self.capacity {
            self.pages.push(page);
            return used;
        }
        let victim = self.policy.victim(&mut |_| true).expect("a full cache has a victim");
        let old = std::mem::replace(&mut self.pages[victim as usize], page);
        self.policy.on_remove(victim, old, true);
        self.slot_index.remove(victim, old);
        self.counts.evictions += 1;
        victim
    }
}

impl<P: Policy, F: SlotIndex> Replace for Cache<P, F> {
    fn run(&mut self, references: &[Reference], numbers: &[u32]) {
        let mut keys = [F::Key::default(); BATCH];
        for (at, ahead) in (0..).step_by(BATCH).zip(references.chunks(BATCH)) {
            self.slot_index.prefetch(ahead, numbers.get(at..).unwrap_or_default(), &mut keys);
            for (reference, &key) in ahead.iter().zip(&keys) {
                self.reference(reference, key);
            }
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn check(&self) {
        self.policy.check();
        assert_eq!(self.policy.len(), self.pages.len());
        assert!(self.pages.len() <= self.capacity as usize);
        self.slot_index.check(&self.pages);
    }
}

/// A cache whose policy can be switched; it runs one reference at a time.
#[derive(Debug)]
pub struct SwitchableCache {
    cache: Cache<Box<dyn Policy>, PageIndex>,
    /// The number of the last reference to the page of each slot.
    last_references: Vec<u64>,
    now: u64,
}

impl SwitchableCache {
    /// Returns a cache of `capacity` pages (at least one) under `kind`.
    #[must_use]
    pub fn new(kind: PolicyKind, capacity: u32) -> Self {
        let cache = Cache::new(kind.build(), capacity, PageIndex::for_capacity(capacity));
        SwitchableCache { cache, last_references: Vec::new(), now: 0 }
    }

    /// References a page. Returns true if it was resident.
    pub fn touch(&mut self, page: u64) -> bool {
        let (hit, slot) = self.cache.touch(page, Hash::of(page));
        let slot = slot as usize;
        if slot == self.last_references.len() {
            self.last_references.push(0);
        }
        self.now += 1;
        self.last_references[slot] = self.now;
        hit
    }

    /// Switches to another policy, as the engine does.
    pub fn set_policy(&mut self, kind: PolicyKind) {
        let Cache { policy, pages, capacity, .. } = &mut self.cache;
        let mut next = kind.build();
        next.on_capacity(*capacity as usize);
        let known = self.last_references.iter().zip(0..).zip(pages.iter());
        let mut known: Vec<_> = known.map(|((&at, slot), &page)| (at, slot, page)).collect();
        hand_over(&**policy, &mut *next, &mut known);
        *policy = next;
    }

    /// Returns the number of pages evicted so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.cache.counts.evictions
    }

    /// Returns the number of resident pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.pages.len()
    }

    /// Returns true if no page is resident.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cache.pages.is_empty()
    }

    /// Asserts every invariant; for tests.
    pub fn check(&self) {
        Replace::check(&self.cache);
        assert_eq!(self.last_references.len(), self.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cached_from_its_first_reference_until_its_eviction() {
        let mut cache = SwitchableCache::new(PolicyKind::Lru, 2);
        let hits: Vec<_> = [1, 1, 2, 1, 3, 1, 2].map(|page| cache.touch(page)).into();
        assert_eq!(hits, [false, true, false, true, false, true, false]);
        assert_eq!(cache.len(), 2);
    }
}
