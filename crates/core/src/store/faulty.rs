//! A store that fails on demand.

use super::{Geometry, Store, StoreDone, StoreError, StoreErrorKind, StoreOp, StoreOpKind};
use crate::clock::Nanos;
use crate::frames::Frames;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reads that touch the range fail.
    Reads(Range<u64>),
    /// Writes, discards and zeroings that touch the range fail.
    Writes(Range<u64>),
    /// Writes fail because no space is left.
    NoSpace,
    /// Flushes fail.
    Flushes,
    /// The operation of this index, counted from the first that was submitted, fails.
    Operation(u64),
    /// The store has become this short.
    Shrunk(u64),
    /// Nothing can be reached; nothing is lost.
    Away,
    /// Discards and zeroings are not supported.
    NoDiscard,
}

/// The faults that a store has now; shared with the test that sets them.
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

/// A store that fails as a plan says.
#[derive(Debug)]
pub struct FaultyStore<F: Frames, S> {
    inner: S,
    plan: FaultPlan,
    submitted: u64,
    failed: Vec<StoreDone<F>>,
}

impl<F: Frames, S: Store<F>> FaultyStore<F, S> {
    /// `inner`, failing as `plan` says.
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        FaultyStore { inner, plan, submitted: 0, failed: Vec::new() }
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn failure(&self, op: &StoreOp<F>) -> Option<StoreError> {
        let range = op.offset..op.offset + op.len;
        let meets = |bad: &Range<u64>| bad.start < range.end && range.start < bad.end;
        let is_change = matches!(
            op.kind,
            StoreOpKind::Write { .. } | StoreOpKind::Discard | StoreOpKind::Zero { .. }
        );
        let kind = self.plan.faults().into_iter().find_map(|fault| match fault {
            Fault::Reads(bad) if op.kind == StoreOpKind::Read && meets(&bad) => {
                Some(StoreErrorKind::Io)
            }
            Fault::Writes(bad) if is_change && meets(&bad) => Some(StoreErrorKind::Io),
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
                self.failed.push(StoreDone { op, result, started_at: now, finished_at: now });
            }
            None => self.inner.submit(now, frames, op),
        }
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreDone<F>>) {
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
