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
mod shards;
mod sharing;
mod stalls;
mod tune;
mod volume_lifecycle;
mod warm;
mod write;
mod writeback;

pub use crate::settings::ShareMode;
pub use at_risk::AtRisk;
pub use broken::UnwrittenData;
pub use exclusive::{BlockCut, cut};
pub use maintenance::Memory;
pub use read::HitRead;
pub use residency::PageCensus;
pub use tune::{TRACKER_BYTES, tracker_bytes};

use crate::clock::Nanos;
use crate::counters::{Gauge, Recorder};
use crate::frames::{FrameId, Frames};
use crate::input::{Input, InputLog, InputSink};
use crate::page::{BlockKey, Table};
use crate::pool::Pool;
use crate::shard::{Page, Shard};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, MutexGuard, lock, spin};
use crate::units::BLOCK_BYTES_U64;
use crate::volume::Volume;
use maintenance::Maintenance;
use shards::Shards;
use sharing::Sharing;
use stalls::Stalls;
use tune::TrackerMemory;

/// A cache for any number of volumes that share one pool of frames.
pub struct Cache<F: Frames> {
    frames: F,
    table: Table,
    shards: Shards<F>,
    pool: Pool<F>,
    stalls: Stalls,
    tracker_memory: TrackerMemory,
    sharing: Sharing,
    /// Serializes changes of settings.
    settings: Mutex<()>,
    maintenance: Maintenance,
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
    + tune::TRACKER_BYTES_PER_FRAME;

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
            shards: Shards::new(shards),
            pool: Pool::new(usable),
            stalls: Stalls::default(),
            tracker_memory: TrackerMemory::new(usable),
            sharing: Sharing::new(),
            settings: Mutex::new(()),
            maintenance: Maintenance::default(),
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
            Gauge::GivenBack => return Some(self.maintenance.given_back()),
            _ => return None,
        };
        Some(frames * BLOCK_BYTES_U64)
    }

    /// Returns the number of frames that all volumes share: those in service, except those about to
    /// leave it.
    #[must_use]
    pub fn frame_count(&self) -> u32 {
        self.pool.size()
    }

    /// Locks the shard of a block.
    fn shard_of(&self, volume: &Volume<F>, block: u64) -> MutexGuard<'_, Shard<F>> {
        self.shards.lock(self.table.shard(BlockKey::new(volume.id, block)))
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

    /// Asserts every invariant that holds while no call is in progress; for tests.
    pub fn check(&self, now: Nanos) {
        let volumes = self.volumes();
        let (free, limbo) = self.pool.settle(&self.frames);
        let (mut used, mut unclean) = (0, 0);
        for volume in &volumes {
            let (mut resident, mut dirty, mut writing) = (0, 0, 0);
            for mut shard in self.shards.each() {
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
