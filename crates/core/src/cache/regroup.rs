//! Changes of the page size while the volume serves.
//!
//! From the request on, misses and new writes of the volume stall, as for a range that is being
//! discarded; hits continue. The lazy writer and flushes start no writeback; only writebacks for
//! FUA and write-through writers continue. So within a few operations of the store one shard after
//! the other has no page in use, and is regrouped then. After the last one, stalled operations
//! continue. Until then shards may differ: under a shard's lock the instance has the valid page
//! size.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::Counter;
use crate::curve::tracker::Tracker;
use crate::frames::Frames;
use crate::input::Setting;
use crate::settings::{FrameBounds, SettingError};
use crate::sync::lock;
use crate::volume::Volume;

impl<F: Frames> Cache<F> {
    /// Sets the number of blocks in a page: a power of two, at most
    /// [`PAGE_BLOCKS_MAX`](crate::units::PAGE_BLOCKS_MAX). Calls of [`Cache::poll`] by the driver
    /// of the volume's store perform the change; [`Volume::page_bytes`] shows when it is complete.
    /// The policy keeps only what it knows of resident pages.
    ///
    /// # Errors
    /// If the size is invalid, exceeds the volume's ceiling, or leaves no memory for such a page
    /// beside the floors of the volumes.
    pub fn set_page_blocks(&self, volume: &Volume<F>, blocks: u32) -> Result<(), SettingError> {
        let _logged = volume.log_setting(|| Setting::PageBlocks(blocks));
        let _one_at_a_time = lock(&self.settings);
        let bounds = FrameBounds { page_blocks: blocks, ..volume.frame_bounds() };
        self.check_with(volume, bounds, self.pool.target())?;
        volume.config.page_size.request(blocks);
        self.set_reserves();
        volume.waker.wake();
        self.maintenance.wake();
        Ok(())
    }

    /// Continues a change of the page size. Returns true if none is pending.
    pub(super) fn regroup(&self, volume: &Volume<F>, now: Nanos) -> bool {
        while let Some(page_blocks_requested) = volume.config.page_size.requested() {
            let mut is_done = true;
            for index in 0..self.shards.len() {
                is_done &= self.regroup_shard(volume, index, page_blocks_requested, now);
            }
            if !is_done {
                return false;
            }
            let ended = volume.config.page_size.note_reached(page_blocks_requested);
            // After the new page size is set, no windows of pages of the old size are added.
            let forgotten = lock(&volume.queue).pending_windows.clear();
            volume.recorders.maintenance.add(Counter::ReadAheadDropped, forgotten);
            self.restart_tracker(volume);
            if ended {
                self.unstall();
            }
        }
        true
    }

    fn restart_tracker(&self, volume: &Volume<F>) {
        let Some(locked_tracker) = &volume.tuning.tracker else { return };
        let frames = volume.quota.max().min(self.pool.size());
        let pages = u64::from(frames / volume.page_blocks());
        let released = locked_tracker.tracker().bytes();
        let tracker = self
            .tracker_memory
            .allocate(released, |bytes| {
                Tracker::new(bytes, pages, volume.policy(), volume.id.into())
            })
            .expect("at least as many bytes as the one before it had");
        let sampler = tracker.sampler();
        locked_tracker.replace(tracker);
        for mut shard in self.shards.each() {
            shard.instance(volume.id).set_sampler(sampler);
        }
    }

    /// Regroups the pages of one shard. Returns false if one of them is in use.
    fn regroup_shard(
        &self,
        volume: &Volume<F>,
        index: usize,
        page_blocks_requested: u32,
        now: Nanos,
    ) -> bool {
        let volumes = self.volumes().len();
        let mut shard = self.shards.lock(index);
        let instance = shard.instance(volume.id);
        if instance.paging.page_blocks == page_blocks_requested {
            return true;
        }
        // The write order knows which blocks share a page, and a new page size would combine other
        // blocks.
        if !instance.is_idle() || !volume.write_order.is_written_or_expedite() {
            return false;
        }
        let _rebuilding = self.shards.rebuild(index);
        shard.drain(now);
        let instance = shard.instance(volume.id);
        let pages =
            self.expected_pages(self.expected_frames(volume, volumes), page_blocks_requested);
        instance.regroup(&self.table, page_blocks_requested, pages);
        instance.note_all_pinned(now);
        for slot in instance.unadmitted_pages() {
            self.drop_page(instance, slot);
        }
        true
    }
}
