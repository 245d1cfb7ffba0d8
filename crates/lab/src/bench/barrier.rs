//! A barrier that can break: when one thread fails, the others must not wait for it for ever.

use std::sync::{Condvar, Mutex, PoisonError};

/// Lets threads through together, again and again, until it is broken.
#[derive(Debug)]
pub(super) struct BreakableBarrier {
    threads: usize,
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// How often it has opened.
    rounds: u64,
    broken: bool,
}

impl BreakableBarrier {
    pub(super) fn new(threads: usize) -> Self {
        BreakableBarrier { threads, state: Mutex::default(), opened: Condvar::new() }
    }

    /// Waits for all threads; false if the gate is broken and nobody shall go on.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        if state.waiting == self.threads {
            state.waiting = 0;
            state.rounds += 1;
            self.opened.notify_all();
            return !state.broken;
        }
        let round = state.rounds;
        while state.rounds == round && !state.broken {
            state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.broken
    }

    /// Breaks it: all who wait and all who come are turned away.
    pub(super) fn break_up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
        self.opened.notify_all();
    }
}
