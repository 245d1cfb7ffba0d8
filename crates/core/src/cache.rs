//! The cache: volumes, shards, page table and frame pool.
//!
//! Its callers have two roles. Sessions read and write; a hit takes no lock. The driver of a
//! volume's store calls [`Cache::poll`] for operations to submit to the store, and
//! [`Cache::complete`] with completed ones. Lock order: a volume's writer, then a shard (never
//! two), then a volume's queue, the pool, or a completion queue.

mod ahead;
mod at_risk;
mod broken;
mod complete;
mod evict;
mod exclusive;
mod fill;
mod freeze;
mod join;
mod maintenance;
mod map;
mod order;
mod pin;
mod poll;
mod read;
mod regroup;
mod residency;
mod settings;
mod sharing;
mod tune;
mod volume_lifecycle;
mod warm;
mod write;
mod writeback;

pub use crate::settings::ShareMode;
pub use at_risk::AtRisk;
pub use broken::Remains;
pub use exclusive::{BlockCut, cut};
pub use maintenance::Memory;
pub use read::HitRead;
pub use residency::PageCensus;

use crate::clock::Nanos;
use crate::completion::Notify;
use crate::counters::{Gauge, Recorder};
use crate::frames::{FrameId, Frames};
use crate::input::{Input, InputLog, InputSink};
use crate::page::Table;
use crate::pool::Pool;
use crate::shard::{Page, Shard};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, lock, spin};
use crate::units::BLOCK_BYTES_U64;
use crate::volume::Volume;
use crate::volume::VolumeHandle;
use sharing::Sharing;

/// A cache for any number of volumes that share one pool of frames.
pub struct Cache<F: Frames> {
    frames: F,
    table: Table,
    shards: Box<[Mutex<Shard<F>>]>,
    pool: Pool<F>,
    /// Number of stalls since handles were last woken; 0 if no handle waits.
    stalled: AtomicUsize,
    /// True if a search for frames has found pinned ones since a release last woke handles.
    has_found_pins: AtomicBool,
    /// Shards whose pages or policy are being rebuilt, which takes long.
    rebuilding: Box<[AtomicBool]>,
    /// Bytes that trackers of volumes may still allocate.
    tracker_bytes: Mutex<usize>,
    sharing: Sharing,
    /// Bytes that the cache has returned to the system, as its caller reports them.
    given_back: AtomicU64,
    /// Serializes changes of settings.
    settings: Mutex<()>,
    /// Serializes maintenance.
    maintenance: Mutex<()>,
    /// Wakes the thread that runs maintenance.
    maintenance_waker: Mutex<Option<Box<dyn Notify>>>,
    /// Its lock is the first of the lock order.
    pub(crate) log: InputLog,
}

impl<F: Frames> std::fmt::Debug for Cache<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("frames", &self.frames).finish_non_exhaustive()
    }
}

/// Bytes of tables for each frame with pages of one block: the memory limit must cover them in
/// addition to the frame. The memory of the policy is extra.
pub const METADATA_BYTES_PER_FRAME: usize = Table::BYTES_PER_FRAME
    + size_of::<Option<Page>>()
    // The list of free frames and the list of free slots.
    + 2 * size_of::<FrameId>()
    // The latch of the frame, and ten bytes for unused parts of chunks and for dirty batches.
    + 14
    + TRACKER_BYTES_PER_FRAME;

/// Bytes for each frame that trackers of volumes may allocate, in addition to [`TRACKER_BYTES`].
const TRACKER_BYTES_PER_FRAME: usize = 16;

/// Bytes that trackers of volumes may allocate in a cache of any size: the memory limit must cover
/// them once.
pub const TRACKER_BYTES: usize = 768 << 10;

/// Returns the number of shards for a cache of `frames` frames used by `threads` threads.
#[must_use]
pub fn shards_for(frames: u32, threads: usize) -> usize {
    // A shard below 16 MiB would have too few regions for an even distribution.
    let shards_max = (frames as usize / 4096).max(1);
    threads.next_power_of_two().min(16).min(1 << shards_max.ilog2())
}

impl<F: Frames> Cache<F> {
    /// Returns a cache over all of `frames`, in `shards` parts (a power of two).
    #[must_use]
    pub fn new(frames: F, shards: usize) -> Self {
        let usable = frames.count();
        Cache::with_memory(frames, usable, shards)
    }

    /// Returns a cache over the first `usable` of `frames`, which can grow to all of them, in
    /// `shards` parts (a power of two).
    ///
    /// # Panics
    /// If there are fewer frames than `usable`.
    #[must_use]
    pub fn with_memory(frames: F, usable: u32, shards: usize) -> Self {
        Cache {
            table: Table::new(usable, frames.count(), shards),
            shards: (0..shards).map(|_| Mutex::new(Shard::new())).collect(),
            pool: Pool::new(usable),
            stalled: AtomicUsize::new(0),
            has_found_pins: AtomicBool::new(false),
            rebuilding: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            tracker_bytes: Mutex::new(TRACKER_BYTES + usable as usize * TRACKER_BYTES_PER_FRAME),
            sharing: Sharing::new(),
            given_back: AtomicU64::new(0),
            settings: Mutex::new(()),
            maintenance: Mutex::new(()),
            maintenance_waker: Mutex::new(None),
            log: InputLog::default(),
            frames,
        }
    }

    /// Logs all inputs of a new cache.
    ///
    /// # Panics
    /// If the cache has a volume.
    #[must_use]
    pub fn with_log(mut self, mut log: Box<dyn InputSink>) -> Self {
        assert!(self.volumes().is_empty(), "a log has all inputs");
        log.add(Input::Cache {
            frames: self.pool.usable(),
            frames_max: self.frames.count(),
            shards: self.shards.len(),
        });
        self.log = InputLog::new(log);
        self
    }

    /// Returns the frames.
    #[must_use]
    pub fn frames(&self) -> &F {
        &self.frames
    }

    /// Returns a recorder for the driver of the store of `volume`.
    #[must_use]
    pub fn recorder(&self, volume: &Volume<F>) -> Arc<Recorder> {
        volume.recorders.add()
    }

    /// Returns the value of a gauge for a volume, in the unit of the catalogue.
    #[must_use]
    pub fn gauge(&self, volume: &Volume<F>, gauge: Gauge) -> u64 {
        if let Some(value) = self.pool_gauge(gauge) {
            return value;
        }
        let blocks = match gauge {
            Gauge::Resident => u64::from(volume.quota.usage()),
            Gauge::Dirty => volume.dirty.dirty(),
            Gauge::Writing => volume.dirty.writing(),
            Gauge::InFlight => return lock(&volume.queue).in_flight as u64,
            Gauge::Pinned => volume.pinned.blocks(),
            Gauge::Target => volume.target_frames().map_or(0, u64::from),
            Gauge::Held => volume.write_order.with(|groups| groups.held_blocks()),
            Gauge::Warming => lock(&volume.queue).warm.blocks(),
            Gauge::Failing => return volume.dirty.failing(),
            Gauge::Memory
            | Gauge::MemoryTarget
            | Gauge::Free
            | Gauge::Metadata
            | Gauge::GivenBack => unreachable!("these are of the pool"),
        };
        blocks * BLOCK_BYTES_U64
    }

    /// Returns the value of a gauge of the pool, in the unit of the catalogue; `None` for a gauge
    /// of volumes.
    #[must_use]
    pub fn pool_gauge(&self, gauge: Gauge) -> Option<u64> {
        let frames = match gauge {
            Gauge::Memory => u64::from(self.pool.usable()),
            Gauge::MemoryTarget => u64::from(self.pool.target()),
            Gauge::Free => self.pool.free() as u64,
            Gauge::Metadata => {
                let tables = u64::from(self.pool.usable_ever()) * METADATA_BYTES_PER_FRAME as u64;
                return Some(tables + TRACKER_BYTES as u64);
            }
            Gauge::GivenBack => return Some(self.given_back.load(Ordering::Relaxed)),
            _ => return None,
        };
        Some(frames * BLOCK_BYTES_U64)
    }

    /// Records the number of bytes that were returned to the system, for [`Gauge::GivenBack`].
    pub fn note_given_back(&self, bytes: u64) {
        self.given_back.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of frames that all volumes share: those in service, except those about to
    /// leave it.
    #[must_use]
    pub fn frame_count(&self) -> u32 {
        self.pool.size()
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard<F>> {
        lock(&self.shards[index])
    }

    /// Pins a published frame under its shard's lock. Only a writer of a few kilobytes can delay
    /// this.
    fn pin_published(&self, frame: FrameId) -> F::Pin {
        loop {
            if let Some(pin) = self.frames.try_pin(frame) {
                return pin;
            }
            spin();
        }
    }

    /// Write-pins a frame fresh from the pool. Only a reader that follows an outdated chain can
    /// delay this.
    fn write_pin_fresh(&self, frame: FrameId) -> F::WritePin {
        loop {
            if let Some(write_pin) = self.frames.try_write_pin(frame) {
                return write_pin;
            }
            spin();
        }
    }

    /// Returns write-pinned frames to the pool.
    fn free_write_pinned(
        &self,
        volume: &Volume<F>,
        write_pins: impl IntoIterator<Item = F::WritePin>,
    ) {
        let frames = write_pins.into_iter().map(|write_pin| {
            let frame = self.frames.write_pinned(&write_pin);
            self.frames.release_write_pin(write_pin);
            frame
        });
        self.pool.give_back(volume, frames.collect::<Vec<_>>());
    }

    /// Records that an operation of a handle is stalled, and wakes the driver of the store, which
    /// can free frames.
    fn stall(&self, handle: &VolumeHandle<F>) {
        lock(&handle.volume.queue).stall(&handle.completions);
        self.stalled.fetch_add(1, Ordering::AcqRel);
        handle.recorder.add(crate::counters::Counter::Stalls, 1);
        handle.volume.notify.notify();
    }

    /// Records that a frame cannot be evicted because it is pinned.
    fn note_pinned(&self) {
        if !self.has_found_pins.load(Ordering::Relaxed) {
            self.has_found_pins.store(true, Ordering::Relaxed);
        }
    }

    /// Releases the pins of a read, and wakes handles that may wait for these frames. Every read
    /// that was returned to a caller ends with this call.
    pub fn release(&self, read: &mut crate::read_write::ReadRequest<F>) {
        read.release(&self.frames);
        self.pins_released();
    }

    /// Wakes the stalled handles after a release of pins, if pinned frames made a search for frames
    /// fail.
    pub(crate) fn pins_released(&self) {
        if self.stalled.load(Ordering::Acquire) > 0
            && self.has_found_pins.swap(false, Ordering::AcqRel)
        {
            self.unstall();
        }
    }

    /// Wakes all stalled handles.
    fn unstall(&self) {
        if self.stalled.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        for volume in self.volumes() {
            let stalled = std::mem::take(&mut lock(&volume.queue).stalled);
            for completions in stalled {
                completions.deliver(&self.frames, crate::completion::Completion::Unstalled);
            }
        }
    }

    /// Asserts every invariant that holds while no call is in progress; for tests.
    pub fn check(&self, now: Nanos) {
        let volumes = self.volumes();
        let (free, limbo) = self.pool.settle(&self.frames);
        let (mut used, mut unclean) = (0, 0);
        for volume in &volumes {
            let (mut resident, mut dirty, mut writing) = (0, 0, 0);
            for index in 0..self.shards.len() {
                let mut shard = self.shard(index);
                shard.drain(now);
                let counts = shard.instance(volume.id).check(&self.table);
                resident += counts.0;
                dirty += counts.1;
                writing += counts.2;
            }
            assert_eq!(dirty, volume.dirty.dirty(), "dirty blocks");
            volume.write_order.with(|groups| groups.check(|block| self.is_unclean(volume, block)));
            assert_eq!(writing, volume.dirty.writing(), "writing blocks");
            let usage = u64::from(volume.quota.usage());
            assert!(resident <= usage, "{resident} resident, {usage} charged");
            used += usage;
            unclean += dirty + writing;
            lock(&volume.queue).check();
            if lock(&volume.queue).is_idle() {
                assert_eq!(writing, 0, "writing, but nothing is in flight");
                let held = limbo.iter().filter(|&&owner| owner == volume.id).count() as u64;
                let maps = lock(&volume.maps);
                let mapped: u64 = maps.iter().map(|(blocks, _)| blocks.end - blocks.start).sum();
                let least = resident + held;
                assert!(
                    (least..=least + mapped).contains(&usage),
                    "{usage} frames charged, {resident} resident, {held} in limbo, {mapped} mapped"
                );
            }
        }
        assert_eq!(unclean, self.pool.all.unclean.load(Ordering::Acquire), "unclean blocks");
        self.pool.check();
        let removed = limbo.iter().filter(|id| volumes.iter().all(|volume| volume.id != **id));
        let accounted = used + free as u64 + removed.count() as u64;
        assert_eq!(
            accounted,
            u64::from(self.pool.usable()),
            "frames used and free, {limbo:?} in limbo"
        );
    }
}
