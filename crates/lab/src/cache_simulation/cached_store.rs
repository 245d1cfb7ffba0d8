//! A cache in front of a store, as a store: the cache of a disk controller, or one of two caches
//! that lie above each other.

use super::{CacheSimulation, Clients, Request};
use crate::trace::Op;
use larder_core::clock::{Nanos, SECOND};
use larder_core::counters::Totals;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use slab::Slab;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The cache, and the operations of all volumes.
struct SharedCache {
    simulation: CacheSimulation<StoreBelow>,
    /// Operations in flight: volume, operation, and time of its submission.
    in_flight: Slab<(usize, StoreOp<NoFrames>, Nanos)>,
    /// Number of these by volume.
    counts: Vec<usize>,
    ended: Vec<(u64, Nanos)>,
    /// Completions by volume that were not reaped.
    done: Vec<Vec<StoreCompletion<NoFrames>>>,
}

impl SharedCache {
    /// Processes all events up to `now`.
    fn advance(&mut self, now: Nanos) {
        self.simulation.run_until(now + START).expect("stores of models do not fail");
        self.simulation.drain_ended(&mut self.ended);
        for (number, at) in self.ended.drain(..) {
            let number = usize::try_from(number).expect("the number of an operation");
            let (volume, op, started_at) = self.in_flight.remove(number);
            self.counts[volume] -= 1;
            let finished_at = at.saturating_sub(START).max(started_at);
            self.done[volume].push(StoreCompletion { op, result: Ok(()), started_at, finished_at });
        }
    }
}

/// A store with a write-back cache in front of it. Stores of the same cache share its memory. A
/// clone is the same store.
#[derive(Clone)]
pub struct CachedStore {
    cache: Arc<Mutex<SharedCache>>,
    volume: usize,
    geometry: Geometry,
    /// True if the cache keeps its data without power: then a flush has nothing to do.
    has_battery: bool,
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore").field("volume", &self.volume).finish_non_exhaustive()
    }
}

impl CachedStore {
    /// Minimum memory in frames: 4 MiB.
    pub const FRAMES_MIN: u32 = 1024;

    /// Creates a cache of `bytes` bytes in front of a store, as the one of a controller.
    ///
    /// # Panics
    /// If the memory is less than 4 MiB.
    #[must_use]
    pub fn new(store: Box<dyn Store<NoFrames>>, bytes: u64, has_battery: bool) -> Self {
        let options = VolumeOptions::new("cached", store.geometry());
        let frames = u32::try_from(bytes / BLOCK_BYTES_U64).expect("memory of a controller");
        let mut stores = CachedStore::all([(options, store)], (frames, 1), has_battery);
        stores.remove(0)
    }

    /// Creates a cache of these frames and shards in front of the stores of its volumes.
    ///
    /// # Panics
    /// If the memory is less than 4 MiB.
    #[must_use]
    pub fn all(
        volumes: impl IntoIterator<Item = (VolumeOptions, Box<dyn Store<NoFrames>>)>,
        (frames, shards): (u32, usize),
        has_battery: bool,
    ) -> Vec<Self> {
        assert!(frames >= CachedStore::FRAMES_MIN, "memory for the operations in flight");
        let volumes: Vec<_> = volumes.into_iter().collect();
        let geometries: Vec<Geometry> = volumes.iter().map(|(_, store)| store.geometry()).collect();
        let below = |(options, store)| (options, StoreBelow { store });
        let clients = Clients { number: 1, depth: DEPTH };
        let cache = Arc::new(Mutex::new(SharedCache {
            simulation: CacheSimulation::new(
                frames,
                shards,
                volumes.into_iter().map(below),
                clients,
            ),
            in_flight: Slab::new(),
            counts: vec![0; geometries.len()],
            ended: Vec::new(),
            done: geometries.iter().map(|_| Vec::new()).collect(),
        }));
        let store = |(volume, geometry)| {
            let cache = Arc::clone(&cache);
            CachedStore { cache, volume, geometry, has_battery }
        };
        geometries.into_iter().enumerate().map(store).collect()
    }

    fn cache(&self) -> MutexGuard<'_, SharedCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of the cache for this store so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.cache().simulation.totals(self.volume)
    }

    /// Returns the blocks of the resident pages, in order.
    #[must_use]
    pub fn residents(&self) -> Vec<Range<u64>> {
        self.cache().simulation.residents(self.volume)
    }

    /// Returns the number of blocks that the store below does not have yet.
    #[must_use]
    pub fn unclean_blocks(&self) -> u64 {
        self.cache().simulation.unclean_blocks(self.volume)
    }
}

impl Store<NoFrames> for CachedStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, _frames: &NoFrames, op: StoreOp<NoFrames>) {
        let mut cache = self.cache();
        cache.advance(now);
        let (kind, is_durable) = match op.kind {
            StoreOpKind::Read => (Op::Read, false),
            StoreOpKind::Write { fua } => (Op::Write, fua),
            StoreOpKind::Flush => (Op::Flush, false),
            StoreOpKind::Discard => (Op::Discard, false),
            StoreOpKind::Zero { .. } => (Op::Zero, false),
        };
        if op.kind == StoreOpKind::Flush && self.has_battery {
            let done = StoreCompletion { op, result: Ok(()), started_at: now, finished_at: now };
            return cache.done[self.volume].push(done);
        }
        let request = Request { volume: self.volume, op: kind, offset: op.offset, len: op.len };
        let mut request = request.of_engine();
        request.request.fua = is_durable && !self.has_battery;
        request.tag = Some(cache.in_flight.insert((self.volume, op, now)) as u64);
        cache.counts[self.volume] += 1;
        cache.simulation.begin_exactly(0, request).expect("stores of models do not fail");
        cache.advance(now);
    }

    fn reap(&mut self, now: Nanos, _frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        let mut cache = self.cache();
        cache.advance(now);
        done.append(&mut cache.done[self.volume]);
    }

    fn in_flight(&self) -> usize {
        let cache = self.cache();
        cache.counts[self.volume] + cache.done[self.volume].len()
    }

    fn next_event(&self) -> Option<Nanos> {
        let cache = self.cache();
        let done = cache.done[self.volume].iter().map(|done| done.finished_at).min();
        done.or_else(|| cache.simulation.next_event().map(|at| at.saturating_sub(START)))
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
