//! A store with the timing of a model.
//!
//! Operations wait in order of arrival, and the model selects the next one. At the end of its
//! service time an operation is submitted to the inner store; it completes when the inner store has
//! completed it, so a real file behind a model can only add to the model's time.
//!
//! Invariants: every operation completes exactly once. A flush begins when no write that arrived
//! before it is waiting, in service or in the inner store; later operations may pass it.
//! Completions do not depend on the number of calls of `reap`, only on the submission times. Times
//! are nanoseconds, sizes are bytes.

use super::{Access, Model};
use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Totals of a modeled store since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations served, of every kind.
    pub operations: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Nanoseconds that operations waited before their service began, summed.
    pub queue_ns: u64,
    /// Nanoseconds of service, summed; divided by the elapsed time it is the average number of
    /// operations in service, which for a disk is its utilization.
    pub service_ns: u64,
}

/// A store `S` with the timing of the model `M`.
#[derive(Debug)]
pub struct ModeledStore<F: Frames, S, M> {
    inner: S,
    model: M,
    /// Queued operations in order of arrival; `accesses[i]` describes `waiting[i]`.
    waiting: Vec<QueuedOp<F>>,
    accesses: Vec<Access>,
    /// The accesses that are offered to the model: all but blocked flushes.
    eligible: Vec<Access>,
    active_ops: BinaryHeap<Reverse<ActiveOp<F>>>,
    /// Operations that the inner store has not completed.
    inner_ops: Vec<InnerOp>,
    done: Vec<StoreCompletion<F>>,
    inner_done: Vec<StoreCompletion<F>>,
    sequence_next: u64,
    /// The latest time up to which operations have been processed.
    clock: Nanos,
    totals: Totals,
}

#[derive(Debug)]
struct QueuedOp<F: Frames> {
    op: StoreOp<F>,
    sequence: u64,
}

#[derive(Debug)]
struct ActiveOp<F: Frames> {
    queued: QueuedOp<F>,
    arrived_at: Nanos,
    finish: Nanos,
}

impl<F: Frames> ActiveOp<F> {
    /// Returns what determines the order of the ends: of several at one time, the operation that
    /// arrived first is the first.
    fn key(&self) -> (Nanos, u64) {
        (self.finish, self.queued.sequence)
    }
}

impl<F: Frames> PartialEq for ActiveOp<F> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<F: Frames> Eq for ActiveOp<F> {}

impl<F: Frames> PartialOrd for ActiveOp<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F: Frames> Ord for ActiveOp<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[derive(Debug)]
struct InnerOp {
    tag: u64,
    sequence: u64,
    changes: bool,
    arrived_at: Nanos,
    finish: Nanos,
}

/// Returns true if a flush has to wait for an operation of this kind.
fn changes(kind: StoreOpKind) -> bool {
    matches!(kind, StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } | StoreOpKind::Discard)
}

impl<F: Frames, S: Store<F>, M: Model> ModeledStore<F, S, M> {
    /// Creates a store with the data of `inner` and the timing of `model`.
    pub fn new(inner: S, model: M) -> Self {
        assert!(model.max_concurrency() > 0, "a model that serves nothing never ends");
        ModeledStore {
            inner,
            model,
            waiting: Vec::new(),
            accesses: Vec::new(),
            eligible: Vec::new(),
            active_ops: BinaryHeap::new(),
            inner_ops: Vec::new(),
            done: Vec::new(),
            inner_done: Vec::new(),
            sequence_next: 0,
            clock: 0,
            totals: Totals::default(),
        }
    }

    /// Returns the store that holds the data.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the model, with its state.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Processes all events up to `now` in order of time, including the completions of the inner
    /// store if it announces them in advance.
    fn advance(&mut self, now: Nanos, frames: &F) {
        let mut inner_has_events = true;
        loop {
            let next = self.next_finish().filter(|finish| *finish <= now);
            let finish = next.unwrap_or(now);
            let inner = if inner_has_events { self.inner_event() } else { None };
            let inner = inner.map(|event| event.max(self.clock)).filter(|event| *event <= finish);
            if let Some(event) = inner {
                // A store that announces an event but completes nothing must not cause an endless
                // loop.
                inner_has_events = self.collect(event, frames);
                self.start(event);
            } else if next.is_some() {
                self.finish_first(frames);
                self.collect(finish, frames);
                self.start(finish);
            } else {
                break;
            }
        }
        self.collect(now, frames);
        self.start(now);
    }

    fn inner_event(&self) -> Option<Nanos> {
        if self.inner_ops.is_empty() { None } else { self.inner.next_event() }
    }

    /// Returns the time at which the first operation in service finishes.
    fn next_finish(&self) -> Option<Nanos> {
        self.active_ops.peek().map(|first| first.0.finish)
    }

    /// Ends the service of the first operation to finish and submits it to the inner store.
    fn finish_first(&mut self, frames: &F) {
        let Reverse(first) = self.active_ops.pop().expect("an operation in service");
        let ActiveOp { queued, arrived_at, finish } = first;
        self.inner_ops.push(InnerOp {
            tag: queued.op.tag,
            sequence: queued.sequence,
            changes: changes(queued.op.kind),
            arrived_at,
            finish,
        });
        self.inner.submit(finish, frames, queued.op);
    }

    /// Collects the completions of the inner store up to `now`. Returns true if there were any.
    fn collect(&mut self, now: Nanos, frames: &F) -> bool {
        self.clock = self.clock.max(now);
        if self.inner_ops.is_empty() {
            return false;
        }
        self.inner.reap(now, frames, &mut self.inner_done);
        let any = !self.inner_done.is_empty();
        for mut done in self.inner_done.drain(..) {
            let tag = done.op.tag;
            let index = self.inner_ops.iter().position(|inner_op| inner_op.tag == tag);
            let inner_op = self.inner_ops.swap_remove(index.expect("a tag that was submitted"));
            done.started_at = inner_op.arrived_at;
            done.finished_at = done.finished_at.max(inner_op.finish);
            self.done.push(done);
        }
        any
    }

    /// Starts as many operations as possible at `now`.
    fn start(&mut self, now: Nanos) {
        while self.active_ops.len() < self.model.max_concurrency() {
            let Some(index) = self.pick(now) else { return };
            let queued = self.waiting.remove(index);
            let access = self.accesses.remove(index);
            let finish = self.model.serve(now, &access);
            assert!(finish >= now, "service does not end before it begins");
            self.totals.operations += 1;
            self.totals.queue_ns += now - access.arrived_at;
            self.totals.service_ns += finish - now;
            match access.kind {
                StoreOpKind::Read => self.totals.read_bytes += access.len,
                StoreOpKind::Write { .. } => self.totals.write_bytes += access.len,
                _ => {}
            }
            let arrived_at = access.arrived_at;
            self.active_ops.push(Reverse(ActiveOp { queued, arrived_at, finish }));
        }
    }

    /// Returns the index of the waiting operation to serve next, if any may be served.
    fn pick(&mut self, now: Nanos) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let is_flush = |access: &Access| access.kind == StoreOpKind::Flush;
        if !self.accesses.iter().any(is_flush) {
            return Some(self.model.pick(now, &self.accesses));
        }
        let blocked: Vec<bool> = (0..self.waiting.len()).map(|at| self.is_blocked(at)).collect();
        self.eligible.clear();
        self.eligible.extend(
            self.accesses.iter().zip(&blocked).filter(|(_, blocked)| !**blocked).map(|(a, _)| *a),
        );
        if self.eligible.is_empty() {
            return None;
        }
        let picked = self.model.pick(now, &self.eligible);
        let mut allowed = blocked.iter().enumerate().filter(|(_, blocked)| !**blocked);
        Some(allowed.nth(picked).expect("the model picks one of those it was shown").0)
    }

    /// Returns true if the waiting operation at `index` is a flush that must wait for earlier
    /// writes.
    fn is_blocked(&self, index: usize) -> bool {
        if self.accesses[index].kind != StoreOpKind::Flush {
            return false;
        }
        let sequence = self.waiting[index].sequence;
        self.accesses[..index].iter().any(|access| changes(access.kind))
            || self.active_ops.iter().any(|Reverse(active_op)| {
                active_op.queued.sequence < sequence && changes(active_op.queued.op.kind)
            })
            || self
                .inner_ops
                .iter()
                .any(|inner_op| inner_op.sequence < sequence && inner_op.changes)
    }
}

impl<F: Frames, S: Store<F>, M: Model> Store<F> for ModeledStore<F, S, M> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &F, op: StoreOp<F>) {
        self.advance(now, frames);
        self.accesses.push(Access {
            kind: op.kind,
            offset: op.offset,
            len: op.len,
            arrived_at: now,
        });
        self.waiting.push(QueuedOp { op, sequence: self.sequence_next });
        self.sequence_next += 1;
        self.start(now);
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        self.advance(now, frames);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.active_ops.len() + self.inner_ops.len() + self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        let finished = self.done.iter().map(|done| done.finished_at);
        finished.chain(self.next_finish()).chain(self.inner_event()).min()
    }
}

#[cfg(test)]
mod tests;
