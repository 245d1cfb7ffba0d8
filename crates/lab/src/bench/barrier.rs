//! A barrier that can be aborted: when one thread fails, the others must not wait for it forever.

use std::sync::{Condvar, Mutex, PoisonError};

/// Releases all threads together, repeatedly, until it is aborted.
#[derive(Debug)]
pub(super) struct BreakableBarrier {
    threads: usize,
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Number of times that it has opened.
    rounds: u64,
    broken: bool,
}

impl BreakableBarrier {
    pub(super) fn new(threads: usize) -> Self {
        BreakableBarrier { threads, state: Mutex::default(), opened: Condvar::new() }
    }

    /// Waits for all threads. Returns false if the barrier is aborted and the threads must end.
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

    /// Aborts the barrier: all current and later calls of `wait` return false.
    pub(super) fn abort(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
        self.opened.notify_all();
    }
}
