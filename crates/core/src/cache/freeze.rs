//! Freezing what is cached of a volume, and forgetting it.

use super::Cache;
use crate::clock::Nanos;
use crate::frames::Frames;
use crate::input::{Input, Setting};
use crate::policy::Slot;
use crate::sync::atomic::Ordering;
use crate::volume::Volume;

impl<F: Frames> Cache<F> {
    /// Freezes a volume, or ends that: while it is frozen nothing enters the cache and nothing
    /// leaves it for what is asked of this volume. Misses are read past the cache, and writes of
    /// what is not resident stay only until the store has them. Two things are excepted, since
    /// requests would wait for ever: a write of less than the store's granule brings its page in,
    /// and a miss that finds no free frame anywhere takes that of the coldest page. Other volumes
    /// take room of a frozen one last; [`Cache::set_memory`] and [`Cache::set_bounds`] apply to it
    /// as to all.
    pub fn freeze(&self, volume: &Volume<F>, frozen: bool) {
        let _logged = volume.log_setting(|| Setting::Frozen(frozen));
        volume.set_frozen(frozen);
        // A warm restart goes on where it was interrupted.
        volume.notify.notify();
    }

    /// Forgets all clean pages of a volume; how many blocks that were. What is dirty, being written
    /// or being filled stays, page by page. Ghosts stay, too.
    pub fn drop_clean(&self, volume: &Volume<F>, now: Nanos) -> u64 {
        let _logged = self.log_input(|| Input::DropClean { volume: volume.id, now });
        let mut dropped = 0;
        for index in 0..self.shards.len() {
            let mut shard = self.shard(index);
            let Some(instance) = shard.instance_of(volume) else { return dropped };
            let is_clean = |&slot: &Slot| instance.pages.get(slot).is_clean_and_idle();
            let clean: Vec<_> = instance.pages.slots().filter(is_clean).collect();
            self.rebuilding[index].store(true, Ordering::Relaxed);
            shard.drain(now);
            let instance = shard.instance(volume.id);
            for slot in clean {
                dropped += u64::from(instance.pages.get(slot).resident);
                self.drop_page(instance, slot);
            }
            self.rebuilding[index].store(false, Ordering::Relaxed);
        }
        self.unstall();
        dropped
    }
}
