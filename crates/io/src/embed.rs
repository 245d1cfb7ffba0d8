//! Embedding API: a cache inside a program, with blocking calls.
//!
//! [`Caches::open`] puts a cache in front of a file or block device. A [`Handle`] is one thread's
//! access to it: it reads and writes by copy, maps cached data in place for reading ([`View`]) and
//! for changes ([`Change`]), flushes, and orders groups of writes. docs/SEMANTICS.md defines the
//! guarantees; docs/embedding.md is a tour with an example.
//!
//! The module consists of the parts of the server: an [`Engine`], a session for each handle, and a
//! thread for each volume. A call sleeps until the cache completes it; hits do not sleep.

mod change;
mod handle;
mod view;

pub use change::Change;
pub use handle::Handle;
pub use view::View;

use crate::engine::{ArenaVolume, Engine, EngineError, EngineOptions};
use crate::store::{EngineStore, OpenError, OpenOptions, open};
use larder_core::counters::{Gauge, Totals};
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::settings::SettingError;
use larder_core::store::{Geometry, StoreError};
use larder_core::volume::VolumeOptions;
use larder_core::write_order::{GroupId, OrderError};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// An operation that failed. Each message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// No memory or thread is available.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed, or the cache refused the request.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Two groups cannot be ordered.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The range is empty or not inside the volume.
    #[error("use bytes {bytes:?}: the volume has {length}")]
    Range {
        /// The requested range.
        bytes: Range<u64>,
        /// Bytes of the volume.
        length: u64,
    },
    /// A range that is mapped for overwriting does not consist of whole sectors.
    #[error("map bytes {bytes:?} to be overwritten: they are not whole sectors of 512 bytes")]
    Unaligned {
        /// The requested range.
        bytes: Range<u64>,
    },
    /// The volume is closed.
    #[error("open a handle: {0}")]
    Closed(#[from] SettingError),
    /// Stores that could not be flushed at the end; the state of their data is unknown.
    #[error("close the caches: {}", .0.join("; "))]
    Close(Vec<String>),
}

/// Caches in one pool of memory, and the threads that drive the stores behind them.
///
/// [`Caches::close`] writes everything; dropping them instead loses dirty data, as a kill would.
#[derive(Debug)]
pub struct Caches {
    engine: Arc<Engine>,
}

impl Caches {
    /// Creates a pool of `memory_bytes`, at least [`crate::engine::MEMORY_BYTES_MIN`], tables
    /// included.
    ///
    /// # Errors
    /// If the memory is too little, more than the machine's, or refused.
    pub fn new(memory_bytes: u64) -> Result<Self, EmbedError> {
        Caches::with_options(EngineOptions {
            memory_bytes,
            huge_pages: true,
            lock: false,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            policy_bytes: PolicyKind::ALL.iter().map(|p| p.bytes_per_page()).max().unwrap_or(0),
        })
    }

    /// Creates a pool with all options of the engine.
    ///
    /// # Errors
    /// As [`Caches::new`], and if the memory cannot be locked as requested.
    pub fn with_options(options: EngineOptions) -> Result<Self, EmbedError> {
        Ok(Caches { engine: Arc::new(Engine::new(options)?) })
    }

    /// Opens and locks a file or block device and puts a cache in front of it. `configure` may
    /// change the options, which start as [`VolumeOptions::new`] sets them.
    ///
    /// # Errors
    /// If it cannot be opened, is in use, or the kernel has no thread left.
    ///
    /// # Panics
    /// If options are out of range, as in [`larder_core::cache::Cache::add_volume`].
    pub fn open(
        &self,
        path: &Path,
        configure: impl FnOnce(&mut VolumeOptions),
    ) -> Result<CachedVolume, EmbedError> {
        let read_only = std::fs::metadata(path).is_ok_and(|found| found.permissions().readonly());
        let options = OpenOptions { read_only, plain: false };
        let opened = open(path, options, self.engine.clock())?;
        for note in &opened.notes {
            tracing::info!(%note, "how the store was opened");
        }
        self.add(opened.store, path.display().to_string(), configure)
    }

    /// Puts a cache in front of a store of any kind.
    ///
    /// # Errors
    /// If the kernel has no thread left.
    ///
    /// # Panics
    /// As [`Caches::open`].
    pub fn add(
        &self,
        store: Box<dyn EngineStore>,
        name: String,
        configure: impl FnOnce(&mut VolumeOptions),
    ) -> Result<CachedVolume, EmbedError> {
        let mut options = VolumeOptions::new(name, store.geometry());
        configure(&mut options);
        if options.geometry.read_only {
            options.write_mode = WriteMode::ReadOnly;
        }
        let volume = self.engine.add_volume(options, store)?;
        Ok(CachedVolume { engine: Arc::clone(&self.engine), volume })
    }

    /// Writes and flushes everything, however long a store takes, and ends the threads.
    ///
    /// # Errors
    /// If a store cannot flush. The store has then received everything, except data that must not
    /// be written before other data is stable.
    pub fn close(self) -> Result<(), EmbedError> {
        let drained = self.engine.drain(|_| {});
        self.engine.shut_down();
        drained.map_err(EmbedError::Close)
    }
}

/// A store with a cache in front of it. Clones refer to the same volume.
#[derive(Clone, Debug)]
pub struct CachedVolume {
    engine: Arc<Engine>,
    volume: Arc<ArenaVolume>,
}

impl CachedVolume {
    /// Returns the length, the granule, and the read-only flag.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    /// Opens a handle for one thread.
    ///
    /// # Errors
    /// If the volume is closed.
    pub fn handle(&self) -> Result<Handle, EmbedError> {
        let session = self.engine.blocking_session(&self.volume)?;
        Ok(Handle { volume: self.clone(), session })
    }

    /// Creates a group of writes. A group needs no explicit end.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.engine.cache().group(&self.volume)
    }

    /// Orders two groups: from now on the cache writes nothing of `after` to the store before
    /// everything that was written in `before` until now is stable there. The call does not wait;
    /// writeback keeps the order.
    ///
    /// # Errors
    /// If `before` could have to wait for `after`, or too many groups wait. Then nothing changes.
    pub fn order(&self, before: GroupId, after: GroupId) -> Result<(), EmbedError> {
        Ok(self.engine.cache().order(&self.volume, before, after)?)
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counters(&self) -> Totals {
        self.volume.totals()
    }

    /// Returns the number of cached bytes.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.engine.cache().gauge(&self.volume, Gauge::Resident)
    }

    /// Returns the number of bytes that the store does not have yet.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.volume.unclean_bytes()
    }
}
