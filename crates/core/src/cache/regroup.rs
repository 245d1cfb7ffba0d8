//! The page size changes while the volume serves.
//!
//! From the moment it is asked for, misses and new writes of the volume stall, as they do for a
//! range that is being discarded; hits go on. Neither the lazy writer nor a flush begins anything
//! new, only what FUA and write-through writers wait for goes on. So within a few operations of the
//! store nobody refers to a page any more, in one shard after the other, and each is regrouped when
//! that is so. Then those who stalled go on. Until the last shard is done, shards may differ:
//! under a shard's lock it is always the instance that says how large a page is.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::Counter;
use crate::curve::tracker::Tracker;
use crate::frames::Frames;
use crate::input::Setting;
use crate::settings::{FrameBounds, SettingError};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::volume::Volume;

impl<F: Frames> Cache<F> {
    /// Sets the blocks in a page: a power of two, at most
    /// [`PAGE_BLOCKS_MAX`](crate::units::PAGE_BLOCKS_MAX). It is done when whoever drives the
    /// volume's store has called [`Cache::poll`] often enough; [`Volume::page_bytes`] says so. Of
    /// what the policy remembers, only what it knows of resident pages stays.
    ///
    /// # Errors
    /// If it is no page size, more than the volume's ceiling, or no room is left for such a page
    /// beside what volumes are promised.
    pub fn set_page_blocks(&self, volume: &Volume<F>, blocks: u32) -> Result<(), SettingError> {
        let _logged = volume.log_setting(|| Setting::PageBlocks(blocks));
        let _one_at_a_time = lock(&self.settings);
        let bounds = FrameBounds { page_blocks: blocks, ..volume.frame_bounds() };
        self.check_with(volume, bounds, self.pool.target())?;
        volume.request_page_blocks(blocks);
        self.set_reserves();
        volume.notify.notify();
        self.wake_maintenance();
        Ok(())
    }

    /// Goes on with a change of the page size; whether none is left to be done.
    pub(super) fn regroup(&self, volume: &Volume<F>, now: Nanos) -> bool {
        while let Some(wanted) = volume.requested_page_blocks() {
            let mut is_done = true;
            for index in 0..self.shards.len() {
                is_done &= self.regroup_shard(volume, index, wanted, now);
            }
            if !is_done {
                return false;
            }
            let ended = volume.note_page_blocks(wanted);
            // After that: windows of pages of the old size are not added any more.
            let forgotten = lock(&volume.queue).pending_windows.clear();
            volume.maintenance_recorder.add(Counter::ReadAheadDropped, forgotten);
            self.restart_tracker(volume);
            if ended {
                self.unstall();
            }
        }
        true
    }

    /// Begins the curve of a volume anew: its pages are others now.
    fn restart_tracker(&self, volume: &Volume<F>) {
        let Some(locked_tracker) = &volume.locked_tracker else { return };
        let frames = volume.quota.max().min(self.pool.size());
        let pages = u64::from(frames / volume.page_blocks());
        let mut left = lock(&self.tracker_bytes);
        *left += locked_tracker.tracker().bytes();
        let tracker = Tracker::new(*left, pages, volume.policy(), volume.id.into())
            .expect("at least as many bytes as the one before it had");
        *left -= tracker.bytes();
        drop(left);
        let gate = tracker.gate();
        locked_tracker.begin_anew(tracker);
        for index in 0..self.shards.len() {
            self.shard(index).instance(volume.id).set_sampler(gate);
        }
    }

    /// Regroups the pages of one shard, unless somebody refers to one.
    fn regroup_shard(&self, volume: &Volume<F>, index: usize, wanted: u32, now: Nanos) -> bool {
        let volumes = self.volumes().len();
        let mut shard = self.shard(index);
        let instance = shard.instance(volume.id);
        if instance.paging.page_blocks == wanted {
            return true;
        }
        // Pages of another size put other blocks together than the order of groups knows of.
        if !instance.is_idle() || !volume.write_order.is_written_or_expedite() {
            return false;
        }
        self.rebuilding[index].store(true, Ordering::Relaxed);
        shard.drain(now);
        let instance = shard.instance(volume.id);
        let pages = self.expected_pages(self.expected_frames(volume, volumes), wanted);
        instance.regroup(&self.table, wanted, pages);
        instance.note_all_pinned(now);
        for slot in instance.unadmitted_pages() {
            self.drop_page(instance, slot);
        }
        self.rebuilding[index].store(false, Ordering::Relaxed);
        true
    }
}
