//! A cache in front of a store, as a store: the cache of a disk controller, or one of two caches
//! that lie above each other.

use super::{CacheSimulation, Clients, Request};
use crate::trace::Op;
use larder_core::clock::{Nanos, SECOND};
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use std::collections::HashMap;
use std::fmt;

/// Maximum operations in flight; more than a cache above it ever has.
const DEPTH: usize = 1024;
/// The clock of the cache starts one second after that of the store.
const START: Nanos = SECOND;

/// A store below the cache, on the clock of the cache. Its own clock is that of the store above, so
/// that both can have requests on one device.
struct StoreBelow {
    store: Box<dyn Store<NoFrames>>,
}

impl Store<NoFrames> for StoreBelow {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        self.store.submit(now - START, frames, op);
    }

    fn reap(&mut self, now: Nanos, frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        let before = done.len();
        self.store.reap(now - START, frames, done);
        for done in &mut done[before..] {
            done.started_at += START;
            done.finished_at += START;
        }
    }

    fn in_flight(&self) -> usize {
        self.store.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.store.next_event().map(|at| at.saturating_add(START))
    }
}

/// A store with a write-back cache in front of it.
pub struct CachedStore {
    geometry: Geometry,
    cache: CacheSimulation<StoreBelow>,
    /// True if the cache keeps its data without power: then a flush has nothing to do.
    has_battery: bool,
    /// Operations in flight, by number, and the times of their submission.
    in_flight: HashMap<u64, (StoreOp<NoFrames>, Nanos)>,
    next_number: u64,
    ended: Vec<(u64, Nanos)>,
    done: Vec<StoreCompletion<NoFrames>>,
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl CachedStore {
    /// Creates a cache of `bytes` bytes in front of a store.
    ///
    /// # Panics
    /// If the memory is less than 4 MiB.
    #[must_use]
    pub fn new(store: Box<dyn Store<NoFrames>>, bytes: u64, has_battery: bool) -> Self {
        assert!(bytes >= 4 << 20, "memory for the operations in flight");
        let geometry = store.geometry();
        let options = VolumeOptions::new("cached", geometry);
        let frames = u32::try_from(bytes / BLOCK_BYTES_U64).expect("memory of a controller");
        let clients = Clients { number: 1, depth: DEPTH };
        CachedStore {
            geometry,
            cache: CacheSimulation::new(frames, 1, [(options, StoreBelow { store })], clients),
            has_battery,
            in_flight: HashMap::new(),
            next_number: 0,
            ended: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Processes all events up to `now`.
    fn advance(&mut self, now: Nanos) {
        self.cache.run_until(now + START).expect("stores of models do not fail");
        self.cache.drain_ended(&mut self.ended);
        for (number, at) in self.ended.drain(..) {
            let op = self.in_flight.remove(&number);
            let (op, started_at) = op.expect("a request in flight");
            let finished_at = at.saturating_sub(START).max(started_at);
            self.done.push(StoreCompletion { op, result: Ok(()), started_at, finished_at });
        }
    }
}

impl Store<NoFrames> for CachedStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, _frames: &NoFrames, op: StoreOp<NoFrames>) {
        self.advance(now);
        let (kind, is_durable) = match op.kind {
            StoreOpKind::Read => (Op::Read, false),
            StoreOpKind::Write { fua } => (Op::Write, fua),
            StoreOpKind::Flush => (Op::Flush, false),
            StoreOpKind::Discard => (Op::Discard, false),
            StoreOpKind::Zero { .. } => (Op::Zero, false),
        };
        if op.kind == StoreOpKind::Flush && self.has_battery {
            let done = StoreCompletion { op, result: Ok(()), started_at: now, finished_at: now };
            return self.done.push(done);
        }
        let request = Request { volume: 0, op: kind, offset: op.offset, len: op.len };
        let mut request = request.of_engine();
        request.request.fua = is_durable && !self.has_battery;
        request.tag = Some(self.next_number);
        self.in_flight.insert(self.next_number, (op, now));
        self.next_number += 1;
        self.cache.begin_exactly(0, request).expect("stores of models do not fail");
        self.advance(now);
    }

    fn reap(&mut self, now: Nanos, _frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        self.advance(now);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        let done = self.done.iter().map(|done| done.finished_at).min();
        done.or_else(|| self.cache.next_event().map(|at| at.saturating_sub(START)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceRates, ModeledStore, NullStore, RatedDevice};
    use larder_core::clock::MILLISECOND;

    const GEOMETRY: Geometry = Geometry { length: 64 << 20, granule: 512, read_only: false };

    fn cached(has_battery: bool) -> CachedStore {
        let device = RatedDevice::new(DeviceRates::fixed(10 * MILLISECOND), 0);
        let store = ModeledStore::new(NullStore::new(GEOMETRY), device);
        CachedStore::new(Box::new(store), 8 << 20, has_battery)
    }

    /// Returns the time of an operation that is submitted at `now`.
    fn time_of(
        store: &mut impl Store<NoFrames>,
        now: Nanos,
        kind: StoreOpKind,
        offset: u64,
    ) -> Nanos {
        let frames = NoFrames::new(0);
        let len = if kind == StoreOpKind::Flush { 0 } else { 4096 };
        let op = StoreOp { tag: 3, kind, offset, len, segments: Vec::new(), queued_at: now };
        store.submit(now, &frames, op);
        let mut done = Vec::new();
        let mut at = now;
        while done.is_empty() {
            at = store.next_event().expect("an operation is in flight").max(at);
            store.reap(at, &frames, &mut done);
        }
        assert_eq!((done.len(), done[0].op.tag, done[0].started_at), (1, 3, now));
        assert_eq!(store.in_flight(), 0);
        done[0].finished_at - now
    }

    #[test]
    fn hits_and_writes_take_no_time_and_misses_that_of_the_store() {
        let mut store = cached(true);
        let write = StoreOpKind::Write { fua: false };
        assert_eq!(time_of(&mut store, 0, StoreOpKind::Read, 0), 10 * MILLISECOND);
        assert_eq!(time_of(&mut store, SECOND, StoreOpKind::Read, 0), 0);
        assert_eq!(time_of(&mut store, 2 * SECOND, write, 1 << 20), 0);
        assert_eq!(time_of(&mut store, 2 * SECOND, StoreOpKind::Read, 1 << 20), 0);
    }

    /// Two partitions of a disk, one of them cached: the disk serves the requests of both in order,
    /// as it does without a cache.
    #[test]
    fn a_cached_file_and_another_one_share_the_clock_of_their_device() {
        use crate::file_system::{FileMap, FileStore};
        let read_both = |is_cached: bool| {
            let device = RatedDevice::new(DeviceRates::fixed(10 * MILLISECOND), 0);
            let device = ModeledStore::new(NullStore::new(GEOMETRY), device);
            let parts = [0..32 << 20, 32 << 20..64 << 20].map(FileMap::contiguous);
            let mut stores: Vec<Box<dyn Store<NoFrames>>> = Vec::new();
            for (number, file) in FileStore::all(Box::new(device), &parts).into_iter().enumerate() {
                stores.push(if is_cached && number == 0 {
                    Box::new(CachedStore::new(Box::new(file), 8 << 20, true))
                } else {
                    Box::new(file)
                });
            }
            let mut ends = Vec::new();
            for round in 0..20_u64 {
                for store in &mut stores {
                    let begin = ends.last().copied().unwrap_or(SECOND);
                    ends.push(
                        begin + time_of(store, begin, StoreOpKind::Read, (round * round) << 12),
                    );
                }
            }
            ends
        };
        assert_eq!(read_both(true), read_both(false));
    }

    #[test]
    fn without_a_battery_a_flush_waits_for_the_store() {
        let write = StoreOpKind::Write { fua: false };
        for (has_battery, writes) in [(true, 0), (false, 1)] {
            let mut store = cached(has_battery);
            assert_eq!(time_of(&mut store, 0, write, 0), 0);
            let time = time_of(&mut store, MILLISECOND, StoreOpKind::Flush, 0);
            assert!(time >= writes * 10 * MILLISECOND && time <= writes * 25 * MILLISECOND);
            let time = time_of(&mut store, SECOND, StoreOpKind::Write { fua: true }, 4096);
            assert!(time >= writes * 10 * MILLISECOND && time <= writes * 25 * MILLISECOND);
        }
    }
}
