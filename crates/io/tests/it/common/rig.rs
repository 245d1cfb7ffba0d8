//! An engine with stores in memory that a test can read, and a wait for a condition.

use crate::common::TIMEOUT;
use larder_core::clock::Nanos;
use larder_core::store::{Geometry, MemoryStore, Store, StoreCompletion, StoreOp};
use larder_core::volume::VolumeOptions;
use larder_io::engine::{ArenaVolume, Engine, EngineOptions};
use larder_io::frames::ArenaFrames;
use larder_io::store::TimedStore;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A store in memory, shared with the test.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<MemoryStore<ArenaFrames>>>);

impl Memory {
    pub(crate) fn new(length: u64) -> Self {
        Memory(Arc::new(Mutex::new(MemoryStore::new(geometry(length)))))
    }

    /// Returns bytes that the store has.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.lock().expect("no holder panics").bytes().read(offset, &mut bytes);
        bytes
    }
}

impl Store<ArenaFrames> for Memory {
    fn geometry(&self) -> Geometry {
        self.0.lock().expect("no holder panics").geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, op: StoreOp<ArenaFrames>) {
        self.0.lock().expect("no holder panics").submit(now, frames, op);
    }

    fn reap(
        &mut self,
        now: Nanos,
        frames: &ArenaFrames,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) {
        self.0.lock().expect("no holder panics").reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        self.0.lock().expect("no holder panics").in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.lock().expect("no holder panics").next_event()
    }
}

pub(crate) fn geometry(length: u64) -> Geometry {
    Geometry { length, granule: 512, read_only: false }
}

pub(crate) fn engine(memory_bytes: u64) -> Arc<Engine> {
    let options = EngineOptions {
        memory_bytes,
        huge_pages: false,
        lock: false,
        threads: 4,
        policy_bytes: 28,
    };
    Arc::new(Engine::new(options).expect("memory for a test"))
}

/// Adds a volume of `length` bytes on `store`.
pub(crate) fn volume(
    engine: &Engine,
    name: &str,
    length: u64,
    store: impl Store<ArenaFrames> + 'static,
) -> Arc<ArenaVolume> {
    let options = VolumeOptions::new(name, geometry(length));
    let store = Box::new(TimedStore::new(store, engine.clock()));
    engine.add_volume(options, store).expect("a thread for a volume")
}

/// Ends the threads of the stores; then no frame may be pinned, and all counters must be
/// consistent.
pub(crate) fn end(engine: &Engine) {
    engine.shut_down();
    engine.cache().check(engine.now());
    assert_eq!(engine.cache().frames().arena().frames_held(), 0, "frames are held for ever");
}

/// Waits until `condition` holds.
pub(crate) fn eventually(condition_text: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "in vain: {condition_text}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
