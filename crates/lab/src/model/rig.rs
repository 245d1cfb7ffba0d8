//! Helpers for the tests of the models: stores that complete operations immediately or late,
//! operations without memory, and a closed loop that keeps a given number of operations in flight.
//!
//! Rates are operations per second of virtual time.

use super::{ClosedLoop, LoopEnd, Model, ModeledStore, NullStore};
use crate::random::Random;
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};

/// Returns a store that completes each operation at its submission.
pub(super) fn instant(length: u64) -> NullStore<NoFrames> {
    NullStore::new(Geometry { length, granule: 512, read_only: false })
}

/// A store that completes each operation `lag` nanoseconds after its submission.
#[derive(Debug)]
pub(super) struct DelayedStore {
    instant: NullStore<NoFrames>,
    lag: Nanos,
}

impl DelayedStore {
    pub(super) fn new(length: u64, lag: Nanos) -> Self {
        DelayedStore { instant: instant(length), lag }
    }
}

impl Store<NoFrames> for DelayedStore {
    fn geometry(&self) -> Geometry {
        self.instant.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        self.instant.submit(now + self.lag, frames, op);
    }

    fn reap(&mut self, now: Nanos, _frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        done.extend(self.instant.done.extract_if(.., |each| each.finished_at <= now));
    }

    fn in_flight(&self) -> usize {
        self.instant.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.instant.done.iter().map(|each| each.finished_at).min()
    }
}

pub(super) fn op(tag: u64, kind: StoreOpKind, offset: u64, len: u64) -> StoreOp<NoFrames> {
    StoreOp { tag, kind, offset, len, segments: Vec::new(), queued_at: 0 }
}

pub(super) fn read(tag: u64, offset: u64, len: u64) -> StoreOp<NoFrames> {
    op(tag, StoreOpKind::Read, offset, len)
}

pub(super) fn write(tag: u64, offset: u64, len: u64) -> StoreOp<NoFrames> {
    op(tag, StoreOpKind::Write { fua: false }, offset, len)
}

pub(super) fn flush(tag: u64) -> StoreOp<NoFrames> {
    op(tag, StoreOpKind::Flush, 0, 0)
}

/// Processes the store's events until no operation is in flight. Returns the time at the end.
pub(super) fn drain<S: Store<NoFrames>>(
    store: &mut S,
    frames: &NoFrames,
    done: &mut Vec<StoreCompletion<NoFrames>>,
) -> Nanos {
    let mut now = 0;
    while store.in_flight() > 0 {
        now = now.max(store.next_event().expect("what is in flight will be done"));
        store.reap(now, frames, done);
    }
    now
}

/// The measurements of a closed loop.
#[derive(Debug, PartialEq)]
pub(super) struct LoopResult {
    /// Operations per second.
    pub(super) rate: f64,
    /// Longest time of one operation, nanoseconds.
    pub(super) longest: Nanos,
    /// Tags in order of completion.
    pub(super) order: Vec<u64>,
}

/// Keeps `depth` operations of `len` bytes in flight until `count` are done. `offset_of` returns
/// the offset of the operation with a given tag.
pub(super) fn closed_loop<M: Model>(
    model: M,
    depth: u64,
    count: u64,
    kind: StoreOpKind,
    len: u64,
    offset_of: impl FnMut(u64) -> u64,
) -> LoopResult {
    let store = ModeledStore::new(instant(u64::MAX), model);
    closed_loop_of(store, depth, count, kind, len, offset_of)
}

/// Does the same with a store.
pub(super) fn closed_loop_of(
    mut store: impl Store<NoFrames>,
    depth: u64,
    count: u64,
    kind: StoreOpKind,
    len: u64,
    offset_of: impl FnMut(u64) -> u64,
) -> LoopResult {
    let depth = usize::try_from(depth).unwrap();
    let mut result = LoopResult { rate: 0.0, longest: 0, order: Vec::new() };
    let count = LoopEnd::Operations(count);
    result.rate = ClosedLoop { kind, len, depth }.run(&mut store, count, offset_of, |each| {
        result.longest = result.longest.max(each.finished_at - each.started_at);
        result.order.push(each.op.tag);
    });
    result
}

/// Returns random offsets of 4 KiB blocks within `length` bytes.
pub(super) fn scattered(length: u64, seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = Random::from_seed(seed);
    move |_| random.below(length / 4096) * 4096
}
