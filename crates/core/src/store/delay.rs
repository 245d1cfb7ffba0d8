//! A store that takes its time: every operation is done a fixed time after it came, or never while
//! the store is stalled.

use super::{Geometry, Store, StoreDone, StoreOp};
use crate::clock::Nanos;
use crate::frames::Frames;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that answers late.
#[derive(Debug)]
pub struct DelayStore<F: Frames, S> {
    inner: S,
    delay: Nanos,
    stalled: Arc<AtomicBool>,
    waiting: VecDeque<(Nanos, StoreOp<F>)>,
}

impl<F: Frames, S: Store<F>> DelayStore<F, S> {
    /// `inner`, `delay` nanoseconds later.
    pub fn new(inner: S, delay: Nanos) -> Self {
        let stalled = Arc::new(AtomicBool::new(false));
        DelayStore { inner, delay, stalled, waiting: VecDeque::new() }
    }

    /// While this is true, nothing is done.
    #[must_use]
    pub fn stall_switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stalled)
    }

    fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Acquire)
    }
}

impl<F: Frames, S: Store<F>> Store<F> for DelayStore<F, S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now: Nanos, _frames: &F, op: StoreOp<F>) {
        self.waiting.push_back((now, op));
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreDone<F>>) {
        if self.is_stalled() {
            return;
        }
        while self.waiting.front().is_some_and(|(came, _)| came + self.delay <= now) {
            let (came, op) = self.waiting.pop_front().expect("looked at above");
            let before = done.len();
            self.inner.submit(now, frames, op);
            self.inner.reap(now, frames, done);
            for done in &mut done[before..] {
                done.started_at = came;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.inner.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        if self.is_stalled() {
            return None;
        }
        self.waiting.front().map(|(came, _)| came + self.delay)
    }
}
