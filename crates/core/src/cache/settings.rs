//! Changes of a volume while it serves: its bounds, its policy, and its clean pages. (Modes and
//! tunables are plain values; they are set at the volume.)
//!
//! The lock `settings` serializes the changes; it is taken before other locks. Each change is
//! checked as for a new volume, and either refused or performed; dirty data is never dropped.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::input::{Input, Setting};
use crate::policy::{PolicyKind, Slot};
use crate::settings::{FrameBounds, SettingError, check_bounds, reserves};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::volume::{Call, PolicySwitch, Volume};

impl<F: Frames> Cache<F> {
    /// Sets the minimum number of frames, which other volumes cannot take, and the maximum. If the
    /// volume has more now, or other volumes have frames of its minimum, [`Cache::run_maintenance`]
    /// evicts them in the background.
    ///
    /// # Errors
    /// If the floors of all volumes would not fit, or the ceiling is below the floor or a page.
    pub fn set_bounds(
        &self,
        volume: &Volume<F>,
        min_frames: u32,
        max_frames: u32,
    ) -> Result<(), SettingError> {
        let _logged = volume.log_setting(|| Setting::Bounds { min_frames, max_frames });
        let _one_at_a_time = lock(&self.settings);
        let bounds = FrameBounds { min: min_frames, max: max_frames, ..volume.frame_bounds() };
        self.check_with(volume, bounds, self.pool.target())?;
        volume.quota.set_bounds(min_frames, max_frames);
        self.update_capacities();
        // Its dirty limit and its threshold have changed.
        volume.waker.wake();
        self.unstall();
        self.maintenance.wake();
        Ok(())
    }

    /// Checks that `frames` are enough if `volume` gets `bounds`.
    pub(super) fn check_with(
        &self,
        volume: &Volume<F>,
        bounds: FrameBounds<'_>,
        frames: u32,
    ) -> Result<(), SettingError> {
        let volumes = self.volumes();
        let others = volumes.iter().filter(|other| other.id != volume.id);
        check_bounds(others.map(|other| other.frame_bounds()).chain([bounds]), frames)
    }

    /// Replaces the policy, one shard after the other. The new policy receives the pages from the
    /// coldest to the most recently used, and those in a protected part of the old policy after the
    /// others. The ghosts of the old policy are lost.
    pub fn set_policy(&self, volume: &Volume<F>, kind: PolicyKind, now: Nanos) {
        let _logged = volume.log_setting(|| Setting::Policy { kind, now });
        let _one_at_a_time = lock(&self.settings);
        self.replace_policy(volume, kind, now);
    }

    /// Performs a switch of the policy that the cache has decided on, if it may still choose. The
    /// switch is recorded first, so that a client that sees the new policy also finds the reason.
    pub(super) fn switch_policy(&self, call: &Call<'_, F>, switch: PolicySwitch) {
        let Call { volume, recorder, now } = *call;
        let _one_at_a_time = lock(&self.settings);
        if volume.policy_auto() {
            volume.tuning.note_switch(switch);
            recorder.add(Counter::PolicySwitches, 1);
            self.replace_policy(volume, switch.to, now);
        }
    }

    /// Replaces the policy. The caller holds the lock `settings`.
    fn replace_policy(&self, volume: &Volume<F>, kind: PolicyKind, now: Nanos) {
        if volume.policy() == kind {
            return;
        }
        volume.config.policy.set(kind);
        let frames = self.expected_frames(volume, self.volumes().len());
        for (index, mut shard) in self.shards.each().enumerate() {
            let _rebuilding = self.shards.rebuild(index);
            shard.drain(now);
            let instance = shard.instance(volume.id);
            let pages = self.expected_pages(frames, instance.paging.page_blocks);
            instance.references.rebuild_policy(kind.build(), pages, &instance.pages);
        }
    }

    /// Sets the reserve of each volume, after a change of the volumes, of their page sizes or of
    /// the memory.
    pub(super) fn set_reserves(&self) {
        let volumes = self.volumes();
        let all_bounds: Vec<_> = volumes.iter().map(|volume| volume.frame_bounds()).collect();
        for (volume, reserve) in volumes.iter().zip(reserves(&all_bounds, self.pool.size())) {
            volume.quota.set_reserve(reserve);
        }
    }

    /// Sets the reserves, and the number of pages that each policy expects: the frames in equal
    /// parts for all volumes, within their bounds, over all shards. A volume may get more while
    /// others are idle.
    pub(super) fn update_capacities(&self) {
        self.pool.all.frames.store(self.pool.size().into(), Ordering::Relaxed);
        self.set_reserves();
        let volumes = self.volumes();
        for volume in &volumes {
            volume.config.set_capacity(volume.quota.max().min(self.pool.size()));
        }
        for mut shard in self.shards.each() {
            for volume in &volumes {
                let frames = self.expected_frames(volume, volumes.len());
                // A thread that adds a volume inserts its instances here, and calls this again.
                if let Some(instance) = shard.instance_of(volume) {
                    let pages = self.expected_pages(frames, instance.paging.page_blocks);
                    instance.references.policy.on_capacity(pages);
                }
            }
        }
    }

    /// Returns the number of frames that a volume, one of `volumes`, is expected to have.
    pub(super) fn expected_frames(&self, volume: &Volume<F>, volumes: usize) -> u32 {
        if let Some(target) = volume.target_frames() {
            return target;
        }
        let (min, max) = volume.bounds();
        let part = self.pool.size() / u32::try_from(volumes.max(1)).expect("few volumes");
        part.clamp(min.min(max), max)
    }

    /// Returns the number of pages of that size that are expected in one shard.
    pub(super) fn expected_pages(&self, frames: u32, page_blocks: u32) -> usize {
        (frames as usize / page_blocks as usize / self.shards.len()).max(1)
    }

    /// Freezes a volume, or ends that. Requests of a frozen volume neither add pages to the cache
    /// nor evict any. Misses bypass the cache, and writes of blocks that are not resident stay only
    /// until the store has them. There are two exceptions, since requests would wait without end: a
    /// write smaller than the store's granule fills its page, and a miss without free frames evicts
    /// the coldest page. Other volumes take frames of a frozen one last; [`Cache::set_memory`] and
    /// [`Cache::set_bounds`] apply to it as to other volumes.
    pub fn freeze(&self, volume: &Volume<F>, frozen: bool) {
        let _logged = volume.log_setting(|| Setting::Frozen(frozen));
        volume.lifecycle.set_frozen(frozen);
        // An interrupted warm restart continues.
        volume.waker.wake();
    }

    /// Drops the clean pages of a volume. Returns their number of blocks. Pages that are pinned,
    /// dirty, being written or being filled stay, and so do ghosts.
    pub fn drop_clean(&self, volume: &Volume<F>, now: Nanos) -> u64 {
        let _logged = self.log.add(|| Input::DropClean { volume: volume.id, now });
        let mut dropped = 0;
        for (index, mut shard) in self.shards.each().enumerate() {
            let Some(instance) = shard.instance_of(volume) else { return dropped };
            let may_drop = |&slot: &Slot| {
                let page = instance.pages.get(slot);
                page.is_clean_and_idle() && !instance.is_pinned(page.number)
            };
            let clean: Vec<_> = instance.pages.slots().filter(may_drop).collect();
            let _rebuilding = self.shards.rebuild(index);
            shard.drain(now);
            let instance = shard.instance(volume.id);
            for slot in clean {
                dropped += u64::from(instance.pages.get(slot).resident);
                self.drop_page(instance, slot);
            }
        }
        self.unstall();
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::NoWaker;
    use crate::frames::PlainFrames;
    use crate::store::Geometry;
    use crate::units::BLOCK_BYTES_U64;
    use crate::volume::VolumeOptions;

    #[test]
    fn a_new_policy_is_not_seen_before_the_record_of_its_switch() {
        let cache = Cache::new(PlainFrames::new(16), 1);
        let geometry = Geometry { length: 16 * BLOCK_BYTES_U64, granule: 512, read_only: false };
        let volume = cache.add_volume(VolumeOptions::new("v", geometry), Box::new(NoWaker));
        volume.set_policy_auto(true);
        let recorder = cache.recorder(&volume);
        let from = volume.policy();
        let switch = PolicySwitch { at: 1, from, to: PolicyKind::Lirs, gain: 0.2 };
        std::thread::scope(|scope| {
            // The switch cannot end while its only shard is locked.
            let shard = cache.shard_of(&volume, 0);
            scope.spawn(|| {
                let call = Call { volume: &volume, recorder: &recorder, now: 1 };
                cache.switch_policy(&call, switch);
            });
            while volume.policy() == from {
                std::thread::yield_now();
            }
            assert_eq!(volume.policy_switches(), [switch]);
            assert_eq!(volume.totals().get(Counter::PolicySwitches), 1);
            drop(shard);
        });
    }
}
