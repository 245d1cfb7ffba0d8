//! Stores that lie, to prove that the checks of the simulation can fail.

use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};

/// The operation about which a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    Nothing,
    /// The store acknowledges flushes without performing them.
    Flush,
    /// The store performs FUA writes as ordinary ones.
    Fua,
}

/// A store that lies.
#[derive(Debug)]
pub(crate) struct LyingStore<F: Frames, S> {
    inner: S,
    lie: Lie,
    done: Vec<StoreCompletion<F>>,
}

impl<F: Frames, S: Store<F>> LyingStore<F, S> {
    pub(crate) fn new(inner: S, lie: Lie) -> Self {
        LyingStore { inner, lie, done: Vec::new() }
    }
}

impl<F: Frames, S: Store<F>> Store<F> for LyingStore<F, S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &F, mut op: StoreOp<F>) {
        match (self.lie, op.kind) {
            (Lie::Flush, StoreOpKind::Flush) => {
                self.done.push(StoreCompletion {
                    op,
                    result: Ok(()),
                    started_at: now,
                    finished_at: now,
                });
            }
            (Lie::Fua, StoreOpKind::Write { .. }) => {
                op.kind = StoreOpKind::Write { fua: false };
                self.inner.submit(now, frames, op);
            }
            _ => self.inner.submit(now, frames, op),
        }
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        done.append(&mut self.done);
        self.inner.reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        self.done.len() + self.inner.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        if self.done.is_empty() { self.inner.next_event() } else { Some(0) }
    }
}
