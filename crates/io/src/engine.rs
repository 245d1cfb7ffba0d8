//! The engine: a cache in an arena, a thread for each volume that drives its store, and a stop that
//! loses no data.

mod driver;
mod live;
mod maintenance;
mod memory_return;
mod stop;

pub use crate::frames::{ArenaCache, ArenaSession, ArenaVolume};
pub use live::RemoveError;
pub use memory_return::{MemoryReturnOptions, MemoryReturnState, MemoryReturnThread};
pub use stop::StopProgress;

use crate::blocking::BlockingSession;
use crate::clock::MonotonicClock;
use crate::frames::ArenaFrames;
use crate::store::EngineStore;
use crate::waker::Waker;
use driver::Driver;
use larder_core::cache::{Cache, METADATA_BYTES_PER_FRAME, TRACKER_BYTES, shards_for};
use larder_core::clock::{Clock, Nanos};
use larder_core::completion::Wake;
use larder_core::input::InputSink;
use larder_core::settings::SettingError;
use larder_core::units::BLOCK_BYTES;
use larder_core::volume::VolumeOptions;
use larder_mem::{Arena, ArenaError, ArenaOptions};
use maintenance::MaintenanceThread;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Minimum memory: room for a few of the largest requests.
pub const MEMORY_BYTES_MIN: u64 = 8 << 20;

/// Options of a new engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Memory for frames and their metadata, in bytes.
    pub memory_bytes: u64,
    /// True if huge pages are requested.
    pub huge_pages: bool,
    /// True if the memory is locked.
    pub lock: bool,
    /// Number of threads that use the cache at the same time.
    pub threads: usize,
    /// Bytes of policy metadata for each frame.
    pub policy_bytes: usize,
}

/// A reason why an engine or a volume cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The memory is less than the minimum.
    #[error("use {} KiB of memory: the minimum is {} MiB", requested >> 10, MEMORY_BYTES_MIN >> 20)]
    TooLittle {
        /// Requested bytes.
        requested: u64,
    },
    /// The memory is hardly more than the tables that exist.
    #[error(
        "use {} MiB of memory: the tables of the largest cache so far need {} MiB at least; use \
         more, or restart the server",
        requested >> 20,
        least.div_ceil(1 << 20)
    )]
    TooLittleForTables {
        /// Requested bytes.
        requested: u64,
        /// Bytes of the tables, and of the fewest frames.
        least: u64,
    },
    /// The memory is more than the machine has.
    #[error("use {} MiB of memory: this machine has {} MiB", requested >> 20, available >> 20)]
    TooMuch {
        /// Requested bytes.
        requested: u64,
        /// Physical memory.
        available: u64,
    },
    /// The kernel refused the memory.
    #[error("get the cache's memory: {0}")]
    Arena(#[from] ArenaError),
    /// The kernel refused a thread or a descriptor.
    #[error("start a thread for a volume: {0}")]
    Thread(#[from] io::Error),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

/// A cache and the threads that drive the stores behind it.
pub struct Engine {
    cache: Arc<ArenaCache>,
    clock: Arc<dyn Clock>,
    drivers: Mutex<Vec<Driver>>,
    plan: Mutex<MemoryPlan>,
    _maintenance: MaintenanceThread,
}

/// The values that determine the number of frames.
#[derive(Clone, Copy, Debug)]
struct MemoryPlan {
    memory_bytes: u64,
    /// Limit in bytes while memory is given back.
    limit: u64,
    /// Bytes of policy metadata for each frame.
    policy_bytes: usize,
}

impl MemoryPlan {
    fn in_force(&self) -> u64 {
        self.memory_bytes.min(self.limit)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// Returns the number of frames that fit into `memory_bytes` with their metadata.
#[must_use]
pub fn frames_in(memory_bytes: u64, policy_bytes: usize) -> u32 {
    let each = BLOCK_BYTES + METADATA_BYTES_PER_FRAME + policy_bytes;
    let left = memory_bytes.saturating_sub(TRACKER_BYTES as u64);
    u32::try_from(left / each as u64).unwrap_or(u32::MAX)
}

/// Returns the physical memory of the machine, in bytes.
#[must_use]
pub fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram * u64::from(info.mem_unit)
}

/// Checks requested memory; returns that of the machine, in bytes.
fn check_memory(requested: u64) -> Result<u64, EngineError> {
    let available = machine_memory_bytes();
    if requested < MEMORY_BYTES_MIN {
        Err(EngineError::TooLittle { requested })
    } else if requested > available {
        Err(EngineError::TooMuch { requested, available })
    } else {
        Ok(available)
    }
}

impl Engine {
    /// Creates an engine without volumes.
    ///
    /// # Errors
    /// If the memory is too little, more than the machine's, or refused.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        Self::with_log(options, None)
    }

    /// Creates an engine without volumes, whose cache logs its inputs.
    ///
    /// # Errors
    /// As for [`Engine::new`].
    pub fn with_log(
        options: EngineOptions,
        log: Option<Box<dyn InputSink>>,
    ) -> Result<Self, EngineError> {
        let requested = options.memory_bytes;
        let available = check_memory(requested)?;
        let frames = frames_in(requested, options.policy_bytes);
        let EngineOptions { huge_pages, lock, policy_bytes, .. } = options;
        // Address space for all memory of the machine costs nothing, and lets the cache grow.
        let frames_max = u32::try_from(available / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let arena = Arena::growable(ArenaOptions { frames, huge_pages, lock }, frames_max)?;
        let shards = shards_for(frames, options.threads);
        let cache = Cache::with_memory(ArenaFrames::new(arena), frames, shards);
        let cache = Arc::new(match log {
            Some(log) => cache.with_log(log),
            None => cache,
        });
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let maintenance = MaintenanceThread::start(Arc::clone(&cache), Arc::clone(&clock))?;
        let plan =
            Mutex::new(MemoryPlan { memory_bytes: requested, limit: u64::MAX, policy_bytes });
        Ok(Engine {
            cache,
            clock,
            drivers: Mutex::new(Vec::new()),
            plan,
            _maintenance: maintenance,
        })
    }

    /// Returns the cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<ArenaCache> {
        &self.cache
    }

    /// Opens a session on a volume for a thread that waits for each reply.
    ///
    /// # Errors
    /// If the volume is closed or removed.
    pub fn blocking_session(
        &self,
        volume: &Arc<ArenaVolume>,
    ) -> Result<BlockingSession, SettingError> {
        BlockingSession::open(Arc::clone(&self.cache), self.clock(), volume)
    }

    /// Returns the clock for all times that are passed to the cache.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Returns the current time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Adds a volume on `store`, and the thread that drives it.
    ///
    /// # Errors
    /// If the options are refused, or the kernel has no thread or file descriptor left.
    pub fn add_volume(
        &self,
        options: VolumeOptions,
        store: Box<dyn EngineStore>,
    ) -> Result<Arc<ArenaVolume>, EngineError> {
        let waker = Waker::new()?;
        let notify: Box<dyn Wake> = Box::new(waker.clone());
        let volume = self.cache.try_add_volume(options, notify)?;
        let driver = Driver::start(
            Arc::clone(&self.cache),
            Arc::clone(&volume),
            Arc::clone(&self.clock),
            waker,
            store,
        )?;
        self.drivers().push(driver);
        Ok(volume)
    }

    /// Returns the driver threads. Each change of the list is one step, so a panic leaves it
    /// consistent.
    fn drivers(&self) -> MutexGuard<'_, Vec<Driver>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, MemoryPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
