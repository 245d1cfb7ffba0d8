//! The reference implementation of LIRS: a stack, a queue, and the ghosts in the order of their
//! evictions.

use super::{PASSED_OVER_MAX, ReferencePolicy, Slot, first_accepted, remove_value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Lir(Slot),
    Hir(Slot),
    Ghost(u64),
}

#[derive(Default)]
pub(super) struct SlowLirs {
    /// The bottom first.
    stack: Vec<State>,
    queue: Vec<Slot>,
    ghosts: Vec<u64>,
    configured: usize,
}

impl SlowLirs {
    fn lir(&self) -> Vec<Slot> {
        let lir = |state: &State| if let State::Lir(slot) = state { Some(*slot) } else { None };
        self.stack.iter().filter_map(lir).collect()
    }

    fn capacity(&self) -> usize {
        self.configured.max(self.lir().len() + self.queue.len())
    }

    fn lir_max(capacity: usize) -> usize {
        capacity - (capacity / 100).max(1)
    }

    fn prune(&mut self) {
        while let Some(&bottom) = self.stack.first() {
            match bottom {
                State::Lir(_) => return,
                State::Hir(_) => {}
                State::Ghost(page) => {
                    remove_value(&mut self.ghosts, &page);
                }
            }
            self.stack.remove(0);
        }
    }

    /// Puts a page on top of the stack as LIR; the oldest LIR pages become HIR if there are too
    /// many.
    fn push_lir(&mut self, slot: Slot) {
        self.stack.push(State::Lir(slot));
        while self.lir().len() > Self::lir_max(self.capacity()) {
            let bottom = self.lir()[0];
            remove_value(&mut self.stack, &State::Lir(bottom));
            self.queue.push(bottom);
        }
        self.prune();
    }
}

impl ReferencePolicy for SlowLirs {
    fn set_capacity(&mut self, pages: usize) {
        self.configured = pages;
    }

    fn insert(&mut self, slot: Slot, page: u64) {
        let was_ghost = remove_value(&mut self.stack, &State::Ghost(page));
        remove_value(&mut self.ghosts, &page);
        let resident = self.lir().len() + self.queue.len() + 1;
        if was_ghost || self.lir().len() < Self::lir_max(self.configured.max(resident)) {
            self.push_lir(slot);
        } else {
            self.stack.push(State::Hir(slot));
            self.queue.push(slot);
            self.prune();
        }
    }

    fn hit(&mut self, slot: Slot) {
        if remove_value(&mut self.stack, &State::Lir(slot)) {
            self.stack.push(State::Lir(slot));
        } else if remove_value(&mut self.stack, &State::Hir(slot)) {
            remove_value(&mut self.queue, &slot);
            self.push_lir(slot);
        } else {
            remove_value(&mut self.queue, &slot);
            self.queue.push(slot);
            self.stack.push(State::Hir(slot));
        }
        self.prune();
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let lir = self.lir();
        first_accepted(self.queue.iter().chain(&lir), &mut { PASSED_OVER_MAX }, accept)
    }

    fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let max_ghosts = self.capacity();
        remove_value(&mut self.queue, &slot);
        let is_slot = |state: &State| [State::Lir(slot), State::Hir(slot)].contains(state);
        if let Some(position) = self.stack.iter().position(is_slot) {
            if evicted {
                self.stack[position] = State::Ghost(page);
                self.ghosts.push(page);
                if self.ghosts.len() > max_ghosts {
                    let oldest = self.ghosts.remove(0);
                    remove_value(&mut self.stack, &State::Ghost(oldest));
                }
            } else {
                self.stack.remove(position);
            }
        }
        while self.ghosts.len() > max_ghosts {
            let oldest = self.ghosts.remove(0);
            remove_value(&mut self.stack, &State::Ghost(oldest));
        }
        self.prune();
    }
}
