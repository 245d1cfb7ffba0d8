//! Making room: frames are taken from the pool, and where it is empty, from the coldest page that
//! may go.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::{Counter, Recorder};
use crate::frames::{FrameId, Frames};
use crate::page::Key;
use crate::shard::Instance;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};
use crate::volume::Volume;

/// How many dirty pages one search for a victim tells the lazy writer of.
const STEALS_MAX: usize = 16;

impl<F: Frames> Cache<F> {
    /// Takes frames for `volume` until `spare` has `wanted`, evicting as needed; whether it has.
    /// Called without a lock.
    pub(super) fn reserve(
        &self,
        volume: &Volume<F>,
        wanted: usize,
        spare: &mut Vec<FrameId>,
        recorder: &Recorder,
        now: Nanos,
    ) -> bool {
        // Each eviction frees at least one frame; a few more go to others who take them first.
        for _ in 0..=wanted * 2 + 16 {
            if self.pool.take(&self.frames, volume, wanted, spare) {
                return true;
            }
            if !self.evict_coldest(volume, recorder, now) {
                return self.pool.take(&self.frames, volume, wanted, spare);
            }
        }
        false
    }

    /// Tells the policy of a page that is not resident and is about to come: before a victim for it
    /// is chosen, and after the hits before it.
    pub(super) fn note_miss(&self, volume: &Volume<F>, page: u64, now: Nanos) {
        let index = self.table.shard(Key::new(volume.id, volume.blocks_of(page).start));
        let mut shard = self.shard(index);
        if shard.instance(volume.id).find(&self.table, page).is_none() {
            shard.drain(now);
            shard.instance(volume.id).policy.on_miss(page);
        }
    }

    /// Evicts the coldest page that may go for the benefit of `volume`; false if there is none.
    fn evict_coldest(&self, volume: &Volume<F>, recorder: &Recorder, now: Nanos) -> bool {
        let mut candidates = self.candidates(volume);
        candidates.sort_unstable_by_key(|&(coldest, id, shard, _)| (coldest, id, shard));
        candidates
            .into_iter()
            .any(|(_, _, shard, victim)| self.evict_from(&victim, shard, recorder, now))
    }

    /// The parts of the cache that may give up a page: (how cold, volume, shard, volume).
    fn candidates(&self, volume: &Volume<F>) -> Vec<(Nanos, u16, usize, Arc<Volume<F>>)> {
        let volumes = lock(&self.pool.volumes);
        let at_ceiling = volume.quota.usage.load(Ordering::Relaxed) >= volume.quota.max;
        let may_give = |other: &&Arc<Volume<F>>| {
            let above_floor = other.quota.usage.load(Ordering::Relaxed) > other.quota.min;
            other.id == volume.id || (!at_ceiling && above_floor)
        };
        let givers: Vec<_> = volumes.iter().flatten().filter(may_give).collect();
        Self::givers(volume, givers)
            .into_iter()
            .flat_map(|other| {
                other.quota.coldest.iter().enumerate().filter_map(move |(shard, coldest)| {
                    let coldest = coldest.load(Ordering::Relaxed);
                    (coldest != Nanos::MAX).then(|| (coldest, other.id, shard, Arc::clone(other)))
                })
            })
            .collect()
    }

    fn evict_from(
        &self,
        victim: &Volume<F>,
        index: usize,
        recorder: &Recorder,
        now: Nanos,
    ) -> bool {
        let mut shard = self.shard(index);
        shard.drain(now);
        let instance = shard.instance(victim.id);
        let (owned, steals) = self.evict_page(instance, recorder);
        drop(shard);
        if !steals.is_empty() {
            lock(&victim.queue).steals.extend(steals);
            victim.notify.notify();
        }
        let evicted = !owned.is_empty();
        self.free_owned(victim, owned);
        evicted
    }

    /// Evicts one page: its frames, owned and unfindable, and the dirty pages that were in the way.
    fn evict_page(
        &self,
        instance: &mut Instance<F>,
        recorder: &Recorder,
    ) -> (Vec<F::Own>, Vec<u64>) {
        let mut owned = Vec::new();
        let mut steals = Vec::new();
        let Instance { volume, pages, policy, .. } = instance;
        let chosen = policy.victim(&mut |slot| {
            let page = pages.get(slot);
            if page.is_quiet() {
                return self.own_page(volume, page.number, &mut owned);
            }
            if page.can_start_round() && steals.len() < STEALS_MAX {
                steals.push(page.number);
            }
            false
        });
        let Some(slot) = chosen else { return (owned, steals) };
        for own in &owned {
            let frame = self.frames.owned(own);
            self.table.retract(frame);
        }
        instance.pages.get_mut(slot).resident = 0;
        let touched = instance.remove(slot, true);
        let coldest = if instance.pages.len() == 0 { Nanos::MAX } else { touched };
        instance.volume.quota.coldest[instance.index].store(coldest, Ordering::Relaxed);
        recorder.add(Counter::EvictedPages, 1);
        recorder.add(Counter::EvictedBlocks, owned.len() as u64);
        (owned, steals)
    }

    /// Owns all frames of a page, or none of them.
    fn own_page(&self, volume: &Volume<F>, page: u64, owned: &mut Vec<F::Own>) -> bool {
        debug_assert!(owned.is_empty(), "frames of an earlier candidate");
        for block in volume.blocks_of(page) {
            let Some(frame) = self.table.find(Key::new(volume.id, block)) else { continue };
            let Some(own) = self.frames.try_own(frame) else {
                for own in owned.drain(..) {
                    self.frames.disown(own);
                }
                return false;
            };
            owned.push(own);
        }
        true
    }
}
