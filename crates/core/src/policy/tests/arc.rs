//! The twin of ARC, with deletions and refusals; and figure 4 of the paper as it stands, without.

use super::{PASSED_OVER_MAX, Policy, PolicyKind, Rng, Slot, Twin, first_accepted, renew, take};

/// What a page of the target is.
const ONE: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Slow {
    t1: Vec<Slot>,
    t2: Vec<Slot>,
    b1: Vec<u64>,
    b2: Vec<u64>,
    target: usize,
    told: usize,
    coming: Option<u64>,
    was_b2: bool,
}

impl Slow {
    fn capacity(&self) -> usize {
        self.told.max(self.t1.len() + self.t2.len())
    }

    fn adapt(&mut self, page: u64) {
        if self.coming == Some(page) {
            return;
        }
        self.coming = Some(page);
        self.was_b2 = self.b2.contains(&page);
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if self.b1.contains(&page) {
            self.target += (b2 * ONE / b1).max(ONE);
            self.target = self.target.min(self.capacity() * ONE);
        } else if self.was_b2 {
            self.target -= (b1 * ONE / b2).max(ONE).min(self.target);
        }
    }
}

impl Twin for Slow {
    fn tell_capacity(&mut self, pages: usize) {
        self.told = pages;
        self.target = self.target.min(self.capacity() * ONE);
    }

    fn miss(&mut self, page: u64) {
        self.adapt(page);
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        self.adapt(page);
        (self.coming, self.was_b2) = (None, false);
        if take(&mut self.b1, &page) || take(&mut self.b2, &page) {
            self.t2.push(slot);
        } else {
            self.t1.push(slot);
        }
        let capacity = self.capacity();
        while self.t1.len() + self.b1.len() > capacity && !self.b1.is_empty() {
            self.b1.remove(0);
        }
        let total = |arc: &Slow| arc.t1.len() + arc.t2.len() + arc.b1.len() + arc.b2.len();
        while total(self) > 2 * capacity && !self.b2.is_empty() {
            self.b2.remove(0);
        }
    }

    fn hit(&mut self, slot: Slot) {
        take(&mut self.t1, &slot);
        renew(&mut self.t2, slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let t1 = self.t1.len() * ONE;
        let from_t1 = t1 > self.target || (self.was_b2 && t1 == self.target);
        let (first, second) = if from_t1 { (&self.t1, &self.t2) } else { (&self.t2, &self.t1) };
        first_accepted(first.iter().chain(second), &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let was_t1 = take(&mut self.t1, &slot);
        take(&mut self.t2, &slot);
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
        let t1 = self.t1.len() * ONE;
        if !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p) {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }

    /// Whether the page was there.
    fn reference(&mut self, x: u64) -> bool {
        if take(&mut self.t1, &x) || take(&mut self.t2, &x) {
            self.t2.push(x);
            return true;
        }
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if self.b1.contains(&x) {
            self.p = (self.p + (b2 * ONE / b1).max(ONE)).min(self.c * ONE);
            self.replace(false);
            take(&mut self.b1, &x);
            self.t2.push(x);
            return false;
        }
        if self.b2.contains(&x) {
            self.p = self.p.saturating_sub((b1 * ONE / b2).max(ONE));
            self.replace(true);
            take(&mut self.b2, &x);
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

/// One reference to our policy, in a cache of as many slots as there are; whether it was a hit.
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
