//! Freezing of a volume's cached pages, and dropping of its clean pages.

use super::Cache;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::input::{Input, Setting};
use crate::policy::Slot;
use crate::volume::Volume;

impl<F: Frames> Cache<F> {
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
        volume.notify.notify();
    }

    /// Drops all clean pages of a volume. Returns their number of blocks. Pages that are dirty,
    /// being written or being filled stay, and so do ghosts.
    pub fn drop_clean(&self, volume: &Volume<F>, now: Nanos) -> u64 {
        let _logged = self.log.add(|| Input::DropClean { volume: volume.id, now });
        let mut dropped = 0;
        for (index, mut shard) in self.shards.each().enumerate() {
            let Some(instance) = shard.instance_of(volume) else { return dropped };
            let is_clean = |&slot: &Slot| instance.pages.get(slot).is_clean_and_idle();
            let clean: Vec<_> = instance.pages.slots().filter(is_clean).collect();
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
