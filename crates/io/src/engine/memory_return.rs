//! Return of memory while the system is short of it, and recovery afterwards.
//!
//! A thread waits for pressure ([`Pressure`]) and asks the pure decision of core ([`GiveBack`])
//! once a second how much memory the cache keeps. The memory that the user sets stays the requested
//! memory ([`Engine::memory_bytes`]); the smaller of both is in force. Floors of volumes hold,
//! since the cache refuses less. If pressure cannot be measured any more, the cache takes all
//! memory again.

use super::live::DATA_BYTES_MIN;
use super::{ArenaCache, Engine, EngineError, MEMORY_BYTES_MIN};
use crate::fault::{self, Thread, report_failed_part};
use crate::pressure::Pressure;
use crate::waker::Waker;
use larder_core::cache::TRACKER_BYTES;
use larder_core::clock::{Nanos, SECOND};
use larder_core::completion::Wake;
use larder_core::pressure::{GiveBack, PressureResponse};
use larder_core::units::BLOCK_BYTES_U64;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Memory that one step gives back, per mille.
const STEP: u32 = 100;
/// Time without pressure before memory is taken again.
const CALM: Nanos = 30 * SECOND;
const INTERVAL: Duration = Duration::from_secs(1);

/// Options of the return of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReturnOptions {
    /// Bytes that are always kept; the floors of volumes are kept, too.
    pub floor_bytes: u64,
    /// Memory that one step gives back, per mille of the requested memory: 1 to 1000.
    pub step: u32,
    /// Time without pressure before memory is taken again, in nanoseconds.
    pub calm: Nanos,
    /// Time between two checks; each check that finds pressure is a step.
    pub interval: Duration,
}

impl MemoryReturnOptions {
    /// Returns the defaults: a tenth per step, one second apart, and recovery after 30 seconds.
    #[must_use]
    pub fn new(floor_bytes: u64) -> Self {
        MemoryReturnOptions { floor_bytes, step: STEP, calm: CALM, interval: INTERVAL }
    }
}

/// State of the return of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReturnState {
    /// Bytes that the cache has without memory pressure: the requested memory.
    pub full_bytes: u64,
    /// Bytes that the cache keeps now.
    pub kept_bytes: u64,
    /// Bytes that the cache always keeps.
    pub floor_bytes: u64,
    /// Number of checks that found pressure.
    pub pressures: u64,
    /// Time of the last such check, on the engine's clock; none if there was none.
    pub pressed_at: Option<Nanos>,
}

/// State that the thread shares with its owner. Its bytes may be more than the requested memory.
type SharedState = Mutex<MemoryReturnState>;

/// The running thread, which ends when this is dropped; the cache then takes all memory again.
#[derive(Debug)]
pub struct MemoryReturnThread {
    engine: Weak<Engine>,
    shared: Arc<SharedState>,
    watched: Vec<String>,
    quit: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<Thread>,
}

impl MemoryReturnThread {
    /// Starts to give back memory when `pressure` reports that it is short.
    ///
    /// # Errors
    /// If the kernel has no thread or descriptor left.
    pub fn start(
        engine: &Arc<Engine>,
        options: MemoryReturnOptions,
        mut pressure: Box<dyn Pressure>,
    ) -> io::Result<Self> {
        let (kept_bytes, floor_bytes) = (u64::MAX, options.floor_bytes);
        let state = MemoryReturnState { kept_bytes, floor_bytes, ..MemoryReturnState::default() };
        let shared = Arc::new(Mutex::new(state));
        let (waker, quit) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let watched = pressure.watched();
        let mut returner = MemoryReturner::new(engine, options, Arc::clone(&shared));
        let (engine_inside, waker_inside) = (Arc::downgrade(engine), waker.clone());
        let quit_inside = Arc::clone(&quit);
        let work = move || {
            while !quit_inside.load(Ordering::Acquire) {
                let next = Instant::now() + options.interval;
                let under_pressure = pressure.wait(&waker_inside, options.interval);
                let Some(engine) = engine_inside.upgrade() else { break };
                fault::point("give-back", "memory");
                returner.step(&engine, engine.now(), under_pressure?);
                drop(engine);
                // The wait may return early; the next one begins after the interval, since a step
                // takes time.
                let left = next.saturating_duration_since(Instant::now());
                if let Err(error) = waker_inside.sleep(None, Some(left)) {
                    tracing::error!(%error, "the giver cannot wait");
                    std::thread::sleep(options.interval);
                }
            }
            Ok::<_, io::Error>(())
        };
        let (engine_at_end, shared_at_end) = (Arc::downgrade(engine), Arc::clone(&shared));
        let failed = move |error: &dyn fmt::Display| {
            report_failed_part("memory is not given back any more", error);
            take_all(&engine_at_end, &shared_at_end);
        };
        let cache = Some(engine.cache());
        let thread = fault::spawn_fallible("give-back", cache, work, failed)?;
        let engine = Arc::downgrade(engine);
        Ok(MemoryReturnThread { engine, shared, watched, quit, waker, thread: Some(thread) })
    }

    /// Returns descriptions of the pressure files that are watched.
    #[must_use]
    pub fn watched(&self) -> &[String] {
        &self.watched
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> MemoryReturnState {
        let full_bytes = self.engine.upgrade().map_or(0, |engine| engine.memory_bytes());
        let state = *lock(&self.shared);
        MemoryReturnState {
            full_bytes,
            kept_bytes: state.kept_bytes.min(full_bytes),
            floor_bytes: state.floor_bytes.min(full_bytes),
            ..state
        }
    }
}

impl Drop for MemoryReturnThread {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        take_all(&self.engine, &self.shared);
    }
}

/// Locks the state, which changes in single steps, so a panic leaves it consistent.
fn lock(shared: &SharedState) -> MutexGuard<'_, MemoryReturnState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_all(engine: &Weak<Engine>, shared: &SharedState) {
    if let Some(engine) = engine.upgrade() {
        limit_memory(&engine, shared, u64::MAX);
    }
}

fn limit_memory(engine: &Engine, shared: &SharedState, bytes: u64) {
    match engine.keep_memory(bytes) {
        Ok(()) => lock(shared).kept_bytes = bytes,
        // The floor of a volume may have been raised meanwhile; the next check uses the new one.
        Err(error) => tracing::info!(%error, "memory was not given back"),
    }
}

/// Applies the decision to the engine.
#[derive(Debug)]
struct MemoryReturner {
    options: MemoryReturnOptions,
    given: PressureResponse,
    /// The requested memory at the last step, in blocks.
    full: u32,
    shared: Arc<SharedState>,
}

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX)
}

impl MemoryReturner {
    fn new(engine: &Engine, options: MemoryReturnOptions, shared: Arc<SharedState>) -> Self {
        let full = blocks(engine.memory_bytes());
        let settings = GiveBack { floor: 0, full, step: options.step, calm: options.calm };
        MemoryReturner {
            options,
            given: PressureResponse::none_returned(&settings, engine.now()),
            full,
            shared,
        }
    }

    /// Makes one step. `under_pressure` is true if memory was short since the last one.
    fn step(&mut self, engine: &Engine, now: Nanos, under_pressure: bool) {
        let full = blocks(engine.memory_bytes());
        let least = self.options.floor_bytes.max(engine.least_bytes());
        let floor_bytes = least.next_multiple_of(BLOCK_BYTES_U64);
        let MemoryReturnOptions { step, calm, .. } = self.options;
        let settings = GiveBack { floor: blocks(floor_bytes), full, step, calm };
        if full != self.full && self.given.target() >= self.full {
            // Nothing was given back, and the requested memory has changed.
            self.given = PressureResponse::none_returned(&settings, now);
        }
        self.full = full;
        let before = self.given.target();
        self.given = self.given.next(&settings, now, under_pressure);
        {
            let mut state = lock(&self.shared);
            if under_pressure {
                state.pressures += 1;
                state.pressed_at = Some(now);
            }
            state.floor_bytes = floor_bytes;
        }
        let target = self.given.target();
        if target != before {
            self.log_change(before, target);
        }
        let bytes = if target >= full { u64::MAX } else { u64::from(target) * BLOCK_BYTES_U64 };
        limit_memory(engine, &self.shared, bytes);
    }

    fn log_change(&self, before: u32, target: u32) {
        let mib = |blocks: u32| (u64::from(blocks) * BLOCK_BYTES_U64) >> 20;
        if target < before && before >= self.full {
            let (kept, full) = (mib(target), mib(self.full));
            tracing::warn!("the system is short of memory: keeping {kept} of {full} MiB");
        } else if target >= self.full {
            tracing::warn!("all memory is taken again: {} MiB", mib(self.full));
        } else {
            tracing::info!("keeping {} of {} MiB", mib(target), mib(self.full));
        }
    }
}

impl Engine {
    /// Limits the memory to `bytes` for now, whatever was requested; [`u64::MAX`] ends that.
    fn keep_memory(&self, bytes: u64) -> Result<(), EngineError> {
        let mut plan = self.plan();
        if bytes == plan.limit {
            return Ok(());
        }
        let in_force = plan.memory_bytes.min(bytes);
        if in_force < MEMORY_BYTES_MIN {
            return Err(EngineError::TooLittle { requested: in_force });
        }
        self.set_frames(in_force, plan.policy_bytes)?;
        plan.limit = bytes;
        self.cache.note_given_back(plan.memory_bytes - in_force);
        Ok(())
    }

    /// Returns the least memory that keeps the floors of the volumes, in bytes, with all present
    /// tables, and a minimum for data; no less than [`MEMORY_BYTES_MIN`].
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        let tables = self.table_bytes(self.plan().policy_bytes) + TRACKER_BYTES as u64;
        (tables + promised_bytes(&self.cache).max(DATA_BYTES_MIN)).max(MEMORY_BYTES_MIN)
    }
}

/// Returns the sum of the floors of all volumes, with a page of each.
fn promised_bytes(cache: &ArenaCache) -> u64 {
    let floor_bytes = |volume: &super::ArenaVolume| u64::from(volume.bounds().0) * BLOCK_BYTES_U64;
    cache.volumes().iter().map(|volume| floor_bytes(volume) + volume.page_bytes()).sum()
}
