//! A store that takes the time that a model says.
//!
//! Operations wait in order of arrival, the model picks, and at the end of its service time an
//! operation is submitted to the inner store; it comes back when the inner store has done it, so a
//! real file behind a model may only add to the model's time.
//!
//! Invariants: every operation comes back exactly once. A flush begins when no write that arrived
//! before it is waiting, in service or inside the inner store; later operations may pass it. What
//! comes back does not depend on how often `reap` is called, only on when operations were
//! submitted. Times are nanoseconds, sizes are bytes.

use super::{Access, Model};
use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Geometry, Store, StoreDone, StoreOp, StoreOpKind};

/// What a modelled store has done since it was made.
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
    /// Nanoseconds of service, summed; divided by the time passed it is the average number of
    /// operations in service, which for a disk is how busy it is.
    pub service_ns: u64,
}

/// A store `S` with the timing of the model `M`.
#[derive(Debug)]
pub struct ModelledStore<F: Frames, S, M> {
    inner: S,
    model: M,
    /// In order of arrival; `accesses[i]` describes `waiting[i]`.
    waiting: Vec<Ticket<F>>,
    accesses: Vec<Access>,
    /// Blocked flushes are left out of what the model picks from; this is the list it sees.
    eligible: Vec<Access>,
    running: Vec<Running<F>>,
    /// Submitted to the inner store and not yet back.
    inside: Vec<Inside>,
    done: Vec<StoreDone<F>>,
    inner_done: Vec<StoreDone<F>>,
    sequence_next: u64,
    /// The latest time it has been brought up to.
    clock: Nanos,
    totals: Totals,
}

#[derive(Debug)]
struct Ticket<F: Frames> {
    op: StoreOp<F>,
    sequence: u64,
}

#[derive(Debug)]
struct Running<F: Frames> {
    ticket: Ticket<F>,
    arrived_at: Nanos,
    finish: Nanos,
}

#[derive(Debug)]
struct Inside {
    tag: u64,
    sequence: u64,
    changes: bool,
    arrived_at: Nanos,
    finish: Nanos,
}

/// Whether a flush has to wait for an operation of this kind.
fn changes(kind: StoreOpKind) -> bool {
    matches!(kind, StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } | StoreOpKind::Discard)
}

impl<F: Frames, S: Store<F>, M: Model> ModelledStore<F, S, M> {
    /// `inner`, as slow as `model` says.
    pub fn new(inner: S, model: M) -> Self {
        assert!(model.parallel() > 0, "a model that serves nothing never ends");
        ModelledStore {
            inner,
            model,
            waiting: Vec::new(),
            accesses: Vec::new(),
            eligible: Vec::new(),
            running: Vec::new(),
            inside: Vec::new(),
            done: Vec::new(),
            inner_done: Vec::new(),
            sequence_next: 0,
            clock: 0,
            totals: Totals::default(),
        }
    }

    /// The store that holds the data.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// What was done so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Brings everything up to `now`, one completion after the other in order of time, those of
    /// the inner store included where it knows them beforehand.
    fn advance(&mut self, now: Nanos, frames: &F) {
        let mut inner_tells = true;
        loop {
            let running = self.next_finished(now);
            let finish = running.map_or(now, |index| self.running[index].finish);
            let inner = if inner_tells { self.inner_event() } else { None };
            let inner = inner.map(|event| event.max(self.clock)).filter(|event| *event <= finish);
            if let Some(event) = inner {
                // A store that names a time and then has nothing would turn this loop for ever.
                inner_tells = self.collect(event, frames);
                self.start(event);
            } else if let Some(index) = running {
                self.finish(index, frames);
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
        if self.inside.is_empty() { None } else { self.inner.next_event() }
    }

    /// The running operation that finishes first, if it does so by `now`. Among equals the one that
    /// began first.
    fn next_finished(&self, now: Nanos) -> Option<usize> {
        let (index, first) = self
            .running
            .iter()
            .enumerate()
            .min_by_key(|(_, running)| (running.finish, running.ticket.sequence))?;
        (first.finish <= now).then_some(index)
    }

    /// The service of a running operation is over: the inner store executes it.
    fn finish(&mut self, index: usize, frames: &F) {
        let Running { ticket, arrived_at, finish } = self.running.swap_remove(index);
        self.inside.push(Inside {
            tag: ticket.op.tag,
            sequence: ticket.sequence,
            changes: changes(ticket.op.kind),
            arrived_at,
            finish,
        });
        self.inner.submit(finish, frames, ticket.op);
    }

    /// Takes what the inner store has done by `now`; whether there was anything.
    fn collect(&mut self, now: Nanos, frames: &F) -> bool {
        self.clock = self.clock.max(now);
        if self.inside.is_empty() {
            return false;
        }
        self.inner.reap(now, frames, &mut self.inner_done);
        let any = !self.inner_done.is_empty();
        for mut done in self.inner_done.drain(..) {
            let tag = done.op.tag;
            let place = self.inside.iter().position(|inside| inside.tag == tag);
            let inside = self.inside.swap_remove(place.expect("a tag that was submitted"));
            done.started_at = inside.arrived_at;
            done.finished_at = done.finished_at.max(inside.finish);
            self.done.push(done);
        }
        any
    }

    /// Starts what can be started at `now`.
    fn start(&mut self, now: Nanos) {
        while self.running.len() < self.model.parallel() {
            let Some(index) = self.pick(now) else { return };
            let ticket = self.waiting.remove(index);
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
            self.running.push(Running { ticket, arrived_at: access.arrived_at, finish });
        }
    }

    /// The index of the waiting operation that is served next, if any may be.
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
        let mut open = blocked.iter().enumerate().filter(|(_, blocked)| !**blocked);
        Some(open.nth(picked).expect("the model picks one of those it was shown").0)
    }

    /// Whether the waiting operation at `index` is a flush that earlier writes hold up.
    fn is_blocked(&self, index: usize) -> bool {
        if self.accesses[index].kind != StoreOpKind::Flush {
            return false;
        }
        let sequence = self.waiting[index].sequence;
        self.accesses[..index].iter().any(|access| changes(access.kind))
            || self.running.iter().any(|running| {
                running.ticket.sequence < sequence && changes(running.ticket.op.kind)
            })
            || self.inside.iter().any(|inside| inside.sequence < sequence && inside.changes)
    }
}

impl<F: Frames, S: Store<F>, M: Model> Store<F> for ModelledStore<F, S, M> {
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
        self.waiting.push(Ticket { op, sequence: self.sequence_next });
        self.sequence_next += 1;
        self.start(now);
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreDone<F>>) {
        self.advance(now, frames);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.running.len() + self.inside.len() + self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        let finished = self.done.iter().map(|done| done.finished_at);
        let running = self.running.iter().map(|running| running.finish);
        finished.chain(running).chain(self.inner_event()).min()
    }
}

#[cfg(test)]
mod tests;
