//! Eviction: frames are taken from the pool, and if it is empty, from the coldest page that can be
//! evicted.

use super::Cache;
use crate::clock::{Nanos, SECOND};
use crate::counters::{Counter, Recorder};
use crate::frames::{FrameId, Frames};
use crate::page::BlockKey;
use crate::policy::Slot;
use crate::shard::Instance;
use crate::sync::{Arc, lock};
use crate::volume::{Call, Volume};
use std::cmp::Reverse;
use std::ops::Range;

/// Maximum number of dirty pages whose writeback the searches for a victim request from the lazy
/// writer.
const STEAL_REQUESTS_MAX: usize = 16;
/// Time after a read-ahead during which no other read-ahead may evict the page.
const READAHEAD_GRACE: Nanos = SECOND;
/// Number of pages behind readers that one search examines.
const DROP_BEHIND_SCAN: usize = 16;
/// Number of other pages that one search examines if the coldest ones are all dirty or pinned.
const FALLBACK_SCAN: u32 = 4096;

/// A volume's part of a shard that may give up a page.
struct Candidate<F: Frames> {
    /// Time of the last reference to the page evicted last: the age of the cold end.
    coldest: Nanos,
    /// Number of pages; used among the shards of a volume whose policy does not evict by age: the
    /// one with the most pages gives one up, so that all have equal parts of the memory.
    pages: u32,
    shard: usize,
    volume: Arc<Volume<F>>,
}

/// Frames of an evicted page, and the volume that is charged for them.
pub(super) type EvictedFrames<F> = (Arc<Volume<F>>, Vec<<F as Frames>::WritePin>);

impl<F: Frames> Cache<F> {
    /// Takes frames for `volume` until `spare` has `wanted`, and evicts pages as needed. Returns
    /// true if `spare` has enough. The caller holds no lock.
    pub(super) fn reserve(
        &self,
        call: &Call<'_, F>,
        wanted: usize,
        spare: &mut Vec<FrameId>,
    ) -> bool {
        self.reserve_with(call, wanted, spare, true)
    }

    /// As [`Cache::reserve`]; `steal` is true if the writeback of dirty pages may be requested.
    pub(super) fn reserve_with(
        &self,
        call: &Call<'_, F>,
        wanted: usize,
        spare: &mut Vec<FrameId>,
        steal: bool,
    ) -> bool {
        let Call { volume, .. } = *call;
        // Each eviction frees at least one frame; other threads may take some of them first.
        for _ in 0..=wanted * 2 + 16 {
            if self.pool.take(&self.frames, volume, wanted, spare) {
                return true;
            }
            if !self.evict_coldest(call, steal) {
                break;
            }
        }
        // Otherwise reads that fail and release their pins could put more frames into limbo than
        // later attempts reclaim, without end.
        if self.pool.reclaim_all(&self.frames) > 0 {
            self.stalls.note_pinned();
        }
        self.pool.take(&self.frames, volume, wanted, spare)
    }

    /// Passes a miss of the page of `block` to the policy, unless the page is resident: before the
    /// choice of a victim, and after the hits that were recorded before.
    pub(super) fn note_miss(&self, volume: &Volume<F>, block: u64, now: Nanos) {
        let mut shard = self.shard_of(volume, block);
        let page = shard.instance(volume.id).paging.page_of(block);
        if shard.instance(volume.id).find(&self.table, page).is_none() {
            shard.drain(now);
            shard.instance(volume.id).references.policy.on_miss(page);
        }
    }

    /// Evicts the coldest evictable page for the benefit of a volume; `steal` is true if the
    /// writeback of dirty pages may be requested. Returns false if there is none.
    pub(super) fn evict_coldest(&self, call: &Call<'_, F>, steal: bool) -> bool {
        let Call { volume, recorder, now } = *call;
        let evicted = self.evict_first(self.candidates(Some(volume)), Some(recorder), now, steal);
        let Some((victim, write_pins)) = evicted else { return false };
        self.free_write_pinned(&victim, write_pins);
        true
    }

    /// Evicts the coldest page of a volume above its floor, for no volume in particular. Returns
    /// its volume, which is still charged for its frames, and the frames.
    pub(super) fn evict_any(&self, now: Nanos) -> Option<EvictedFrames<F>> {
        self.evict_first(self.candidates(None), None, now, true)
    }

    fn evict_first(
        &self,
        mut candidates: Vec<Candidate<F>>,
        recorder: Option<&Recorder>,
        now: Nanos,
        steal: bool,
    ) -> Option<EvictedFrames<F>> {
        let order = |one: &Candidate<F>| {
            let Candidate { coldest, pages, shard, ref volume } = *one;
            (volume.is_frozen(), coldest, volume.id, Reverse(pages), shard)
        };
        candidates.sort_unstable_by_key(order);
        let find = |any: bool| {
            candidates.iter().find_map(|Candidate { shard, volume, .. }| {
                let recorder = recorder.unwrap_or(&volume.recorders.maintenance);
                let call = &Call { volume, recorder, now };
                let write_pins = if any {
                    self.evict_any_from(call, *shard)
                } else {
                    self.evict_from(call, *shard, steal)
                };
                (!write_pins.is_empty()).then(|| (Arc::clone(volume), write_pins))
            })
        };
        // Read-ahead does not justify the eviction of a page that its policy would keep.
        find(false).or_else(|| steal.then(|| find(true)).flatten())
    }

    /// Returns the parts of the cache that may give up a page, for `volume` if it is given.
    fn candidates(&self, volume: Option<&Volume<F>>) -> Vec<Candidate<F>> {
        let volumes = lock(&self.pool.volumes);
        let at_ceiling = volume.is_some_and(|volume| volume.quota.is_full());
        let may_give = |other: &&Arc<Volume<F>>| {
            let above_floor = other.quota.usage() > other.quota.floor();
            volume.is_some_and(|volume| other.id == volume.id) || (!at_ceiling && above_floor)
        };
        let givers: Vec<_> = volumes.iter().flatten().filter(may_give).collect();
        Self::select_givers(volume.map(|volume| volume.id), givers)
            .into_iter()
            .flat_map(Self::shard_candidates)
            .collect()
    }

    /// Returns the parts of a volume that have an evictable page.
    fn shard_candidates(volume: &Arc<Volume<F>>) -> impl Iterator<Item = Candidate<F>> {
        let quota = &volume.quota;
        let by_age = volume.policy().evicts_by_age();
        let coldest = quota.shards().map(|shard| quota.coldest(shard)).min().unwrap_or(Nanos::MAX);
        quota.shards().filter_map(move |shard| {
            let age = quota.coldest(shard);
            let (coldest, pages) = if by_age { (age, 0) } else { (coldest, quota.pages(shard)) };
            let volume = Arc::clone(volume);
            (age != Nanos::MAX).then_some(Candidate { coldest, pages, shard, volume })
        })
    }

    fn evict_from(&self, call: &Call<'_, F>, index: usize, steal: bool) -> Vec<F::WritePin> {
        let Call { volume: victim, now, .. } = *call;
        let mut shard = self.shards.lock(index);
        shard.drain(now);
        // The candidate was selected without the lock: the volume may be gone, and its number
        // reused.
        let Some(instance) = shard.instance_of(victim) else { return Vec::new() };
        let (write_pins, steals) = self.evict_page(call, instance, !steal);
        drop(shard);
        if steal && !steals.is_empty() {
            let mut queue = lock(&victim.queue);
            // Searches find the same dirty pages again until they are written.
            if queue.steals.len() < STEAL_REQUESTS_MAX {
                queue.steals.extend(steals);
                drop(queue);
                victim.waker.wake();
            }
        }
        write_pins
    }

    /// Evicts any evictable page of a shard whose policy has not found one.
    fn evict_any_from(&self, call: &Call<'_, F>, index: usize) -> Vec<F::WritePin> {
        let Call { volume: victim, recorder, now } = *call;
        let mut write_pins = Vec::new();
        let mut shard = self.shards.lock(index);
        shard.drain(now);
        let Some(instance) = shard.instance_of(victim) else { return write_pins };
        if let Some((slot, pinned)) = self.write_pin_any_page(instance, &mut write_pins) {
            for &frame in &pinned {
                self.table.retract(frame);
                self.pool.retire(victim.id, frame);
            }
            recorder.add(Counter::EvictedBlocks, pinned.len() as u64);
            self.remove_evicted(instance, slot, &write_pins, recorder, false);
        }
        write_pins
    }

    /// Evicts one page. Returns its frames, write-pinned and out of the table, and the first blocks
    /// of dirty pages that the policy preferred. For read-ahead, the coldest page must not have
    /// been read ahead recently itself.
    fn evict_page(
        &self,
        call: &Call<'_, F>,
        instance: &mut Instance<F>,
        ahead: bool,
    ) -> (Vec<F::WritePin>, Vec<u64>) {
        let Call { recorder, now, .. } = *call;
        let mut write_pins = Vec::new();
        let mut steals = Vec::new();
        if let Some(slot) = self.write_pin_drop_behind(instance, &mut write_pins) {
            recorder.add(Counter::DroppedBehind, 1);
            self.remove_evicted(instance, slot, &write_pins, recorder, false);
            return (write_pins, steals);
        }
        let Instance { volume, paging, pages, references, .. } = instance;
        let chosen = references.policy.victim(&mut |slot| {
            let page = pages.get(slot);
            if page.is_clean_and_idle() {
                let blocks = paging.blocks_of(page.number);
                return self.write_pin_page(volume.id, blocks, &mut write_pins);
            }
            // A page whose write has failed is written again after the back-off.
            if page.can_start_writeback() && page.failing == 0 && steals.len() < STEAL_REQUESTS_MAX
            {
                steals.push(paging.blocks_of(page.number).start);
            }
            false
        });
        if let Some(slot) = chosen {
            if ahead && self.was_just_read_ahead(instance, slot, &write_pins, now) {
                write_pins.drain(..).for_each(|write_pin| self.frames.release_write_pin(write_pin));
                return (write_pins, steals);
            }
            self.remove_evicted(instance, slot, &write_pins, recorder, true);
        }
        (write_pins, steals)
    }

    /// Write-pins the frames of any evictable page. Returns the page, and its frames that are
    /// pinned. Pages without pinned frames are tried first.
    ///
    /// The pages that the policy prefers cannot be evicted. They are pinned, perhaps by the client
    /// that needs frames, which would wait for itself; or they are dirty, and no client needs to
    /// wait for the store while there are clean pages. The next search starts where this one ends.
    fn write_pin_any_page(
        &self,
        instance: &mut Instance<F>,
        write_pins: &mut Vec<F::WritePin>,
    ) -> Option<(Slot, Vec<FrameId>)> {
        let tries = instance.pages.end().min(FALLBACK_SCAN);
        for _ in 0..tries {
            let Some(slot) = Self::next_evictable(instance) else { continue };
            let blocks = instance.paging.blocks_of(instance.pages.get(slot).number);
            if self.write_pin_page(instance.volume.id, blocks, write_pins) {
                return Some((slot, Vec::new()));
            }
        }
        if instance.paging.page_blocks == 1 {
            return None;
        }
        for _ in 0..tries {
            let Some(slot) = Self::next_evictable(instance) else { continue };
            let pinned = self.write_pin_unpinned(instance, slot, write_pins);
            if !write_pins.is_empty() {
                return Some((slot, pinned));
            }
        }
        None
    }

    /// Advances the hand to the next slot. Returns it if its page is clean, has no operation in
    /// progress and is known to the policy.
    fn next_evictable(instance: &mut Instance<F>) -> Option<Slot> {
        let slot = if instance.hand < instance.pages.end() { instance.hand } else { 0 };
        instance.hand = slot + 1;
        let is_clean_and_idle = instance.pages.find(slot)?.is_clean_and_idle();
        (is_clean_and_idle && instance.references.is_known(slot)).then_some(slot)
    }

    /// Write-pins the unpinned frames of a page, and returns the pinned ones. A client that does
    /// not receive its replies pins single blocks, which must not protect whole pages from
    /// eviction.
    fn write_pin_unpinned(
        &self,
        instance: &Instance<F>,
        slot: Slot,
        write_pins: &mut Vec<F::WritePin>,
    ) -> Vec<FrameId> {
        let mut pinned = Vec::new();
        for block in instance.paging.blocks_of(instance.pages.get(slot).number) {
            let key = BlockKey::new(instance.volume.id, block);
            let Some(frame) = self.table.find(key) else { continue };
            match self.frames.try_write_pin(frame) {
                Some(write_pin) => write_pins.push(write_pin),
                None => pinned.push(frame),
            }
        }
        pinned
    }

    /// Returns true if a write-pinned page was read ahead recently, so that its reader may need it
    /// soon.
    fn was_just_read_ahead(
        &self,
        instance: &Instance<F>,
        slot: Slot,
        write_pins: &[F::WritePin],
        now: Nanos,
    ) -> bool {
        let untouched = write_pins
            .iter()
            .any(|write_pin| self.table.state(self.frames.write_pinned(write_pin)).ahead);
        untouched && now < instance.references.last_at(slot) + READAHEAD_GRACE
    }

    /// Removes a page whose frames in the table are all write-pinned. Keeps a ghost of it if
    /// `ghost` is true.
    fn remove_evicted(
        &self,
        instance: &mut Instance<F>,
        slot: Slot,
        write_pins: &[F::WritePin],
        recorder: &Recorder,
        ghost: bool,
    ) {
        let mut untouched = false;
        for write_pin in write_pins {
            let frame = self.frames.write_pinned(write_pin);
            untouched |= self.table.state(frame).ahead;
            self.table.retract(frame);
        }
        if untouched {
            recorder.add(Counter::ReadAheadWasted, 1);
            instance.volume.ahead.feedback.wasted();
        }
        instance.pages.get_mut(slot).resident = 0;
        let touched = instance.remove(slot, ghost);
        let coldest = if instance.pages.len() == 0 { Nanos::MAX } else { touched };
        instance.volume.quota.set_coldest(instance.index, coldest);
        recorder.add(Counter::EvictedPages, 1);
        recorder.add(Counter::EvictedBlocks, write_pins.len() as u64);
    }

    /// Write-pins the frames of a page that a sequential reader has passed, if one of them is
    /// evictable.
    fn write_pin_drop_behind(
        &self,
        instance: &mut Instance<F>,
        write_pins: &mut Vec<F::WritePin>,
    ) -> Option<Slot> {
        for _ in 0..DROP_BEHIND_SCAN {
            let (page, passed_at) = instance.drop_behind.pop_front()?;
            let Some(slot) = instance.find(&self.table, page) else { continue };
            let blocks = instance.paging.blocks_of(page);
            let is_evictable = instance.pages.get(slot).is_clean_and_idle()
                && !instance.is_pinned(page)
                && instance.references.last_at(slot) <= passed_at;
            if is_evictable && self.write_pin_page(instance.volume.id, blocks, write_pins) {
                return Some(slot);
            }
        }
        None
    }

    /// Write-pins all frames of a page, or none of them.
    fn write_pin_page(
        &self,
        volume: u16,
        blocks: Range<u64>,
        write_pins: &mut Vec<F::WritePin>,
    ) -> bool {
        debug_assert!(write_pins.is_empty(), "frames of an earlier candidate");
        for block in blocks {
            let Some(frame) = self.table.find(BlockKey::new(volume, block)) else { continue };
            let Some(write_pin) = self.frames.try_write_pin(frame) else {
                self.stalls.note_pinned();
                for write_pin in write_pins.drain(..) {
                    self.frames.release_write_pin(write_pin);
                }
                return false;
            };
            write_pins.push(write_pin);
        }
        true
    }
}
