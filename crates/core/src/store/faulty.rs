//! A store with injected faults.

use super::{Geometry, Store, StoreCompletion, StoreError, StoreErrorKind, StoreOp, StoreOpKind};
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::units::overlap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reads that overlap the range fail.
    Reads(Range<u64>),
    /// Writes, discards and zeroings that overlap the range fail.
    Writes(Range<u64>),
    /// Writes fail for lack of space.
    NoSpace,
    /// Flushes fail.
    Flushes,
    /// The operation with this index in the order of submission fails.
    Operation(u64),
    /// The store has shrunk to this length.
    Shrunk(u64),
    /// The store is unreachable; it loses no data.
    Away,
    /// Discards and zeroings are not supported.
    NoDiscard,
}

/// The current faults of a store, shared with the test that sets them.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Mutex<Vec<Fault>>>);

impl FaultPlan {
    /// Sets the faults.
    pub fn set(&self, faults: Vec<Fault>) {
        *self.0.lock().expect("no holder panics") = faults;
    }

    fn faults(&self) -> Vec<Fault> {
        self.0.lock().expect("no holder panics").clone()
    }
}

/// A store that injects the faults of a plan.
#[derive(Debug)]
pub struct FaultyStore<F: Frames, S> {
    inner: S,
    plan: FaultPlan,
    submitted: u64,
    failed: Vec<StoreCompletion<F>>,
}

impl<F: Frames, S: Store<F>> FaultyStore<F, S> {
    /// Wraps `inner`, with the faults of `plan`.
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        FaultyStore { inner, plan, submitted: 0, failed: Vec::new() }
    }

    /// Returns the wrapped store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn failure(&self, op: &StoreOp<F>) -> Option<StoreError> {
        let range = op.offset..op.offset + op.len;
        let overlaps = |faulty: &Range<u64>| overlap(faulty, &range);
        let is_change = matches!(
            op.kind,
            StoreOpKind::Write { .. } | StoreOpKind::Discard | StoreOpKind::Zero { .. }
        );
        let kind = self.plan.faults().into_iter().find_map(|fault| match fault {
            Fault::Reads(faulty) if op.kind == StoreOpKind::Read && overlaps(&faulty) => {
                Some(StoreErrorKind::Io)
            }
            Fault::Writes(faulty) if is_change && overlaps(&faulty) => Some(StoreErrorKind::Io),
            Fault::NoSpace if is_change => Some(StoreErrorKind::NoSpace),
            Fault::Away => Some(StoreErrorKind::Away),
            Fault::Flushes if op.kind == StoreOpKind::Flush => Some(StoreErrorKind::Io),
            Fault::Operation(index) if index == self.submitted => Some(StoreErrorKind::Io),
            Fault::Shrunk(len) if range.end > len => Some(StoreErrorKind::Short),
            Fault::NoDiscard
                if matches!(op.kind, StoreOpKind::Discard | StoreOpKind::Zero { .. }) =>
            {
                Some(StoreErrorKind::Unsupported)
            }
            _ => None,
        })?;
        let message = format!("{} {} bytes at {}: injected {kind:?}", op.kind, op.len, op.offset);
        Some(StoreError::new(kind, message))
    }
}

impl<F: Frames, S: Store<F>> Store<F> for FaultyStore<F, S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &F, op: StoreOp<F>) {
        let failure = self.failure(&op);
        self.submitted += 1;
        match failure {
            Some(error) => {
                let result = Err(error);
                self.failed.push(StoreCompletion { op, result, started_at: now, finished_at: now });
            }
            None => self.inner.submit(now, frames, op),
        }
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        done.append(&mut self.failed);
        self.inner.reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        self.failed.len() + self.inner.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        if self.failed.is_empty() { self.inner.next_event() } else { Some(0) }
    }
}
