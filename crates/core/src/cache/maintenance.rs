//! Maintenance: the work that follows changes of memory and bounds, in small steps, while requests
//! are served.
//!
//! Growing puts frames into service. Shrinking takes free frames out of service, then those of the
//! coldest evictable pages. A dirty page is not dropped: its volume is requested to write it, and a
//! later step tries again. No request waits for maintenance.

use super::Cache;
use crate::clock::{MILLISECOND, Nanos};
use crate::completion::Wake;
use crate::frames::{FrameId, Frames};
use crate::input::Input;
use crate::settings::{SettingError, check_bounds};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::volume::Call;

/// Maximum number of frames of one call: 4 MiB, about a millisecond.
const FRAMES_PER_CALL: usize = 1024;
/// Maximum number of buckets that one call adds to a shard under its lock: about a tenth of that
/// time.
const BUCKETS_PER_CALL: usize = 512;
/// Delay after a step without progress.
const RETRY_DELAY: Nanos = 10 * MILLISECOND;

/// Memory of the cache for data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Frames in service now.
    pub usable: u32,
    /// Frames that should be in service.
    pub target: u32,
    /// The reason why growth ended early; the text can follow "cannot".
    pub refused: Option<String>,
}

/// The state of maintenance.
#[derive(Default)]
pub(super) struct Maintenance {
    /// Serializes the steps.
    steps: Mutex<()>,
    /// Wakes the thread that runs them.
    waker: Mutex<Option<Box<dyn Wake>>>,
    /// Bytes that the cache has returned to the system, as its caller reports them.
    given_back: AtomicU64,
}

impl Maintenance {
    pub(super) fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake();
        }
    }

    pub(super) fn given_back(&self) -> u64 {
        self.given_back.load(Ordering::Relaxed)
    }
}

impl<F: Frames> Cache<F> {
    /// Sets the waker of the thread that calls [`Cache::run_maintenance`].
    pub fn set_maintenance_waker(&self, waker: Box<dyn Wake>) {
        *lock(&self.maintenance.waker) = Some(waker);
    }

    /// Records the number of bytes that were returned to the system, for
    /// [`crate::counters::Gauge::GivenBack`].
    pub fn note_given_back(&self, bytes: u64) {
        self.maintenance.given_back.store(bytes, Ordering::Relaxed);
    }

    /// Sets the number of frames in service; [`Cache::run_maintenance`] performs the change.
    ///
    /// # Errors
    /// If addresses are reserved for fewer frames, or the number is less than the floors of the
    /// volumes and a page of each.
    pub fn set_memory(&self, frames: u32) -> Result<(), SettingError> {
        let _logged = self.log.add(|| Input::Memory { frames });
        let one_at_a_time = lock(&self.settings);
        let most = self.frames.count();
        if frames > most || frames == 0 {
            return Err(SettingError::Memory { frames, most });
        }
        let volumes = self.volumes();
        check_bounds(volumes.iter().map(|volume| volume.frame_bounds()), frames)?;
        self.pool.set_target(frames);
        self.update_capacities();
        drop(one_at_a_time);
        for volume in volumes {
            // Its dirty limit and its threshold have changed.
            volume.waker.wake();
        }
        self.maintenance.wake();
        Ok(())
    }

    /// Returns the number of frames in service, and the target.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let (usable, target) = (self.pool.usable(), self.pool.target());
        Memory { usable, target, refused: self.pool.refusal() }
    }

    /// Returns the highest number of frames that were ever in service. Tables of that size are
    /// allocated, and stay.
    #[must_use]
    pub fn frames_ever(&self) -> u32 {
        self.pool.usable_ever()
    }

    /// Performs one step of the pending work. Returns the time of the next call; `None` if nothing
    /// is left until the next change.
    pub fn run_maintenance(&self, now: Nanos) -> Option<Nanos> {
        let _logged = self.log.add(|| Input::Tend { now });
        let one_at_a_time = lock(&self.maintenance.steps);
        let (usable, target) = (self.pool.usable(), self.pool.target());
        let steps = [
            (usable < target).then(|| self.grow((target - usable) as usize)),
            (usable > target).then(|| self.shrink((usable - target) as usize, now)),
            self.enforce_ceilings(now),
            self.restore_floors(now),
            self.grow_tables(),
        ];
        drop(one_at_a_time);
        let made_progress = steps.iter().flatten().any(|&progress| progress);
        let has_work = steps.iter().any(Option::is_some);
        has_work.then_some(if made_progress { now } else { now + RETRY_DELAY })
    }

    /// Puts frames into service. Returns true: growing always makes progress.
    fn grow(&self, wanted: usize) -> bool {
        let ids = self.pool.unpark(wanted.min(FRAMES_PER_CALL), self.frames.count());
        let highest = ids.iter().max().expect("the target is below the end of the arena");
        self.table.make_descriptors(highest + 1);
        let mut write_pins: Vec<_> = ids.iter().map(|&id| self.write_pin_fresh(id)).collect();
        let committed = self.frames.commit(&mut write_pins);
        for write_pin in write_pins {
            self.frames.release_write_pin(write_pin);
        }
        match committed {
            Ok(()) => self.pool.admit(&ids),
            Err(reason) => {
                self.pool.park_uncommitted(ids);
                self.pool.refuse(reason);
            }
        }
        if self.pool.usable() == self.pool.target() && !self.pool.has_parked() {
            self.frames.all_committed(self.pool.usable_ever());
        }
        self.capacities_changed();
        true
    }

    fn capacities_changed(&self) {
        let one_at_a_time = lock(&self.settings);
        self.update_capacities();
        drop(one_at_a_time);
        self.unstall();
    }

    /// Takes frames out of service, free ones first. Returns true if there were any.
    fn shrink(&self, wanted: usize, now: Nanos) -> bool {
        let wanted = wanted.min(FRAMES_PER_CALL);
        let free = self.pool.take_free(&self.frames, wanted);
        let mut write_pins: Vec<F::WritePin> =
            free.into_iter().map(|id| self.write_pin_fresh(id)).collect();
        while write_pins.len() < wanted {
            let Some((volume, evicted)) = self.evict_any(now) else { break };
            let mut evicted = evicted;
            // The page has more frames than needed; they are free now.
            let kept = evicted.split_off(evicted.len().min(wanted - write_pins.len()));
            volume.quota.uncharge(evicted.len());
            self.free_write_pinned(&volume, kept);
            write_pins.extend(evicted);
        }
        // Adjacent frames are returned to the system together.
        write_pins.sort_unstable_by_key(|write_pin| self.frames.write_pinned(write_pin));
        self.frames.release(&mut write_pins);
        let release = |write_pin| {
            let id = self.frames.write_pinned(&write_pin);
            self.frames.release_write_pin(write_pin);
            id
        };
        let ids: Vec<FrameId> = write_pins.into_iter().map(release).collect();
        self.pool.park(&ids);
        !ids.is_empty()
    }

    /// Evicts from volumes above their maximum. Returns `None` if there is no such volume, and
    /// otherwise true if a page was evicted.
    fn enforce_ceilings(&self, now: Nanos) -> Option<bool> {
        let mut progress = None;
        for volume in self.volumes() {
            for _ in 0..FRAMES_PER_CALL {
                if volume.quota.usage() <= volume.quota.max() {
                    break;
                }
                let recorder = &*volume.recorders.maintenance;
                let call = Call { volume: &volume, recorder, now };
                let was_evicted = self.evict_coldest(&call, true);
                progress = Some(progress.unwrap_or(false) || was_evicted);
                if !was_evicted {
                    break;
                }
            }
        }
        progress
    }

    /// Evicts from volumes above their floors until the floors of the other volumes are free.
    /// Returns `None` if they are, and otherwise true if a page was evicted.
    fn restore_floors(&self, now: Nanos) -> Option<bool> {
        let floor_deficit = self.pool.floor_deficit();
        let mut freed = 0;
        while freed < floor_deficit.min(FRAMES_PER_CALL) {
            let Some((volume, evicted)) = self.evict_any(now) else { break };
            freed += evicted.len();
            self.free_write_pinned(&volume, evicted);
        }
        (floor_deficit > 0).then_some(freed > 0)
    }

    /// Adds buckets for the present number of frames. Returns `None` if there are enough.
    fn grow_tables(&self) -> Option<bool> {
        let frames = self.pool.usable() as usize / self.shards.len();
        let mut progress = None;
        for index in 0..self.shards.len() {
            if self.table.has_buckets(index, frames) {
                continue;
            }
            let _shard = self.shards.lock(index);
            progress = progress.or(Some(true));
            self.table.grow_buckets(index, frames, BUCKETS_PER_CALL);
        }
        progress
    }
}
