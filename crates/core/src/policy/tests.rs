//! Tests of the policies, each against a slow twin that does the same with plain lists.

#![expect(clippy::cast_possible_truncation, reason = "slots and pages of a test are small")]

use super::{NO_SLOT, PASSED_OVER_MAX, Policy, PolicyKind, Slot};
use crate::page::mix;

/// What a policy does, in the obvious way.
trait Twin {
    fn insert(&mut self, slot: Slot, page: u64);
    fn hit(&mut self, slot: Slot);
    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot>;
    fn remove(&mut self, slot: Slot, page: u64, evicted: bool);
}

/// Slots, the one referenced longest ago first.
struct SlowLru(Vec<Slot>);

impl Twin for SlowLru {
    fn insert(&mut self, slot: Slot, _page: u64) {
        self.0.push(slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.0.retain(|&other| other != slot);
        self.0.push(slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.0.iter().copied().take(PASSED_OVER_MAX as usize).find(|&slot| accept(slot))
    }

    fn remove(&mut self, slot: Slot, _page: u64, _evicted: bool) {
        self.0.retain(|&other| other != slot);
    }
}

/// Queues of slots and their counts, the oldest first, and an exact queue of ghosts.
#[derive(Default)]
struct SlowS3Fifo {
    small: Vec<(Slot, u8)>,
    main: Vec<(Slot, u8)>,
    ghosts: Vec<(u64, usize)>,
    turn: usize,
    capacity: usize,
}

impl SlowS3Fifo {
    fn small_is_over(&self) -> bool {
        self.main.is_empty() || self.small.len() > (self.small.len() + self.main.len()) / 10
    }

    fn victim_small(
        &mut self,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut i = 0;
        while i < self.small.len() && *budget > 0 {
            let (slot, count) = self.small[i];
            if count >= 2 {
                self.small.remove(i);
                self.main.push((slot, 0));
                if !self.small_is_over() {
                    return None;
                }
            } else if accept(slot) {
                return Some(slot);
            } else {
                *budget -= 1;
                i += 1;
            }
        }
        None
    }

    fn victim_main(
        &mut self,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut i = 0;
        let mut steps = self.main.len() * 4;
        while i < self.main.len() && *budget > 0 && steps > 0 {
            steps -= 1;
            let (slot, count) = self.main[i];
            if count > 0 {
                self.main.remove(i);
                i = if i == self.main.len() { 0 } else { i };
                self.main.push((slot, count - 1));
            } else if accept(slot) {
                return Some(slot);
            } else {
                *budget -= 1;
                i += 1;
            }
        }
        None
    }
}

impl Twin for SlowS3Fifo {
    fn insert(&mut self, slot: Slot, page: u64) {
        let (turn, capacity) = (self.turn, self.capacity);
        let ghost =
            self.ghosts.iter().position(|&(other, at)| other == page && turn - at < capacity);
        if let Some(index) = ghost {
            self.ghosts.remove(index);
            self.main.push((slot, 0));
        } else {
            self.small.push((slot, 0));
        }
    }

    fn hit(&mut self, slot: Slot) {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        let (_, count) = all.find(|(other, _)| *other == slot).expect("resident");
        *count = (*count + 1).min(3);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut small = None;
        if self.small_is_over() {
            small = self.victim_small(&mut budget, accept);
        }
        small
            .or_else(|| self.victim_main(&mut budget, accept))
            .or_else(|| self.victim_small(&mut budget, accept))
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let was_small = self.small.iter().any(|&(other, _)| other == slot);
        self.small.retain(|&(other, _)| other != slot);
        self.main.retain(|&(other, _)| other != slot);
        if evicted && was_small {
            self.turn += 1;
            self.capacity = (self.small.len() + self.main.len()).max(10);
            self.ghosts.retain(|&(other, _)| other != page);
            self.ghosts.push((page, self.turn));
        }
    }
}

fn twin(kind: PolicyKind) -> Box<dyn Twin> {
    match kind {
        PolicyKind::Lru => Box::new(SlowLru(Vec::new())),
        PolicyKind::S3Fifo => Box::new(SlowS3Fifo::default()),
    }
}

/// Pages that no ghost takes for another one or drives out: at most eight in each of the windows of
/// the smallest table of ghosts.
fn pages() -> Vec<u64> {
    let mut windows = [0; 8];
    let fits = |&page: &u64| {
        let count = &mut windows[(mix(page) as usize & 63) / 8];
        *count += 1;
        *count <= 8
    };
    (0..200).filter(fits).collect()
}

/// A policy and its twin, and the pages in the slots.
struct Pair {
    policy: Box<dyn Policy>,
    twin: Box<dyn Twin>,
    slots: Vec<Option<u64>>,
}

impl Pair {
    fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Evicts, where the bits of `refused` say which slots may not go.
    fn evict(&mut self, refused: u64) -> Option<Slot> {
        let (mut asked, mut asked_twin) = (Vec::new(), Vec::new());
        let ask = |to: &mut Vec<Slot>, slot: Slot| {
            assert_ne!(slot, NO_SLOT);
            to.push(slot);
            refused & (1 << slot) == 0
        };
        let victim = self.policy.victim(&mut |slot| ask(&mut asked, slot));
        let expected = self.twin.victim(&mut |slot| ask(&mut asked_twin, slot));
        assert_eq!((victim, asked), (expected, asked_twin), "victim and the slots asked for");
        if let Some(slot) = victim {
            self.remove(slot, true);
        }
        victim
    }

    fn remove(&mut self, slot: Slot, evicted: bool) {
        let page = self.slots[slot as usize].take().expect("resident");
        self.policy.on_remove(slot, page, evicted);
        self.twin.remove(slot, page, evicted);
    }

    fn reference(&mut self, page: u64, capacity: usize, refused: u64) {
        if let Some(slot) = self.slots.iter().position(|&other| other == Some(page)) {
            self.policy.on_hit(slot as Slot);
            self.twin.hit(slot as Slot);
            return;
        }
        if self.len() == capacity && self.evict(refused).is_none() {
            return;
        }
        let slot = self.slots.iter().position(Option::is_none).expect("room was made");
        self.slots[slot] = Some(page);
        self.policy.on_insert(slot as Slot, page);
        self.twin.insert(slot as Slot, page);
    }
}

#[test]
fn policies_do_what_their_slow_twins_do() {
    let pages = pages();
    for kind in PolicyKind::ALL {
        let mut evictions = 0;
        for trace in 0..3000u64 {
            let mut state = mix(trace + 1);
            let mut next = |n: u64| {
                state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
                state % n
            };
            let capacity = 1 + next(32) as usize;
            let mut pair =
                Pair { policy: kind.build(), twin: twin(kind), slots: vec![None; capacity] };
            let few = 1 + next(pages.len() as u64);
            for _ in 0..next(200) {
                let page = pages[next(few) as usize];
                let refused = if next(3) == 0 { next(u64::MAX) } else { 0 };
                match next(20) {
                    0 => {
                        let slot = next(capacity as u64) as Slot;
                        if pair.slots[slot as usize].is_some() {
                            pair.remove(slot, false);
                        }
                    }
                    1 => evictions += u32::from(pair.evict(refused).is_some()),
                    _ => pair.reference(page, capacity, refused),
                }
                pair.policy.check();
                assert_eq!(pair.policy.len(), pair.len());
            }
        }
        assert!(evictions > 1000, "{} evicted too little", kind.name());
    }
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

#[test]
fn s3fifo_keeps_what_is_used_through_a_scan() {
    let mut policy = PolicyKind::S3Fifo.build();
    for slot in 0..20 {
        policy.on_insert(slot, u64::from(slot));
    }
    for slot in 0..4 {
        policy.on_hit(slot);
        policy.on_hit(slot);
    }
    for page in 100..200 {
        let slot = policy.victim(&mut |_| true).expect("a page");
        assert!(slot >= 4, "a scan drove out a page that is used");
        policy.on_remove(slot, page, true);
        policy.on_insert(slot, page + 1000);
    }
}
