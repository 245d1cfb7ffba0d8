//! A closed loop: a constant number of operations of one kind in flight on a store.

use larder_core::clock::{Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::store::{Store, StoreCompletion, StoreOp, StoreOpKind};
use larder_core::units::as_f64;

/// The operations of a closed loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedLoop {
    /// Their kind.
    pub(crate) kind: StoreOpKind,
    /// Length of each, bytes.
    pub(crate) len: u64,
    /// Operations in flight.
    pub(crate) depth: usize,
}

/// The end of a closed loop: after a number of operations, or at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoopEnd {
    /// All of this number are complete.
    Operations(u64),
    /// At this time; at least one is complete.
    At(Nanos),
}

/// An operation of a loop: kind, offset and length.
pub(crate) type LoopOp = (StoreOpKind, u64, u64);

/// Keeps up to `depth` operations in flight from time 0 on, and returns the operations per second.
/// `next` returns each operation by its number, from 0; the loop ends after the last one, or at
/// `until` if one is complete. `completed` is called for each.
pub(crate) fn run_loop(
    store: &mut dyn Store<NoFrames>,
    (depth, until): (usize, Nanos),
    mut next: impl FnMut(u64) -> Option<LoopOp>,
    mut completed: impl FnMut(&StoreCompletion<NoFrames>),
) -> f64 {
    let frames = NoFrames::new(0);
    let (mut now, mut sent, mut done, mut batch) = (0, 0, 0, Vec::new());
    loop {
        let is_over = now >= until && done > 0;
        while !is_over
            && store.in_flight() < depth
            && let Some((kind, offset, len)) = next(sent)
        {
            let segments = Vec::new();
            let op = StoreOp { tag: sent, kind, offset, len, segments, queued_at: now };
            store.submit(now, &frames, op);
            sent += 1;
        }
        if is_over || store.in_flight() == 0 {
            return as_f64(done) * as_f64(SECOND) / as_f64(now.max(1));
        }
        now = store.next_event().expect("operations are in flight").max(now);
        store.reap(now, &frames, &mut batch);
        done += batch.len() as u64;
        batch.drain(..).for_each(|completion| completed(&completion));
    }
}

impl ClosedLoop {
    /// Runs the loop from time 0 and returns the operations per second. `offset_of` returns the
    /// offset of each operation by its number, from 0; `completed` is called for each.
    pub(crate) fn run(
        &self,
        store: &mut dyn Store<NoFrames>,
        end: LoopEnd,
        mut offset_of: impl FnMut(u64) -> u64,
        completed: impl FnMut(&StoreCompletion<NoFrames>),
    ) -> f64 {
        let ClosedLoop { kind, len, depth } = *self;
        let (count, until) = match end {
            LoopEnd::Operations(count) => (count, Nanos::MAX),
            LoopEnd::At(time) => (u64::MAX, time),
        };
        let next = |number| (number < count).then(|| (kind, offset_of(number), len));
        run_loop(store, (depth, until), next, completed)
    }
}
