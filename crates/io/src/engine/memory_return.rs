//! Giving memory back while the system is short of it, and taking it again when that is over.
//!
//! A thread waits for pressure ([`Pressure`]) and asks the pure decision of core ([`GiveBack`])
//! once a second how much the cache shall keep. What the user set stays what is asked for
//! ([`Engine::memory_bytes`]); in force is the smaller of both. Floors of volumes hold, since the
//! cache refuses less. If pressure cannot be told any more, all is taken again, as without this.

use super::{ArenaCache, Engine, EngineError, MEMORY_BYTES_MIN};
use crate::fault::{self, Thread, report_failed_part};
use crate::pressure::Pressure;
use crate::waker::Waker;
use larder_core::cache::{METADATA_BYTES_PER_FRAME, TRACKER_BYTES};
use larder_core::clock::{Nanos, SECOND};
use larder_core::completion::Notify;
use larder_core::pressure::{GiveBack, Given};
use larder_core::units::BLOCK_BYTES_U64;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What one step gives back, per mille.
const STEP: u32 = 100;
/// How long it must have been calm before memory is taken again.
const CALM: Nanos = 30 * SECOND;
/// How often it is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How memory is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBackOptions {
    /// Bytes that are kept in any case; what volumes are promised is kept, too.
    pub floor_bytes: u64,
    /// What one step gives back, per mille of the memory: 1 to 1000.
    pub step: u32,
    /// How long it must have been calm before memory is taken again, in nanoseconds.
    pub calm: Nanos,
    /// Time between two looks, of which each with pressure is a step.
    pub interval: Duration,
}

impl GiveBackOptions {
    /// A tenth at a time, a second apart; and back after half a minute of calm.
    #[must_use]
    pub fn new(floor_bytes: u64) -> Self {
        GiveBackOptions { floor_bytes, step: STEP, calm: CALM, interval: INTERVAL }
    }
}

/// Where giving back stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GiveBackState {
    /// Bytes that the cache has while nobody is short of memory: what was asked for.
    pub full_bytes: u64,
    /// Bytes that it keeps now.
    pub kept_bytes: u64,
    /// Bytes that it keeps in any case.
    pub floor_bytes: u64,
    /// Looks at which memory was short.
    pub pressures: u64,
    /// When it was so last, on the engine's clock; none if never.
    pub pressed_at: Option<Nanos>,
}

#[derive(Debug)]
struct Shared {
    kept_bytes: AtomicU64,
    floor_bytes: AtomicU64,
    pressures: AtomicU64,
    /// [`Nanos::MAX`] for never.
    pressed_at: AtomicU64,
}

/// The running thread, which ends when this is dropped; then all is taken again.
#[derive(Debug)]
pub struct GivingBack {
    engine: Weak<Engine>,
    shared: Arc<Shared>,
    watched: Vec<String>,
    quit: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<Thread>,
}

impl GivingBack {
    /// Starts to give back as `pressure` tells.
    ///
    /// # Errors
    /// If the kernel has no thread or descriptor left.
    pub fn start(
        engine: &Arc<Engine>,
        options: GiveBackOptions,
        mut pressure: Box<dyn Pressure>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            kept_bytes: AtomicU64::new(u64::MAX),
            floor_bytes: AtomicU64::new(options.floor_bytes),
            pressures: AtomicU64::new(0),
            pressed_at: AtomicU64::new(Nanos::MAX),
        });
        let (waker, quit) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let watched = pressure.watched();
        let mut giver = Giver::new(engine, options, Arc::clone(&shared));
        let (engine_inside, waker_inside) = (Arc::downgrade(engine), waker.clone());
        let quit_inside = Arc::clone(&quit);
        let turns = move || {
            while !quit_inside.load(Ordering::Acquire) {
                let next = Instant::now() + options.interval;
                let pressed = pressure.wait(&waker_inside, options.interval);
                let Some(engine) = engine_inside.upgrade() else { break };
                fault::point("give-back", "memory");
                giver.turn(&engine, engine.now(), pressed?);
                drop(engine);
                // What is told at once is not asked again at once: a step takes its time.
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
        let thread = fault::spawn_fallible("give-back", cache, turns, failed)?;
        let engine = Arc::downgrade(engine);
        Ok(GivingBack { engine, shared, watched, quit, waker, thread: Some(thread) })
    }

    /// What is watched, for people.
    #[must_use]
    pub fn watched(&self) -> &[String] {
        &self.watched
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> GiveBackState {
        let full_bytes = self.engine.upgrade().map_or(0, |engine| engine.memory_bytes());
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let pressed_at = load(&self.shared.pressed_at);
        GiveBackState {
            full_bytes,
            kept_bytes: load(&self.shared.kept_bytes).min(full_bytes),
            floor_bytes: load(&self.shared.floor_bytes).min(full_bytes),
            pressures: load(&self.shared.pressures),
            pressed_at: (pressed_at < Nanos::MAX).then_some(pressed_at),
        }
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Release);
        self.waker.notify();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        take_all(&self.engine, &self.shared);
    }
}

/// Makes the cache take all of its memory again.
fn take_all(engine: &Weak<Engine>, shared: &Shared) {
    if let Some(engine) = engine.upgrade() {
        keep(&engine, shared, u64::MAX);
    }
}

/// Makes the cache keep at most `bytes`.
fn keep(engine: &Engine, shared: &Shared, bytes: u64) {
    match engine.keep_memory(bytes) {
        Ok(()) => shared.kept_bytes.store(bytes, Ordering::Relaxed),
        // A volume may have been promised more just now; the next look knows.
        Err(error) => tracing::info!(%error, "memory was not given back"),
    }
}

/// The decision and what it acts upon.
#[derive(Debug)]
struct Giver {
    options: GiveBackOptions,
    given: Given,
    /// What was asked for at the last turn, in blocks.
    full: u32,
    shared: Arc<Shared>,
}

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX)
}

impl Giver {
    fn new(engine: &Engine, options: GiveBackOptions, shared: Arc<Shared>) -> Self {
        let full = blocks(engine.memory_bytes());
        let settings = GiveBack { floor: 0, full, step: options.step, calm: options.calm };
        Giver { options, given: Given::none_returned(&settings, engine.now()), full, shared }
    }

    /// One look: has memory been short since the last one?
    fn turn(&mut self, engine: &Engine, now: Nanos, pressed: bool) {
        let full = blocks(engine.memory_bytes());
        let least = self.options.floor_bytes.max(engine.least_bytes());
        let floor_bytes = least.next_multiple_of(BLOCK_BYTES_U64);
        let GiveBackOptions { step, calm, .. } = self.options;
        let settings = GiveBack { floor: blocks(floor_bytes), full, step, calm };
        if full != self.full && self.given.target() >= self.full {
            // Nothing was given back, and what was asked for has changed.
            self.given = Given::none_returned(&settings, now);
        }
        self.full = full;
        let before = self.given.target();
        self.given = self.given.next(&settings, now, pressed);
        if pressed {
            self.shared.pressures.fetch_add(1, Ordering::Relaxed);
            self.shared.pressed_at.store(now, Ordering::Relaxed);
        }
        self.shared.floor_bytes.store(floor_bytes, Ordering::Relaxed);
        let target = self.given.target();
        if target != before {
            self.log_change(before, target);
        }
        let bytes = if target >= full { u64::MAX } else { u64::from(target) * BLOCK_BYTES_U64 };
        keep(engine, &self.shared, bytes);
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
    /// Keeps no more than so many bytes for now, whatever was asked for; [`u64::MAX`] ends that.
    ///
    /// # Errors
    /// If it is less than the least that makes sense or than volumes are promised.
    pub fn keep_memory(&self, bytes: u64) -> Result<(), EngineError> {
        let mut plan = self.plan();
        if bytes == plan.kept {
            return Ok(());
        }
        let in_force = plan.memory_bytes.min(bytes);
        if in_force < MEMORY_BYTES_MIN {
            return Err(EngineError::TooLittle { wanted: in_force });
        }
        self.cache.set_memory(self.frames_for(in_force, plan.policy_bytes))?;
        plan.kept = bytes;
        self.cache.note_given_back(plan.memory_bytes - in_force);
        Ok(())
    }

    /// The least memory that keeps what volumes are promised, in bytes, with all tables that there
    /// are; no less than [`MEMORY_BYTES_MIN`].
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        let policy_bytes = self.plan().policy_bytes;
        let tables = u64::from(self.cache.frames_ever())
            * (METADATA_BYTES_PER_FRAME + policy_bytes) as u64
            + TRACKER_BYTES as u64;
        (tables + promised_bytes(&self.cache)).max(MEMORY_BYTES_MIN)
    }
}

/// What the floors of all volumes come to, with a page of each.
fn promised_bytes(cache: &ArenaCache) -> u64 {
    let of = |volume: &super::ArenaVolume| u64::from(volume.bounds().0) * BLOCK_BYTES_U64;
    cache.volumes().iter().map(|volume| of(volume) + volume.page_bytes()).sum()
}
