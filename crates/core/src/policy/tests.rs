//! Tests of the policies: each is compared with a slow reference implementation that follows the
//! paper with plain vectors and maps, on random traces from fixed seeds.

mod arc;
mod clock;
mod clock2q_plus;
mod fifo;
mod linux;
mod lirs;
mod lru;
mod random;
mod s3fifo;
mod sieve;
mod slru;
mod two_q;
mod wtinylfu;

use super::index::fingerprint;
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, PolicyKind, Slot};
use crate::curve::testing::Random;
use crate::page::mix;
use larder_testing::budget;
use std::collections::{BTreeSet, VecDeque};

/// Returns the number of random traces for each policy.
fn traces() -> u64 {
    budget(4_000, 20_000)
}

/// The maximum number of pages in the caches of the traces.
const PAGES_MAX: usize = 60;
/// The number of distinct pages in the traces.
const UNIVERSE: u64 = 200;

/// A straightforward implementation of a policy. Lists have the oldest entry first.
trait ReferencePolicy {
    fn set_capacity(&mut self, _pages: usize) {}
    fn miss(&mut self, _page: u64) {}
    fn insert(&mut self, slot: Slot, page: u64);
    fn hit(&mut self, slot: Slot);
    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot>;
    fn remove(&mut self, slot: Slot, page: u64, evicted: bool);
}

/// Returns the first of `slots` that `accept` accepts; each rejected slot costs one unit of
/// `budget`.
fn first_accepted<'a>(
    slots: impl IntoIterator<Item = &'a Slot>,
    budget: &mut u32,
    accept: &mut dyn FnMut(Slot) -> bool,
) -> Option<Slot> {
    slots.into_iter().copied().find(|&slot| {
        if *budget == 0 {
            return false;
        }
        let accepted = accept(slot);
        *budget -= u32::from(!accepted);
        accepted
    })
}

/// Removes a value from a list; returns true if the list contained it.
fn remove_value<T: PartialEq>(list: &mut Vec<T>, value: &T) -> bool {
    let position = list.iter().position(|other| other == value);
    if let Some(position) = position {
        list.remove(position);
    }
    position.is_some()
}

/// Moves a value of the list to its end, as the newest.
fn move_to_end<T: PartialEq>(list: &mut Vec<T>, value: T) {
    remove_value(list, &value);
    list.push(value);
}

/// A queue of ghosts in which a removed ghost leaves a gap.
#[derive(Default)]
struct SlowGhosts {
    ticks: VecDeque<Option<u64>>,
    capacity: usize,
}

impl SlowGhosts {
    fn tick(&mut self, page: Option<u64>) {
        self.ticks.push_back(page);
        while self.ticks.len() > self.capacity {
            self.ticks.pop_front();
        }
    }

    fn insert(&mut self, page: u64, capacity: usize) {
        self.capacity = capacity;
        self.tick(Some(page));
    }

    /// Removes a page; returns the number of ticks since its insertion.
    fn take(&mut self, page: u64) -> Option<usize> {
        let position = self.ticks.iter().position(|&other| other == Some(page))?;
        self.ticks[position] = None;
        Some(self.ticks.len() - 1 - position)
    }
}

/// A queue of ghosts of which a new one displaces the oldest.
#[derive(Default)]
struct SlowGhostQueue(Vec<u64>);

impl SlowGhostQueue {
    fn insert(&mut self, page: u64, capacity: usize) {
        self.0.push(page);
        self.0.drain(..self.0.len().saturating_sub(capacity));
    }

    fn take(&mut self, page: u64) -> bool {
        remove_value(&mut self.0, &page)
    }
}

/// A seeded random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        usize::try_from(mix(self.0) % end as u64).unwrap()
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// A policy and its reference implementation, and the pages in the slots.
struct Pair {
    policy: Box<dyn Policy>,
    reference: Box<dyn ReferencePolicy>,
    slots: Vec<Option<u64>>,
    /// The maximum number of pages, independent of the capacity set for the policy.
    capacity: usize,
    reports_misses: bool,
    /// The number of searches in ten that reject some pages.
    rejecting_searches: usize,
    rng: Rng,
    evictions: u64,
}

impl Pair {
    fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn set_capacity(&mut self, pages: usize) {
        self.policy.on_capacity(pages);
        self.reference.set_capacity(pages);
    }

    /// Evicts a page; returns true if there was a victim.
    fn evict(&mut self) -> bool {
        let rejected = match (self.rng.below(10), self.rng.below(10)) {
            (draw, _) if draw >= self.rejecting_searches => 0,
            (_, 0) => u64::MAX,
            (_, 1..5) => self.rng.bits() | self.rng.bits(),
            _ => self.rng.bits(),
        };
        let accept = |offered: &mut Vec<Slot>, slot: Slot| {
            assert_ne!(slot, NO_SLOT);
            offered.push(slot);
            rejected & (1 << slot) == 0
        };
        let (mut offered, mut offered_by_reference) = (Vec::new(), Vec::new());
        let victim = self.policy.victim(&mut |slot| accept(&mut offered, slot));
        let expected = self.reference.victim(&mut |slot| accept(&mut offered_by_reference, slot));
        assert_eq!(
            (victim, &offered),
            (expected, &offered_by_reference),
            "victim and the slots asked for"
        );
        assert!(offered.len() <= 2 * PASSED_OVER_MAX as usize, "it looked too long");
        if let Some(slot) = victim {
            self.remove(slot, true);
            self.evictions += 1;
        }
        victim.is_some()
    }

    fn remove(&mut self, slot: Slot, evicted: bool) {
        let page = self.slots[slot as usize].take().expect("resident");
        self.policy.on_remove(slot, page, evicted);
        self.reference.remove(slot, page, evicted);
    }

    fn reference(&mut self, page: u64) {
        if let Some(slot) = self.slots.iter().position(|&other| other == Some(page)) {
            let slot = Slot::try_from(slot).unwrap();
            self.policy.on_hit(slot);
            self.reference.hit(slot);
            return;
        }
        if self.reports_misses {
            self.policy.on_miss(page);
            self.reference.miss(page);
        }
        while self.len() >= self.capacity {
            if !self.evict() {
                return;
            }
        }
        let slot = self.slots.iter().position(Option::is_none).expect("room was made");
        self.slots[slot] = Some(page);
        let slot = Slot::try_from(slot).unwrap();
        self.policy.on_insert(slot, page);
        self.reference.insert(slot, page);
    }

    /// Performs an operation other than a reference.
    fn disturb(&mut self) {
        match self.rng.below(8) {
            0..4 => {
                let slot = self.rng.below(PAGES_MAX);
                if self.slots[slot].is_some() {
                    self.remove(Slot::try_from(slot).unwrap(), false);
                }
            }
            4..6 => {
                self.evict();
            }
            6 => {
                self.capacity = 1 + self.rng.below(PAGES_MAX);
                self.set_capacity(self.capacity);
            }
            _ => {
                // The page is not inserted after all.
                let page = self.rng.bits() % UNIVERSE;
                if !self.slots.contains(&Some(page)) {
                    self.policy.on_miss(page);
                    self.reference.miss(page);
                }
            }
        }
    }
}

/// Runs one random trace; returns the number of evicted pages.
fn run(kind: PolicyKind, reference: Box<dyn ReferencePolicy>, seed: u64) -> u64 {
    let mut rng = Rng(mix(seed + 1));
    let capacity = 1 + rng.below(PAGES_MAX);
    let mut pair = Pair {
        policy: kind.build(),
        reference,
        slots: vec![None; PAGES_MAX],
        capacity,
        reports_misses: rng.below(4) > 0,
        rejecting_searches: [0, 0, 3, 6][rng.below(4)],
        rng: Rng(rng.bits()),
        evictions: 0,
    };
    match rng.below(4) {
        0 => {}
        1 => pair.set_capacity(rng.below(PAGES_MAX * 2)),
        _ => pair.set_capacity(capacity),
    }
    let disturbance_percent = [0, 5, 20][rng.below(3)];
    let distinct = 1 + rng.below(usize::try_from(UNIVERSE).unwrap());
    let mut pattern = rng.below(4);
    let mut scan = 0;
    for step in 0..100 + rng.below(200) {
        if rng.below(60) == 0 {
            pattern = rng.below(4);
        }
        let page = match pattern {
            0 => rng.below(distinct),
            // Few pages often: the cube of a uniform number.
            1 | 2 => distinct * rng.below(distinct) / distinct * rng.below(distinct) / distinct,
            _ => {
                scan += 1;
                scan % distinct
            }
        };
        if rng.below(100) < disturbance_percent {
            pair.disturb();
        } else {
            pair.reference(page as u64);
        }
        if step % 8 == 0 {
            pair.policy.check();
        }
        assert_eq!(pair.policy.len(), pair.len());
    }
    pair.policy.check();
    pair.evictions
}

/// Asserts that a policy behaves like its reference implementation on all traces.
fn compare(kind: PolicyKind, reference: impl Fn() -> Box<dyn ReferencePolicy>) {
    let evictions: u64 = (0..traces()).map(|seed| run(kind, reference(), seed)).sum();
    assert!(evictions > traces() * 10, "{} evicted only {evictions} pages", kind.name());
}

#[test]
fn random_does_what_its_slow_twin_does() {
    compare(PolicyKind::Random, || Box::new(random::SlowRandom::default()));
}

#[test]
fn fifo_does_what_its_slow_twin_does() {
    compare(PolicyKind::Fifo, || Box::new(fifo::SlowFifo::default()));
}

#[test]
fn lru_does_what_its_slow_twin_does() {
    compare(PolicyKind::Lru, || Box::new(lru::SlowLru::default()));
}

#[test]
fn clock_does_what_its_slow_twin_does() {
    compare(PolicyKind::Clock, || Box::new(clock::SlowClock::default()));
}

#[test]
fn two_q_does_what_its_slow_twin_does() {
    compare(PolicyKind::TwoQ, || Box::new(two_q::SlowTwoQ::default()));
}

#[test]
fn slru_does_what_its_slow_twin_does() {
    compare(PolicyKind::Slru, || Box::new(slru::SlowSlru::default()));
}

#[test]
fn arc_does_what_its_slow_twin_does() {
    compare(PolicyKind::Arc, || Box::new(arc::SlowArc::default()));
}

#[test]
fn lirs_does_what_its_slow_twin_does() {
    compare(PolicyKind::Lirs, || Box::new(lirs::SlowLirs::default()));
}

#[test]
fn s3fifo_does_what_its_slow_twin_does() {
    compare(PolicyKind::S3Fifo, || Box::new(s3fifo::SlowS3Fifo::default()));
}

#[test]
fn sieve_does_what_its_slow_twin_does() {
    compare(PolicyKind::Sieve, || Box::new(sieve::SlowSieve::default()));
}

#[test]
fn wtinylfu_does_what_its_slow_twin_does() {
    compare(PolicyKind::WTinyLfu, || Box::new(wtinylfu::SlowWTinyLfu::default()));
}

#[test]
fn clock2q_plus_does_what_its_slow_twin_does() {
    compare(PolicyKind::Clock2QPlus, || Box::new(clock2q_plus::SlowClock2QPlus::default()));
}

#[test]
fn linux_does_what_its_slow_twin_does() {
    compare(PolicyKind::Linux, || Box::new(linux::SlowLinux::default()));
}

#[test]
fn no_two_pages_of_the_traces_look_the_same_as_ghosts() {
    let fingerprints: BTreeSet<u32> = (0..UNIVERSE).map(fingerprint).collect();
    assert_eq!(fingerprints.len() as u64, UNIVERSE);
}

#[test]
fn every_policy_is_found_by_its_name() {
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(kind));
        assert!((8..200).contains(&kind.bytes_per_page()));
    }
    assert_eq!(PolicyKind::from_name("mru"), None);
}

#[test]
fn lru_evicts_what_was_referenced_longest_ago() {
    let mut lru = PolicyKind::Lru.build();
    for slot in 0..3 {
        lru.on_insert(slot, u64::from(slot) + 100);
    }
    lru.on_hit(0);
    assert_eq!(lru.victim(&mut |_| true), Some(1));
    assert_eq!(lru.victim(&mut |slot| slot != 1), Some(2), "the next one if 1 may not go");
    lru.on_remove(1, 101, true);
    lru.on_hit(2);
    assert_eq!(lru.victim(&mut |_| true), Some(0));
    assert_eq!(lru.victim(&mut |_| false), None);
}

/// The policies that are known to resist scans.
#[test]
fn a_scan_does_not_drive_out_what_is_used() {
    use PolicyKind::{Arc, Clock2QPlus, Linux, Lirs, S3Fifo, Slru, TwoQ, WTinyLfu};
    for kind in [TwoQ, Slru, Arc, Lirs, S3Fifo, WTinyLfu, Clock2QPlus, Linux] {
        let mut policy = kind.build();
        policy.on_capacity(40);
        let mut slots: Vec<Option<u64>> = vec![None; 40];
        let mut misses_late = 0;
        // Eight pages that are used repeatedly, and an endless scan.
        for step in 0..4000u64 {
            let page = if step % 3 == 0 { step % 8 } else { 1000 + step };
            if let Some(slot) = slots.iter().position(|&other| other == Some(page)) {
                policy.on_hit(Slot::try_from(slot).unwrap());
                continue;
            }
            misses_late += u32::from(page < 8 && step > 2000);
            policy.on_miss(page);
            if slots.iter().all(Option::is_some) {
                let slot = policy.victim(&mut |_| true).expect("a page");
                policy.on_remove(slot, slots[slot as usize].take().unwrap(), true);
            }
            let slot = slots.iter().position(Option::is_none).unwrap();
            slots[slot] = Some(page);
            policy.on_insert(Slot::try_from(slot).unwrap(), page);
        }
        assert!(misses_late < 20, "{}: {misses_late} misses of pages that are used", kind.name());
    }
}

#[test]
fn pages_that_are_handed_over_are_all_there_and_stay_protected() {
    for from in PolicyKind::ALL {
        for to in PolicyKind::ALL {
            let mut random = Random::from_seed(7);
            let mut cache = crate::replace::SwitchableCache::new(from, 100);
            for _ in 0..5_000 {
                let range = random.below(400) + 1;
                cache.touch(random.below(range));
            }
            cache.set_policy(to);
            cache.check();
            assert_eq!(cache.len(), 100, "{from:?} to {to:?}");
            for _ in 0..1_000 {
                cache.touch(random.below(300));
            }
            cache.check();
        }
    }
}

#[test]
fn a_new_policy_of_a_cache_that_is_not_full_still_fills_all_of_it() {
    for kind in [PolicyKind::S3Fifo, PolicyKind::Clock2QPlus, PolicyKind::WTinyLfu] {
        let mut cache = crate::replace::SwitchableCache::new(PolicyKind::Arc, 1000);
        // Fifty pages are referenced twice, so they are protected.
        for page in (0..100).chain(0..50) {
            cache.touch(page);
        }
        cache.set_policy(kind);
        for page in 100..2000 {
            cache.touch(page);
        }
        // A scan passes by the first pages that filled the cache.
        let kept = (0..900).filter(|&page| cache.touch(page)).count();
        assert!(kept >= 700, "{}: {kept} of the first 900 pages", kind.name());
    }
}

#[test]
#[should_panic(expected = "a broken policy")]
fn the_check_of_a_boxed_policy_is_that_of_the_policy() {
    #[derive(Debug)]
    struct Faulty;
    impl Policy for Faulty {
        fn on_insert(&mut self, _: Slot, _: u64) {}
        fn on_hit(&mut self, _: Slot) {}
        fn victim(&mut self, _: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
            None
        }
        fn on_remove(&mut self, _: Slot, _: u64, _: bool) {}
        fn len(&self) -> usize {
            0
        }
        fn check(&self) {
            panic!("a broken policy");
        }
    }
    Policy::check(&Box::new(Faulty));
}
