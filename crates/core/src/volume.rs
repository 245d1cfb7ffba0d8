//! A volume: one store behind the cache, with its page size, policy, modes and share of the pool.

mod ahead;
mod config;
mod dirty;
mod dirty_limit;
mod lifecycle;
mod pace;
mod quota;
mod recorders;
mod settings;
mod tuning;
mod writer;

pub(crate) use quota::{AllVolumes, Quota};
pub use tuning::PolicySwitch;

pub use crate::units::LENGTH_MAX;
pub use crate::volume_options::VolumeOptions;
pub(crate) use writer::{Trigger, Writer};

use crate::clock::Nanos;
use crate::completion::{CompletionQueue, Ring, Wake};
use crate::counters::{Recorder, Totals};
use crate::curve::tracker::Tracker;
use crate::frames::{FrameId, Frames};
use crate::input::{InputLog, LogGuard};
use crate::mode::{WriteMode, effective};
use crate::page::Paging;
use crate::pinned::PinnedRanges;
use crate::queue::Queue;
use crate::readahead::{StreamDetector, WindowLimits};
use crate::store::{Geometry, StoreError};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, lock};
use crate::units::BLOCK_BYTES_U64;
use crate::write_order::LockedWriteOrder;
use ahead::AheadState;
use config::Config;
use dirty::DirtyState;
use lifecycle::Lifecycle;
use recorders::Recorders;
use std::ops::Range;
use tuning::Tuning;

/// Blocks that are mapped for change, and the queue of the handle that has mapped them.
pub(crate) type MappedRange<F> = (Range<u64>, Arc<CompletionQueue<F>>);

/// A number that no volume has. The next number would give the key of an empty frame.
pub(crate) const NO_VOLUME: u16 = u16::MAX - 1;

/// One volume.
///
/// Its parts have own state and tests. Values that requests change often are on their own cache
/// lines (`CachePadded`), also those inside the parts.
pub struct Volume<F: Frames> {
    pub(crate) id: u16,
    name: String,
    geometry: Geometry,
    /// Number of blocks; the last one may be shorter than a block.
    pub(crate) blocks: u64,
    pub(crate) config: Config,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) dirty: DirtyState,
    pub(crate) quota: Quota,
    pub(crate) ahead: AheadState,
    pub(crate) tuning: Tuning,
    pub(crate) recorders: Recorders,
    /// Bytes of frames that sessions have leased for reads, in addition to their own shares.
    pub(crate) leased_for_reads: Arc<AtomicU64>,
    last_request: CachePadded<AtomicU64>,
    pub(crate) queue: CachePadded<Mutex<Queue<F>>>,
    /// Number of ranges that are being discarded or zeroed; if it is 0, no lock is needed.
    pub(crate) exclusives: AtomicU64,
    pub(crate) writer: CachePadded<Mutex<Writer>>,
    pub(crate) write_order: LockedWriteOrder,
    pub(crate) pinned: PinnedRanges,
    /// Blocks that are mapped for change, with the queue of the handle of each range.
    pub(crate) maps: Mutex<Vec<MappedRange<F>>>,
    pub(crate) waker: Box<dyn Wake>,
    pub(crate) log: InputLog,
}

/// The handle of one thread on one volume. Only the request engine opens it; close it with
/// `Cache::close_handle`.
#[derive(Debug)]
pub(crate) struct VolumeHandle<F: Frames> {
    pub(crate) volume: Arc<Volume<F>>,
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) rings: Box<[Arc<Ring>]>,
    pub(crate) recorder: Arc<Recorder>,
    /// The sequential and strided streams of its client, except those of reads with bounds.
    pub(crate) detector: StreamDetector,
    /// Frames taken from the pool for the current request.
    pub(crate) spare: Vec<FrameId>,
    /// True while reads of pages of the current request wait in the queue for its other pages.
    pub(crate) is_gathering: bool,
}

/// The circumstances of a call: the volume, the recorder of the calling thread, and the time.
pub(crate) struct Call<'a, F: Frames> {
    pub(crate) volume: &'a Volume<F>,
    pub(crate) recorder: &'a Recorder,
    pub(crate) now: Nanos,
}

impl<F: Frames> std::fmt::Debug for Volume<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F: Frames> Volume<F> {
    pub(crate) fn new(
        id: u16,
        options: VolumeOptions,
        all: Arc<AllVolumes>,
        shards: usize,
        tracker: Option<Tracker>,
        waker: Box<dyn Wake>,
        log: InputLog,
    ) -> Self {
        let geometry = options.geometry;
        assert!(geometry.length > 0 && geometry.length <= LENGTH_MAX, "length of the store");
        Volume {
            id,
            geometry,
            blocks: geometry.length.div_ceil(BLOCK_BYTES_U64),
            config: Config::new(&options, all.frames.load(Ordering::Relaxed)),
            lifecycle: Lifecycle::new(if log.is_used() { NO_VOLUME } else { id }),
            dirty: DirtyState::new(all),
            quota: Quota::new(options.min_frames, options.max_frames, shards),
            ahead: AheadState::default(),
            tuning: Tuning::new(tracker),
            recorders: Recorders::default(),
            leased_for_reads: Arc::default(),
            last_request: CachePadded::default(),
            queue: CachePadded::new(Mutex::new(Queue::new())),
            exclusives: AtomicU64::new(0),
            writer: CachePadded::default(),
            write_order: LockedWriteOrder::default(),
            pinned: PinnedRanges::default(),
            maps: Mutex::new(Vec::new()),
            waker,
            log,
            name: options.name,
        }
    }

    /// Locks the log of the cache's inputs, if there is one.
    #[must_use]
    pub fn pause_inputs(&self) -> Option<LogGuard<'_>> {
        self.log.pause()
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number in a log of inputs. A number is reused after its volume was removed.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.id
    }

    /// Returns the properties of the store.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn page_blocks(&self) -> u32 {
        self.config.page_size.blocks()
    }

    /// Returns the division of the blocks into pages; it may be outdated.
    pub(crate) fn paging(&self) -> Paging {
        Paging { page_blocks: self.page_blocks(), blocks: self.blocks }
    }

    /// Returns the mode in effect for a write of `mode`: a volume that stops makes no block dirty.
    pub(crate) fn effective(&self, mode: WriteMode) -> WriteMode {
        effective(mode, self.lifecycle.is_stopping())
    }

    /// Returns true if pages of a stream are evicted first once the stream has passed them: the
    /// cache may choose the policy, and most references are to pages that are referenced only once.
    #[inline]
    pub(crate) fn bypasses_scans(&self) -> bool {
        self.tuning.is_scan_dominated() && self.config.policy_auto()
    }

    /// Returns the policy switches that the cache decided on, oldest first; only the latest ones if
    /// there were many.
    #[must_use]
    pub fn policy_switches(&self) -> Vec<PolicySwitch> {
        self.tuning.switches()
    }

    /// Returns the target number of frames, if the cache divides the pool automatically.
    #[must_use]
    pub fn target_frames(&self) -> Option<u32> {
        self.quota.target()
    }

    /// Returns the present limits of read-ahead in pages of this paging; none if read-ahead is off.
    pub(crate) fn ahead_limits(&self, paging: Paging) -> Option<WindowLimits> {
        let is_off = self.lifecycle.is_stopping() || self.is_frozen();
        if is_off { None } else { self.ahead.limits(&self.config, paging) }
    }

    /// Returns true if a part of `blocks` is being discarded or zeroed.
    pub(crate) fn is_exclusive(&self, blocks: &Range<u64>) -> bool {
        self.exclusives.load(Ordering::Acquire) > 0 && lock(&self.queue).is_exclusive(blocks)
    }

    /// Returns true if the volume was removed from its cache.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.lifecycle.is_removed()
    }

    /// Records the removal: no page of it is cached, and it has no claim to memory.
    pub(crate) fn note_removed(&self) {
        self.quota.clear();
        self.lifecycle.note_removed();
    }

    /// Returns true if the volume is removed and no frame is charged to it.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_removed() && self.quota.usage() == 0
    }

    /// Returns the internal error that has ended the volume, if any.
    #[inline]
    #[must_use]
    pub fn broken(&self) -> Option<&StoreError> {
        self.lifecycle.broken()
    }

    /// Records the time of a client request. It writes at most once a millisecond, to avoid
    /// contention of handles for the cache line.
    pub(crate) fn note_request(&self, now: Nanos) {
        if now > self.last_request.load(Ordering::Relaxed) + crate::clock::MILLISECOND {
            self.last_request.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn last_request(&self) -> Nanos {
        self.last_request.load(Ordering::Relaxed)
    }

    /// Returns the bytes of `block`: a whole block, except for the last one.
    pub(crate) fn bytes_of(&self, block: u64) -> u32 {
        let bytes_left = self.geometry.length - block * BLOCK_BYTES_U64;
        u32::try_from(bytes_left.min(BLOCK_BYTES_U64)).expect("at most a block")
    }

    /// Returns the bytes of `blocks`; those of the last block of the volume end with it.
    pub(crate) fn bytes_of_range(&self, blocks: &Range<u64>) -> Range<u64> {
        let end = (blocks.end * BLOCK_BYTES_U64).min(self.geometry.length);
        blocks.start * BLOCK_BYTES_U64..end
    }

    /// Returns all counters since the volume was added.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.recorders.totals()
    }
}
