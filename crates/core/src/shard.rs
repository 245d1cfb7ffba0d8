//! Shards: parts of the cache with one lock each, and the pages in them.
//!
//! All volumes share the shards. Each volume has an instance in every shard, with its pages, its
//! policy, its list of dirty pages and its fills.

mod regroup;

use crate::clock::Nanos;
use crate::completion::{CompletionQueue, Ring};
use crate::curve::sampler::{PendingSamples, SampledReference};
use crate::frames::Frames;
use crate::page::{Chunked, Key, Paging, Slab, Table};
use crate::policy::{NO_SLOT, Policy, Slot, hand_over};
use crate::queue::FillWaiter;
use crate::store::StoreError;
use crate::sync::Arc;
use crate::volume::Volume;
use std::collections::{BTreeMap, VecDeque};

/// A page that has a resident block or is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Page number in the volume.
    pub(crate) number: u64,
    /// Time, and epoch of the volume, at which the page became dirty.
    pub(crate) dirty_at: Nanos,
    pub(crate) dirty_epoch: u64,
    /// Neighbours in the list of dirty pages.
    dirty_older: Slot,
    dirty_newer: Slot,
    /// Number of the last writeback of the page; at most one is in progress.
    pub(crate) writeback_seq: u32,
    /// Numbers of blocks that are resident, dirty, being written, and dirty since a write of them
    /// failed.
    pub(crate) resident: u16,
    pub(crate) dirty: u16,
    pub(crate) writing: u16,
    pub(crate) failing: u16,
    /// Operations of the current writeback that have not completed, and true if one of them has
    /// failed.
    pub(crate) ops: u16,
    pub(crate) writeback_failed: bool,
    pub(crate) filling: bool,
}

impl Page {
    pub(crate) fn new(number: u64) -> Self {
        Page {
            number,
            dirty_at: 0,
            dirty_epoch: 0,
            dirty_older: NO_SLOT,
            dirty_newer: NO_SLOT,
            writeback_seq: 0,
            resident: 0,
            dirty: 0,
            writing: 0,
            failing: 0,
            ops: 0,
            writeback_failed: false,
            filling: false,
        }
    }

    /// Returns true if the page is under writeback.
    pub(crate) fn is_under_writeback(&self) -> bool {
        self.ops > 0
    }

    /// Returns true if a writeback of the page can start.
    pub(crate) fn can_start_writeback(&self) -> bool {
        self.dirty > 0 && !self.is_under_writeback()
    }

    /// Returns true if the state of the page allows its eviction.
    pub(crate) fn is_clean_and_idle(&self) -> bool {
        self.dirty == 0 && self.writing == 0 && !self.filling
    }
}

/// Time of the last reference to a page that the policy has received, plus one; 0 for a page that
/// the policy does not know. Unless it is pinned, such a page, as write-around mode creates them,
/// is dropped when it is clean.
///
/// Separate from [`Page`], since each hit updates it: eight pages share a cache line of the
/// processor. The highest bit marks pages in the sample of the volume's tracker, so one test of the
/// sign selects the most common case: a known page outside of the sample.
#[derive(Clone, Copy, Debug, Default)]
struct LastReference(u64);

impl LastReference {
    const SAMPLED: u64 = 1 << 63;

    fn new(now: Nanos, sampled: bool) -> Self {
        LastReference((now + 1) | if sampled { Self::SAMPLED } else { 0 })
    }

    /// Returns the time plus one; 0 if the policy does not know the page.
    fn at(self) -> Nanos {
        self.0 & !Self::SAMPLED
    }

    /// Returns true if the policy knows the page and the sample does not contain it.
    #[inline]
    fn is_plain(self) -> bool {
        self.0.cast_signed() > 0
    }
}

/// A page that is being filled.
#[derive(Debug)]
pub(crate) struct Fill<F: Frames> {
    pub(crate) slot: Slot,
    pub(crate) ops_left: u32,
    pub(crate) error: Option<StoreError>,
    /// Frames of operations that failed, reused for reads of exactly the requested blocks.
    pub(crate) failed_frames: Vec<F::WritePin>,
    pub(crate) waiters: Vec<FillWaiter<F>>,
    /// True if read-ahead has started the fill and no client waits for it yet.
    pub(crate) ahead: bool,
}

/// A write that waits for the writeback of a page.
#[derive(Debug)]
pub(crate) struct SyncWaiter<F: Frames> {
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) token: u64,
    /// The writeback that carries the bytes of the waiter.
    pub(crate) writeback_seq: u32,
    pub(crate) fua: bool,
}

/// One volume's part of a shard.
#[derive(Debug)]
pub(crate) struct Instance<F: Frames> {
    /// Index of the shard.
    pub(crate) index: usize,
    pub(crate) volume: Arc<Volume<F>>,
    pub(crate) paging: Paging,
    pub(crate) pages: Slab<Page>,
    last_reference: Chunked<LastReference>,
    pub(crate) policy: Box<dyn Policy>,
    dirty_oldest: Slot,
    dirty_newest: Slot,
    /// The oldest dirty page whose writeback has not been tried since it became dirty. For each
    /// older page in the list a writeback has failed.
    dirty_untried: Slot,
    pub(crate) fills: BTreeMap<u64, Fill<F>>,
    pub(crate) syncs: BTreeMap<Slot, Vec<SyncWaiter<F>>>,
    /// Pages that a sequential reader has passed, and the time of that; they are evicted first.
    pub(crate) drop_behind: VecDeque<(u64, Nanos)>,
    /// Position of the search over all pages, whether warm or cold.
    pub(crate) hand: Slot,
    /// Number of pages under writeback.
    pub(crate) pages_under_writeback: u32,
    /// References that the volume's tracker, if there is one, has not received.
    samples: Option<PendingSamples>,
}

impl<F: Frames> Instance<F> {
    pub(crate) fn new(index: usize, volume: Arc<Volume<F>>, policy: Box<dyn Policy>) -> Self {
        let tracker = volume.tuning.tracker.as_ref();
        let samples = tracker.map(|tracker| PendingSamples::new(tracker.sampler()));
        Instance {
            index,
            paging: volume.paging(),
            volume,
            pages: Slab::new(),
            last_reference: Chunked::default(),
            policy,
            dirty_oldest: NO_SLOT,
            dirty_newest: NO_SLOT,
            dirty_untried: NO_SLOT,
            fills: BTreeMap::new(),
            syncs: BTreeMap::new(),
            drop_behind: VecDeque::new(),
            hand: 0,
            pages_under_writeback: 0,
            samples,
        }
    }

    /// Returns the slot of a page, if the page has a resident block or is being filled.
    pub(crate) fn find(&self, table: &Table, page: u64) -> Option<Slot> {
        let resident = self
            .paging
            .blocks_of(page)
            .find_map(|block| table.find(Key::new(self.volume.id, block)));
        match resident {
            Some(frame) => Some(table.slot(frame)),
            None => self.fills.get(&page).map(|fill| fill.slot),
        }
    }

    /// Returns the slot of a page, and adds the page if it is missing.
    pub(crate) fn find_or_insert(
        &mut self,
        table: &Table,
        page: u64,
        admit: bool,
        now: Nanos,
    ) -> Slot {
        if let Some(slot) = self.find(table, page) {
            if admit && !self.is_retained(slot) {
                // Counted as a miss, but the policy also receives a reference.
                self.admit(slot, page, now);
                self.hit(slot, now);
            } else {
                self.reference(slot, now);
            }
            return slot;
        }
        let slot = self.pages.insert(Page::new(page));
        self.note_pages();
        if self.volume.quota.coldest(self.index) == Nanos::MAX {
            self.volume.quota.set_coldest(self.index, now);
        }
        if admit && !self.is_pinned(page) {
            self.admit(slot, page, now);
        }
        slot
    }

    fn note_pages(&self) {
        self.volume.quota.set_pages(self.index, self.pages.len());
    }

    /// Returns true if the policy knows the page.
    pub(crate) fn is_admitted(&self, slot: Slot) -> bool {
        self.last_reference.find(slot).is_some_and(|last_reference| last_reference.at() > 0)
    }

    /// Returns true if a part of the page is pinned. The policy does not know such pages, so that
    /// its searches need not skip them.
    pub(crate) fn is_pinned(&self, page: u64) -> bool {
        self.volume.pinned.overlaps(&self.paging.blocks_of(page))
    }

    /// Returns true if the page stays resident when it is clean.
    pub(crate) fn is_retained(&self, slot: Slot) -> bool {
        self.is_admitted(slot) || self.is_pinned(self.pages.get(slot).number)
    }

    /// Adds a page to the policy or removes it, so that the policy knows exactly the pages that are
    /// not pinned.
    pub(crate) fn note_pinned(&mut self, slot: Slot, now: Nanos) {
        let page = self.pages.get(slot).number;
        match (self.is_pinned(page), self.is_admitted(slot)) {
            (true, true) => {
                self.last_reference.get_mut(slot).0 = 0;
                self.policy.on_remove(slot, page, false);
            }
            (false, false) => self.admit(slot, page, now),
            _ => {}
        }
    }

    /// Calls [`Instance::note_pinned`] for all pinned pages, after a change of the page size.
    pub(crate) fn note_all_pinned(&mut self, now: Nanos) {
        if self.volume.pinned.blocks() > 0 {
            let pinned = |&slot: &Slot| self.is_pinned(self.pages.get(slot).number);
            for slot in self.pages.slots().filter(pinned).collect::<Vec<_>>() {
                self.note_pinned(slot, now);
            }
        }
    }

    fn admit(&mut self, slot: Slot, page: u64, now: Nanos) {
        let sampled = self.samples.as_ref().is_some_and(|samples| samples.sampler.admits(page));
        *self.last_reference.get_mut(slot) = LastReference::new(now, sampled);
        self.policy.on_insert(slot, page);
        if let Some(samples) = &mut self.samples {
            samples.references += 1;
            samples.misses += 1;
            if sampled {
                samples.samples.push(SampledReference { page, missed: true });
            }
        }
        self.flush_samples_if_full();
    }

    /// Returns the time of the last reference to a page that the policy has received; 0 if the
    /// policy does not know the page.
    pub(crate) fn last_reference_at(&self, slot: Slot) -> Nanos {
        self.last_reference
            .find(slot)
            .map_or(0, |last_reference| last_reference.at().saturating_sub(1))
    }

    /// Replaces the policy by an empty one. The new one receives all pages of the old one
    /// ([`hand_over`]), and expects `pages`.
    pub(crate) fn rebuild_policy(&mut self, mut policy: Box<dyn Policy>, pages: usize) {
        policy.on_capacity(pages);
        hand_over(&*self.policy, &mut *policy, &mut self.admitted());
        self.policy = policy;
    }

    /// Returns the pages that the policy knows: time of the last reference, slot and number.
    fn admitted(&self) -> Vec<(Nanos, Slot, u64)> {
        let known = self.pages.slots().filter_map(|slot| {
            let last_reference = self.last_reference.find(slot)?.at();
            (last_reference > 0).then(|| (last_reference, slot, self.pages.get(slot).number))
        });
        known.collect()
    }

    /// Passes a reference to the policy, if the policy knows the page: the page may have been
    /// evicted. The caller counts the reference; see [`Instance::reference`].
    #[inline]
    pub(crate) fn hit(&mut self, slot: Slot, now: Nanos) {
        if let Some(last_reference) = self.last_reference.find_mut(slot) {
            if last_reference.is_plain() {
                // A store of the same value would take the cache line from other processors.
                if last_reference.0 <= now {
                    last_reference.0 = now + 1;
                }
                self.policy.on_hit(slot);
            } else if last_reference.at() > 0 {
                last_reference.0 = last_reference.0.max((now + 1) | LastReference::SAMPLED);
                self.policy.on_hit(slot);
                self.note_sampled_hit(slot);
            }
        }
    }

    #[inline(never)]
    fn note_sampled_hit(&mut self, slot: Slot) {
        let page = self.pages.get(slot).number;
        let samples = self.samples.as_mut().expect("sampled for a tracker");
        samples.samples.push(SampledReference { page, missed: false });
    }

    /// Counts a reference to a resident page and passes it to the policy.
    pub(crate) fn reference(&mut self, slot: Slot, now: Nanos) {
        self.hit(slot, now);
        self.count_hits(1);
    }

    /// Counts references to resident pages.
    fn count_hits(&mut self, hits: u64) {
        if let Some(samples) = &mut self.samples {
            samples.references += hits;
        }
        self.flush_samples_if_full();
    }

    fn flush_samples_if_full(&mut self) {
        if self.samples.as_ref().is_some_and(PendingSamples::is_full) {
            self.flush_samples();
        }
    }

    /// Passes the collected samples to the volume's tracker.
    pub(crate) fn flush_samples(&mut self) {
        if let (Some(samples), Some(locked_tracker)) =
            (&mut self.samples, &self.volume.tuning.tracker)
            && locked_tracker.record_samples(samples)
        {
            self.volume.notify.notify();
        }
    }

    /// Prefetches the data of [`Instance::hit`].
    #[inline]
    fn expect_hit(&self, slot: Slot) {
        if let Some(last_reference) = self.last_reference.find(slot) {
            F::fetch_to_change(last_reference);
        }
    }

    /// Removes a page without resident blocks. Returns the time of its last reference.
    pub(crate) fn remove(&mut self, slot: Slot, evicted: bool) -> Nanos {
        let page = self.pages.remove(slot);
        self.note_pages();
        assert!(page.resident == 0 && page.is_clean_and_idle(), "{page:?} was removed");
        let last_reference = std::mem::take(self.last_reference.get_mut(slot));
        if last_reference.at() > 0 {
            self.policy.on_remove(slot, page.number, evicted);
        }
        last_reference.at().saturating_sub(1)
    }

    /// Returns true if a page has blocks that the store does not have yet.
    pub(crate) fn has_unclean(&self) -> bool {
        self.dirty_oldest != NO_SLOT || self.pages_under_writeback > 0
    }

    pub(crate) fn dirty_oldest(&self) -> Option<Slot> {
        (self.dirty_oldest != NO_SLOT).then_some(self.dirty_oldest)
    }

    fn dirty_newer(&self, slot: Slot) -> Option<Slot> {
        let newer = self.pages.get(slot).dirty_newer;
        (newer != NO_SLOT).then_some(newer)
    }

    /// Returns all dirty pages, oldest first.
    pub(crate) fn dirty_pages(&self) -> impl Iterator<Item = Slot> {
        std::iter::successors(self.dirty_oldest(), |&slot| self.dirty_newer(slot))
    }

    /// Returns the dirty pages whose writeback has not failed, oldest first.
    pub(crate) fn dirty_untried(&self) -> impl Iterator<Item = Slot> {
        let oldest = (self.dirty_untried != NO_SLOT).then_some(self.dirty_untried);
        std::iter::successors(oldest, |&slot| self.dirty_newer(slot))
    }

    /// Returns the pages whose writeback has failed, in the order of the failures.
    pub(crate) fn dirty_failed(&self) -> impl Iterator<Item = Slot> {
        let older = |slot: Slot| Some(slot).filter(|&slot| slot != NO_SLOT);
        let newest = match self.dirty_untried {
            NO_SLOT => self.dirty_newest,
            slot => self.pages.get(slot).dirty_older,
        };
        std::iter::successors(older(newest), move |&slot| older(self.pages.get(slot).dirty_older))
    }

    /// Adds a page that has become dirty at the young end of the list.
    pub(crate) fn link_dirty(&mut self, slot: Slot, now: Nanos, epoch: u64) {
        let older = self.dirty_newest;
        let page = self.pages.get_mut(slot);
        (page.dirty_at, page.dirty_epoch) = (now, epoch);
        (page.dirty_older, page.dirty_newer) = (older, NO_SLOT);
        if older == NO_SLOT {
            self.dirty_oldest = slot;
        } else {
            self.pages.get_mut(older).dirty_newer = slot;
        }
        self.dirty_newest = slot;
        if self.dirty_untried == NO_SLOT {
            self.dirty_untried = slot;
        }
    }

    /// Adds a page whose writeback, of `epoch`, has failed at the old end of the list. It gets at
    /// most the age of the next page, so that the list stays sorted: a flush and the lazy writer
    /// stop at the first page that is too young for them.
    pub(crate) fn link_dirty_again(&mut self, slot: Slot, epoch: u64) {
        let newer = self.dirty_oldest;
        let (at, before) = match newer {
            NO_SLOT => (Nanos::MAX, u64::MAX),
            newer => (self.pages.get(newer).dirty_at, self.pages.get(newer).dirty_epoch),
        };
        let page = self.pages.get_mut(slot);
        page.dirty_at = page.dirty_at.min(at);
        page.dirty_epoch = page.dirty_epoch.min(epoch).min(before);
        (page.dirty_older, page.dirty_newer) = (NO_SLOT, newer);
        if newer == NO_SLOT {
            self.dirty_newest = slot;
        } else {
            self.pages.get_mut(newer).dirty_older = slot;
        }
        self.dirty_oldest = slot;
    }

    /// Removes a page from the list of dirty pages.
    pub(crate) fn unlink_dirty(&mut self, slot: Slot) {
        let page = self.pages.get_mut(slot);
        let (older, newer) = (page.dirty_older, page.dirty_newer);
        (page.dirty_older, page.dirty_newer) = (NO_SLOT, NO_SLOT);
        if self.dirty_untried == slot {
            self.dirty_untried = newer;
        }
        if older == NO_SLOT {
            debug_assert_eq!(self.dirty_oldest, slot, "not in the list");
            self.dirty_oldest = newer;
        } else {
            self.pages.get_mut(older).dirty_newer = newer;
        }
        if newer == NO_SLOT {
            debug_assert_eq!(self.dirty_newest, slot, "not in the list");
            self.dirty_newest = older;
        } else {
            self.pages.get_mut(newer).dirty_older = older;
        }
    }

    /// Asserts that pages, frames, lists and counts agree. Returns the numbers of resident, dirty
    /// and writing blocks.
    pub(crate) fn check(&self, table: &Table) -> (u64, u64, u64) {
        self.policy.check();
        let (mut resident, mut dirty, mut writing, mut dirty_pages) = (0, 0, 0, 0);
        let (mut admitted, mut pages_under_writeback) = (0, 0);
        for slot in self.pages.slots() {
            let page = self.pages.get(slot);
            let mut counts = (0u16, 0u16, 0u16);
            for block in self.paging.blocks_of(page.number) {
                let Some(frame) = table.find(Key::new(self.volume.id, block)) else { continue };
                assert_eq!(table.slot(frame), slot, "frame {frame} of {page:?}");
                let state = table.state(frame);
                counts.0 += 1;
                counts.1 += u16::from(state.dirty != 0);
                counts.2 += u16::from(state.writing != 0);
            }
            assert_eq!(counts, (page.resident, page.dirty, page.writing), "{page:?}");
            assert!(page.resident > 0 || page.filling, "{page:?} holds nothing");
            assert!(
                page.writing == 0 || page.is_under_writeback(),
                "{page:?} is written by nobody"
            );
            assert_eq!(page.filling, self.fills.contains_key(&page.number), "{page:?}");
            resident += u64::from(page.resident);
            dirty += u64::from(page.dirty);
            writing += u64::from(page.writing);
            dirty_pages += usize::from(page.dirty > 0);
            admitted += usize::from(self.is_admitted(slot));
            let is_evictable = self.is_admitted(slot) && self.is_pinned(page.number);
            assert!(!is_evictable, "{page:?} is pinned, and the policy knows it");
            pages_under_writeback += u32::from(page.is_under_writeback());
            let is_known = self.is_retained(slot) || !page.is_clean_and_idle();
            assert!(is_known, "{page:?} is clean and can never be evicted");
        }
        assert_eq!(pages_under_writeback, self.pages_under_writeback, "pages being written");
        assert_eq!(admitted, self.policy.len(), "pages that the policy knows");
        let is_dirty = |&slot: &Slot| assert!(self.pages.get(slot).dirty > 0);
        let listed = self.dirty_pages().inspect(is_dirty).count();
        assert_eq!(listed, dirty_pages, "pages in the dirty list");
        let parts = self.dirty_failed().count() + self.dirty_untried().count();
        assert_eq!(parts, listed, "pages that failed, and those that were not tried");
        (resident, dirty, writing)
    }
}

/// The state that one lock guards.
#[derive(Debug)]
pub(crate) struct Shard<F: Frames> {
    pub(crate) rings: Vec<Arc<Ring>>,
    pub(crate) instances: Vec<Option<Instance<F>>>,
}

impl<F: Frames> Shard<F> {
    pub(crate) fn new() -> Self {
        Shard { rings: Vec::new(), instances: Vec::new() }
    }

    pub(crate) fn instance(&mut self, volume: u16) -> &mut Instance<F> {
        self.instances[usize::from(volume)].as_mut().expect("a volume that is there")
    }

    /// Returns the instance of a volume, or `None` if the volume was removed.
    pub(crate) fn instance_of(&mut self, volume: &Volume<F>) -> Option<&mut Instance<F>> {
        let instance = self.instances.get_mut(usize::from(volume.id))?.as_mut()?;
        std::ptr::eq(&raw const *instance.volume, volume).then_some(instance)
    }

    /// Passes the hits in all rings to the policies.
    pub(crate) fn drain(&mut self, now: Nanos) {
        for at in 0..self.rings.len() {
            let ring = Arc::clone(&self.rings[at]);
            self.drain_ring(&ring, now);
        }
    }

    /// Passes the hits in one ring to the policies. A thread whose ring is full drains only that
    /// ring: other processors keep writing the rings of other handles.
    pub(crate) fn drain_ring(&mut self, ring: &Ring, now: Nanos) {
        let instances = &mut self.instances;
        // The pages are scattered over memory; prefetching all of them overlaps the accesses.
        for (volume, slot) in ring.pending() {
            if let Some(Some(instance)) = instances.get(usize::from(volume)) {
                instance.expect_hit(slot);
            }
        }
        let mut last = None;
        let hits = ring.drain(|volume, slot| {
            if let Some(Some(instance)) = instances.get_mut(usize::from(volume)) {
                instance.hit(slot, now);
            }
            last = Some(volume);
        });
        // A handle has one volume, so all hits of a ring are of that volume.
        if let Some(Some(instance)) = last.and_then(|volume| instances.get_mut(usize::from(volume)))
        {
            instance.count_hits(hits);
        }
    }
}
