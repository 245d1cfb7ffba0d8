//! A slow store: every operation completes a fixed time after its submission, or never while the
//! store is stalled.

use super::{Geometry, Store, StoreCompletion, StoreOp};
use crate::clock::Nanos;
use crate::frames::Frames;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store with delayed completions.
#[derive(Debug)]
pub struct DelayStore<F: Frames, S> {
    inner: S,
    delay: Nanos,
    stalled: Arc<AtomicBool>,
    pending: VecDeque<(Nanos, StoreOp<F>)>,
}

impl<F: Frames, S: Store<F>> DelayStore<F, S> {
    /// Wraps `inner`, with completions `delay` nanoseconds after submission.
    pub fn new(inner: S, delay: Nanos) -> Self {
        let stalled = Arc::new(AtomicBool::new(false));
        DelayStore { inner, delay, stalled, pending: VecDeque::new() }
    }

    /// Returns a switch; while it is true, no operation completes.
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
        self.pending.push_back((now, op));
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        if self.is_stalled() {
            return;
        }
        while self.pending.front().is_some_and(|(submitted_at, _)| submitted_at + self.delay <= now)
        {
            let (submitted_at, op) = self.pending.pop_front().expect("looked at above");
            let before = done.len();
            self.inner.submit(now, frames, op);
            self.inner.reap(now, frames, done);
            for done in &mut done[before..] {
                done.started_at = submitted_at;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.inner.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        if self.is_stalled() {
            return None;
        }
        self.pending.front().map(|(submitted_at, _)| submitted_at + self.delay)
    }
}
