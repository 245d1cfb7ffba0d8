//! Tests of the policies: each against a slow twin that does what the paper says with plain vectors
//! and maps, on random traces from named seeds.

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

/// Random traces for each policy.
fn traces() -> u64 {
    budget(4_000, 20_000)
}

/// The most pages in the caches of the traces.
const PAGES_MAX: usize = 60;
/// Different pages in the traces.
const UNIVERSE: u64 = 200;

/// What a policy does, in the obvious way. Lists have the oldest first.
trait Twin {
    fn tell_capacity(&mut self, _pages: usize) {}
    fn miss(&mut self, _page: u64) {}
    fn insert(&mut self, slot: Slot, page: u64);
    fn hit(&mut self, slot: Slot);
    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot>;
    fn remove(&mut self, slot: Slot, page: u64, evicted: bool);
}

/// The first of `slots` that may go; each that may not costs one of `budget`.
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

/// Takes a value out of a list; whether it was there.
fn take<T: PartialEq>(list: &mut Vec<T>, value: &T) -> bool {
    let place = list.iter().position(|other| other == value);
    if let Some(place) = place {
        list.remove(place);
    }
    place.is_some()
}

/// Puts a value of the list at its young end.
fn renew<T: PartialEq>(list: &mut Vec<T>, value: T) {
    take(list, &value);
    list.push(value);
}

/// A queue of ghosts in which those that were taken leave a gap.
#[derive(Default)]
struct SlowGhosts {
    turns: VecDeque<Option<u64>>,
    capacity: usize,
}

impl SlowGhosts {
    fn turn(&mut self, page: Option<u64>) {
        self.turns.push_back(page);
        while self.turns.len() > self.capacity {
            self.turns.pop_front();
        }
    }

    fn remember(&mut self, page: u64, capacity: usize) {
        self.capacity = capacity;
        self.turn(Some(page));
    }

    /// How many turns went by since the page was remembered.
    fn take(&mut self, page: u64) -> Option<usize> {
        let place = self.turns.iter().position(|&other| other == Some(page))?;
        self.turns[place] = None;
        Some(self.turns.len() - 1 - place)
    }
}

/// Random numbers from a seed.
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

/// A policy and its twin, and the pages in the slots.
struct Pair {
    policy: Box<dyn Policy>,
    twin: Box<dyn Twin>,
    slots: Vec<Option<u64>>,
    /// How many pages there may be, whatever the policy was told.
    room: usize,
    tells_misses: bool,
    /// How many of ten searches refuse some pages.
    refuses: usize,
    rng: Rng,
    evictions: u64,
}

impl Pair {
    fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn tell_capacity(&mut self, pages: usize) {
        self.policy.on_capacity(pages);
        self.twin.tell_capacity(pages);
    }

    /// Evicts; whether it could.
    fn evict(&mut self) -> bool {
        let refused = match (self.rng.below(10), self.rng.below(10)) {
            (draw, _) if draw >= self.refuses => 0,
            (_, 0) => u64::MAX,
            (_, 1..5) => self.rng.bits() | self.rng.bits(),
            _ => self.rng.bits(),
        };
        let ask = |asked: &mut Vec<Slot>, slot: Slot| {
            assert_ne!(slot, NO_SLOT);
            asked.push(slot);
            refused & (1 << slot) == 0
        };
        let (mut asked, mut asked_twin) = (Vec::new(), Vec::new());
        let victim = self.policy.victim(&mut |slot| ask(&mut asked, slot));
        let expected = self.twin.victim(&mut |slot| ask(&mut asked_twin, slot));
        assert_eq!((victim, &asked), (expected, &asked_twin), "victim and the slots asked for");
        assert!(asked.len() <= 2 * PASSED_OVER_MAX as usize, "it looked too long");
        if let Some(slot) = victim {
            self.remove(slot, true);
            self.evictions += 1;
        }
        victim.is_some()
    }

    fn remove(&mut self, slot: Slot, evicted: bool) {
        let page = self.slots[slot as usize].take().expect("resident");
        self.policy.on_remove(slot, page, evicted);
        self.twin.remove(slot, page, evicted);
    }

    fn reference(&mut self, page: u64) {
        if let Some(slot) = self.slots.iter().position(|&other| other == Some(page)) {
            let slot = Slot::try_from(slot).unwrap();
            self.policy.on_hit(slot);
            self.twin.hit(slot);
            return;
        }
        if self.tells_misses {
            self.policy.on_miss(page);
            self.twin.miss(page);
        }
        while self.len() >= self.room {
            if !self.evict() {
                return;
            }
        }
        let slot = self.slots.iter().position(Option::is_none).expect("room was made");
        self.slots[slot] = Some(page);
        let slot = Slot::try_from(slot).unwrap();
        self.policy.on_insert(slot, page);
        self.twin.insert(slot, page);
    }

    /// Something else than a reference.
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
                self.room = 1 + self.rng.below(PAGES_MAX);
                self.tell_capacity(self.room);
            }
            _ => {
                // The page does not come after all.
                let page = self.rng.bits() % UNIVERSE;
                if !self.slots.contains(&Some(page)) {
                    self.policy.on_miss(page);
                    self.twin.miss(page);
                }
            }
        }
    }
}

/// Runs one random trace; how many pages were evicted.
fn run(kind: PolicyKind, twin: Box<dyn Twin>, seed: u64) -> u64 {
    let mut rng = Rng(mix(seed + 1));
    let room = 1 + rng.below(PAGES_MAX);
    let mut pair = Pair {
        policy: kind.build(),
        twin,
        slots: vec![None; PAGES_MAX],
        room,
        tells_misses: rng.below(4) > 0,
        refuses: [0, 0, 3, 6][rng.below(4)],
        rng: Rng(rng.bits()),
        evictions: 0,
    };
    match rng.below(4) {
        0 => {}
        1 => pair.tell_capacity(rng.below(PAGES_MAX * 2)),
        _ => pair.tell_capacity(room),
    }
    let disturbs = [0, 5, 20][rng.below(3)];
    let few = 1 + rng.below(usize::try_from(UNIVERSE).unwrap());
    let mut pattern = rng.below(4);
    let mut scan = 0;
    for step in 0..100 + rng.below(200) {
        if rng.below(60) == 0 {
            pattern = rng.below(4);
        }
        let page = match pattern {
            0 => rng.below(few),
            // Few pages often: the cube of a uniform number.
            1 | 2 => few * rng.below(few) / few * rng.below(few) / few,
            _ => {
                scan += 1;
                scan % few
            }
        };
        if rng.below(100) < disturbs {
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

/// Asserts that a policy does what its twin does on all traces.
fn compare(kind: PolicyKind, twin: impl Fn() -> Box<dyn Twin>) {
    let evictions: u64 = (0..traces()).map(|seed| run(kind, twin(), seed)).sum();
    assert!(evictions > traces() * 10, "{} evicted only {evictions} pages", kind.name());
}

#[test]
fn random_does_what_its_slow_twin_does() {
    compare(PolicyKind::Random, || Box::new(random::Slow::default()));
}

#[test]
fn fifo_does_what_its_slow_twin_does() {
    compare(PolicyKind::Fifo, || Box::new(fifo::Slow::default()));
}

#[test]
fn lru_does_what_its_slow_twin_does() {
    compare(PolicyKind::Lru, || Box::new(lru::Slow::default()));
}

#[test]
fn clock_does_what_its_slow_twin_does() {
    compare(PolicyKind::Clock, || Box::new(clock::Slow::default()));
}

#[test]
fn two_q_does_what_its_slow_twin_does() {
    compare(PolicyKind::TwoQ, || Box::new(two_q::Slow::default()));
}

#[test]
fn slru_does_what_its_slow_twin_does() {
    compare(PolicyKind::Slru, || Box::new(slru::Slow::default()));
}

#[test]
fn arc_does_what_its_slow_twin_does() {
    compare(PolicyKind::Arc, || Box::new(arc::Slow::default()));
}

#[test]
fn lirs_does_what_its_slow_twin_does() {
    compare(PolicyKind::Lirs, || Box::new(lirs::Slow::default()));
}

#[test]
fn s3fifo_does_what_its_slow_twin_does() {
    compare(PolicyKind::S3Fifo, || Box::new(s3fifo::Slow::default()));
}

#[test]
fn sieve_does_what_its_slow_twin_does() {
    compare(PolicyKind::Sieve, || Box::new(sieve::Slow::default()));
}

#[test]
fn wtinylfu_does_what_its_slow_twin_does() {
    compare(PolicyKind::WTinyLfu, || Box::new(wtinylfu::Slow::default()));
}

#[test]
fn clock2q_plus_does_what_its_slow_twin_does() {
    compare(PolicyKind::Clock2QPlus, || Box::new(clock2q_plus::Slow::default()));
}

#[test]
fn linux_does_what_its_slow_twin_does() {
    compare(PolicyKind::Linux, || Box::new(linux::Slow::default()));
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
        assert_eq!(kind.build().name(), kind.name());
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

/// Those that are known for it.
#[test]
fn a_scan_does_not_drive_out_what_is_used() {
    use PolicyKind::{Arc, Clock2QPlus, Linux, Lirs, S3Fifo, Slru, TwoQ, WTinyLfu};
    for kind in [TwoQ, Slru, Arc, Lirs, S3Fifo, WTinyLfu, Clock2QPlus, Linux] {
        let mut policy = kind.build();
        policy.on_capacity(40);
        let mut slots: Vec<Option<u64>> = vec![None; 40];
        let mut misses_late = 0;
        // Eight pages that are used over and over, and an endless scan.
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
            let mut cache = crate::replace::Changeable::new(from, 100);
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
#[should_panic(expected = "a broken policy")]
fn the_check_of_a_boxed_policy_is_that_of_the_policy() {
    #[derive(Debug)]
    struct Faulty;
    impl Policy for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }
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
