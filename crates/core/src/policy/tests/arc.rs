//! The reference implementation of ARC, with deletions and rejected victims; and figure 4 of the
//! paper, without these.

use super::{
    PASSED_OVER_MAX, Policy, PolicyKind, ReferencePolicy, Rng, Slot, first_accepted, move_to_end,
    remove_value,
};

/// One page in the unit of the target.
const TARGET_UNIT: usize = 1 << 20;

#[derive(Default)]
pub(super) struct SlowArc {
    t1: Vec<Slot>,
    t2: Vec<Slot>,
    b1: Vec<u64>,
    b2: Vec<u64>,
    target: usize,
    configured: usize,
    pending: Option<u64>,
    was_b2: bool,
}

impl SlowArc {
    fn capacity(&self) -> usize {
        self.configured.max(self.t1.len() + self.t2.len())
    }

    fn adapt(&mut self, page: u64) {
        if self.pending == Some(page) {
            return;
        }
        self.pending = Some(page);
        self.was_b2 = self.b2.contains(&page);
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if self.b1.contains(&page) {
            self.target += (b2 * TARGET_UNIT / b1).max(TARGET_UNIT);
            self.target = self.target.min(self.capacity() * TARGET_UNIT);
        } else if self.was_b2 {
            self.target -= (b1 * TARGET_UNIT / b2).max(TARGET_UNIT).min(self.target);
        }
    }
}

impl ReferencePolicy for SlowArc {
    fn set_capacity(&mut self, pages: usize) {
        self.configured = pages;
        self.target = self.target.min(self.capacity() * TARGET_UNIT);
    }

    fn miss(&mut self, page: u64) {
        self.adapt(page);
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        self.adapt(page);
        (self.pending, self.was_b2) = (None, false);
        if remove_value(&mut self.b1, &page) || remove_value(&mut self.b2, &page) {
            self.t2.push(slot);
        } else {
            self.t1.push(slot);
        }
        let capacity = self.capacity();
        while self.t1.len() + self.b1.len() > capacity && !self.b1.is_empty() {
            self.b1.remove(0);
        }
        let total = |arc: &SlowArc| arc.t1.len() + arc.t2.len() + arc.b1.len() + arc.b2.len();
        while total(self) > 2 * capacity && !self.b2.is_empty() {
            self.b2.remove(0);
        }
    }

    fn hit(&mut self, slot: Slot) {
        remove_value(&mut self.t1, &slot);
        move_to_end(&mut self.t2, slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let t1 = self.t1.len() * TARGET_UNIT;
        let from_t1 = t1 > self.target || (self.was_b2 && t1 == self.target);
        let (first, second) = if from_t1 { (&self.t1, &self.t2) } else { (&self.t2, &self.t1) };
        first_accepted(first.iter().chain(second), &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let was_t1 = remove_value(&mut self.t1, &slot);
        remove_value(&mut self.t2, &slot);
        if evicted {
            if was_t1 { &mut self.b1 } else { &mut self.b2 }.push(page);
        }
    }
}

/// Figure 4 of the paper, on pages.
#[derive(Default)]
struct Figure4 {
    c: usize,
    p: usize,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl Figure4 {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() * TARGET_UNIT;
        if !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p) {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }

    /// References a page; returns true if it was a hit.
    fn reference(&mut self, x: u64) -> bool {
        if remove_value(&mut self.t1, &x) || remove_value(&mut self.t2, &x) {
            self.t2.push(x);
            return true;
        }
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if self.b1.contains(&x) {
            self.p = (self.p + (b2 * TARGET_UNIT / b1).max(TARGET_UNIT)).min(self.c * TARGET_UNIT);
            self.replace(false);
            remove_value(&mut self.b1, &x);
            self.t2.push(x);
            return false;
        }
        if self.b2.contains(&x) {
            self.p = self.p.saturating_sub((b1 * TARGET_UNIT / b2).max(TARGET_UNIT));
            self.replace(true);
            remove_value(&mut self.b2, &x);
            self.t2.push(x);
            return false;
        }
        let total = self.t1.len() + self.t2.len() + b1 + b2;
        if self.t1.len() + b1 == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                self.replace(false);
            } else {
                self.t1.remove(0);
            }
        } else if total >= self.c {
            if total == 2 * self.c {
                self.b2.remove(0);
            }
            self.replace(false);
        }
        self.t1.push(x);
        false
    }
}

/// References a page through the policy under test, in a cache with `slots.len()` slots; returns
/// true if it was a hit.
fn reference(policy: &mut dyn Policy, slots: &mut [Option<u64>], page: u64) -> bool {
    if let Some(slot) = slots.iter().position(|&other| other == Some(page)) {
        policy.on_hit(Slot::try_from(slot).unwrap());
        return true;
    }
    policy.on_miss(page);
    if slots.iter().all(Option::is_some) {
        let slot = policy.victim(&mut |_| true).expect("a page");
        policy.on_remove(slot, slots[slot as usize].take().unwrap(), true);
    }
    let slot = slots.iter().position(Option::is_none).expect("room was made");
    slots[slot] = Some(page);
    policy.on_insert(Slot::try_from(slot).unwrap(), page);
    false
}

#[test]
fn arc_is_figure_4_of_the_paper() {
    for seed in 0..1000 {
        let mut rng = Rng(seed);
        let c = 1 + rng.below(40);
        let mut paper = Figure4 { c, ..Figure4::default() };
        let mut policy = PolicyKind::Arc.build();
        policy.on_capacity(c);
        let mut slots = vec![None; c];
        let few = 1 + rng.below(100);
        for step in 0..600 {
            let page = if step / 100 % 2 == 0 { rng.below(few) } else { step % few } as u64;
            let ours = reference(policy.as_mut(), &mut slots, page);
            assert_eq!(ours, paper.reference(page), "seed {seed}, step {step}");
        }
    }
}
