//! The shards of a cache, each behind its own lock.

use crate::clock::Nanos;
use crate::frames::Frames;
use crate::policy::Slot;
use crate::shard::{Instance, Shard};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};
use crate::volume::Volume;
use std::ops::Deref;

/// Number of slots examined under one hold of a shard's lock.
const SLOTS_AT_ONCE: u32 = 4096;

struct LockedShard<F: Frames> {
    shard: Mutex<Shard<F>>,
    /// True while pages or a policy of the shard are being rebuilt, which takes long.
    rebuilding: AtomicBool,
}

/// The shards. A thread locks one of them at a time.
pub(super) struct Shards<F: Frames>(Box<[LockedShard<F>]>);

/// A mark that a shard is being rebuilt, until it is dropped.
pub(super) struct Rebuilding<'a>(&'a AtomicBool);

impl Drop for Rebuilding<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<F: Frames> Shards<F> {
    pub(super) fn new(count: usize) -> Self {
        let shard = || Mutex::new(Shard::new());
        let all =
            (0..count).map(|_| LockedShard { shard: shard(), rebuilding: AtomicBool::new(false) });
        Shards(all.collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn lock(&self, index: usize) -> MutexGuard<'_, Shard<F>> {
        lock(&self.0[index].shard)
    }

    /// Locks one shard after the other, each until the caller drops it.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<F>>> {
        self.0.iter().map(|locked| lock(&locked.shard))
    }

    /// As [`Shards::each`] after a panic: `None` for a shard that another thread has locked.
    pub(super) fn try_each(&self) -> impl Iterator<Item = Option<impl Deref<Target = Shard<F>>>> {
        self.0.iter().map(|locked| try_lock(&locked.shard))
    }

    pub(super) fn is_rebuilding(&self, index: usize) -> bool {
        self.0[index].rebuilding.load(Ordering::Relaxed)
    }

    /// Marks a shard, which the caller has locked, as being rebuilt: a session whose ring of hits
    /// is full drops hits instead of waiting for the lock.
    pub(super) fn rebuild(&self, index: usize) -> Rebuilding<'_> {
        let rebuilding = &self.0[index].rebuilding;
        rebuilding.store(true, Ordering::Relaxed);
        Rebuilding(rebuilding)
    }

    /// Collects `item` of each page of `volume` with resident blocks, in no particular order, and
    /// passes batches of them to `visit`, without a lock. Pages that enter or leave in the meantime
    /// may be missing. With a time, the policies receive the recorded hits before. Returns false if
    /// the volume was removed in the meantime.
    pub(super) fn visit_pages<T>(
        &self,
        volume: &Volume<F>,
        drain_at: Option<Nanos>,
        item: impl Fn(&Instance<F>, Slot) -> T,
        mut visit: impl FnMut(Vec<T>),
    ) -> bool {
        for index in 0..self.len() {
            let mut first = 0;
            loop {
                let mut shard = self.lock(index);
                if let Some(now) = drain_at {
                    shard.drain(now);
                }
                let Some(instance) = shard.instance_of(volume) else { return false };
                if first >= instance.pages.end() {
                    break;
                }
                let slots = instance.pages.slots_in(first..first + SLOTS_AT_ONCE);
                let resident = slots.filter(|&slot| instance.pages.get(slot).resident > 0);
                let batch = resident.map(|slot| item(instance, slot)).collect();
                drop(shard);
                visit(batch);
                first += SLOTS_AT_ONCE;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::PlainFrames;

    #[test]
    fn a_shard_is_marked_while_it_is_rebuilt() {
        let shards = Shards::<PlainFrames>::new(2);
        let rebuilding = shards.rebuild(1);
        assert_eq!([0, 1].map(|index| shards.is_rebuilding(index)), [false, true]);
        drop(rebuilding);
        assert!(!shards.is_rebuilding(1));
    }

    #[test]
    fn only_one_shard_at_a_time_is_locked() {
        let shards = Shards::<PlainFrames>::new(3);
        for (index, _locked) in shards.each().enumerate() {
            let free: Vec<bool> = shards.try_each().map(|shard| shard.is_some()).collect();
            assert_eq!(free.iter().position(|&free| !free), Some(index));
            assert_eq!(free.iter().filter(|&&free| free).count(), 2);
        }
    }
}
