//! Shards: the parts of the cache that one lock guards each, and the pages in them.
//!
//! All volumes share the shards; each has an instance in every shard, with pages, a policy, the
//! list of dirty pages and what is being filled.

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
use crate::sync::atomic::Ordering;
use crate::volume::Volume;
use std::collections::{BTreeMap, VecDeque};

/// A page with at least one block resident, or being filled.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Page number in the volume.
    pub(crate) number: u64,
    /// When, and at which epoch of the volume, it became dirty.
    pub(crate) dirty_at: Nanos,
    pub(crate) dirty_epoch: u64,
    /// Neighbours in the list of dirty pages.
    dirty_older: Slot,
    dirty_newer: Slot,
    /// Counts the rounds of writing it back; at most one runs at a time.
    pub(crate) writeback_seq: u32,
    /// Blocks resident, dirty, being written; blocks dirty since a write of them failed.
    pub(crate) resident: u16,
    pub(crate) dirty: u16,
    pub(crate) writing: u16,
    pub(crate) failing: u16,
    /// Operations of the round at hand that are not done, and whether one of them failed.
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

    /// Whether it is being written back.
    pub(crate) fn is_under_writeback(&self) -> bool {
        self.ops > 0
    }

    /// Whether a write of it can be started.
    pub(crate) fn can_start_writeback(&self) -> bool {
        self.dirty > 0 && !self.is_under_writeback()
    }

    /// Whether it may be evicted, as far as the page itself can tell.
    pub(crate) fn is_clean_and_idle(&self) -> bool {
        self.dirty == 0 && self.writing == 0 && !self.filling
    }
}

/// When a page was referenced last, as far as the policy has been told, and one more: 0 is a page
/// that the policy does not know. Such a page, of write-around mode, goes when it is clean.
///
/// Apart from [`Page`], since each hit comes here: eight pages share a line of the processor's
/// cache. The upper bit says that the page belongs to the sample of the volume's tracker, so one
/// test of the sign finds what most hits are: a known page that does not.
#[derive(Clone, Copy, Debug, Default)]
struct LastReference(u64);

impl LastReference {
    const SAMPLED: u64 = 1 << 63;

    fn new(now: Nanos, sampled: bool) -> Self {
        LastReference((now + 1) | if sampled { Self::SAMPLED } else { 0 })
    }

    /// When, and one more; 0 if the policy does not know the page.
    fn at(self) -> Nanos {
        self.0 & !Self::SAMPLED
    }

    /// Whether the policy knows the page and no sample does.
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
    /// Frames of operations that failed, for a second try at exactly what was asked for.
    pub(crate) failed_frames: Vec<F::WritePin>,
    pub(crate) waiters: Vec<FillWaiter<F>>,
    /// Whether it was begun by read-ahead, and nobody has come to wait for it since.
    pub(crate) ahead: bool,
}

/// Who waits for a page to be written.
#[derive(Debug)]
pub(crate) struct SyncWaiter<F: Frames> {
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) token: u64,
    /// The round that carries the waiter's bytes.
    pub(crate) writeback_seq: u32,
    pub(crate) fua: bool,
}

/// One volume's part of a shard.
#[derive(Debug)]
pub(crate) struct Instance<F: Frames> {
    /// The shard.
    pub(crate) index: usize,
    pub(crate) volume: Arc<Volume<F>>,
    pub(crate) paging: Paging,
    pub(crate) pages: Slab<Page>,
    last_reference: Chunked<LastReference>,
    pub(crate) policy: Box<dyn Policy>,
    dirty_oldest: Slot,
    dirty_newest: Slot,
    /// The oldest dirty page that the store was not given since it became dirty. The write of each
    /// page before it in the list has failed.
    dirty_untried: Slot,
    pub(crate) fills: BTreeMap<u64, Fill<F>>,
    pub(crate) syncs: BTreeMap<Slot, Vec<SyncWaiter<F>>>,
    /// Pages that a reader in order has passed: they go first.
    pub(crate) drop_behind: VecDeque<(u64, Nanos)>,
    /// Where the next search among all pages, warm or cold, begins.
    pub(crate) hand: Slot,
    /// Pages that are being written.
    pub(crate) pages_under_writeback: u32,
    /// What the volume's tracker was not told of yet, if it has one.
    samples: Option<PendingSamples>,
}

impl<F: Frames> Instance<F> {
    pub(crate) fn new(index: usize, volume: Arc<Volume<F>>, policy: Box<dyn Policy>) -> Self {
        let samples = volume
            .locked_tracker
            .as_ref()
            .map(|locked_tracker| PendingSamples::new(locked_tracker.gate()));
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

    /// The slot of a page, if it is resident in part or being filled.
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

    /// The slot of a page, which is made if there is none.
    pub(crate) fn find_or_insert(
        &mut self,
        table: &Table,
        page: u64,
        admit: bool,
        now: Nanos,
    ) -> Slot {
        if let Some(slot) = self.find(table, page) {
            if admit && !self.is_retained(slot) {
                // Counted as the miss that it is; the policy is told of a reference all the same.
                self.admit(slot, page, now);
                self.hit(slot, now);
            } else {
                self.reference(slot, now);
            }
            return slot;
        }
        let slot = self.pages.insert(Page::new(page));
        self.note_pages();
        let coldest = &self.volume.quota.coldest[self.index];
        if coldest.load(Ordering::Relaxed) == Nanos::MAX {
            coldest.store(now, Ordering::Relaxed);
        }
        if admit && !self.is_pinned(page) {
            self.admit(slot, page, now);
        }
        slot
    }

    fn note_pages(&self) {
        self.volume.quota.pages[self.index].store(self.pages.len(), Ordering::Relaxed);
    }

    /// Whether the policy knows the page.
    pub(crate) fn is_admitted(&self, slot: Slot) -> bool {
        self.last_reference.find(slot).is_some_and(|last_reference| last_reference.at() > 0)
    }

    /// Whether an administrator has pinned a part of the page. Then no policy knows it, so that
    /// none has to pass it over again and again.
    pub(crate) fn is_pinned(&self, page: u64) -> bool {
        self.volume.pinned.overlaps(&self.paging.blocks_of(page))
    }

    /// Whether the page is to stay when it is clean.
    pub(crate) fn is_retained(&self, slot: Slot) -> bool {
        self.is_admitted(slot) || self.is_pinned(self.pages.get(slot).number)
    }

    /// Makes what the policy knows of a page agree with whether it is pinned.
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

    /// The same for every page, after a change of the page size.
    pub(crate) fn note_all_pinned(&mut self, now: Nanos) {
        if self.volume.pinned.blocks() > 0 {
            let pinned = |&slot: &Slot| self.is_pinned(self.pages.get(slot).number);
            for slot in self.pages.slots().filter(pinned).collect::<Vec<_>>() {
                self.note_pinned(slot, now);
            }
        }
    }

    fn admit(&mut self, slot: Slot, page: u64, now: Nanos) {
        let sampled = self.samples.as_ref().is_some_and(|samples| samples.gate.admits(page));
        *self.last_reference.get_mut(slot) = LastReference::new(now, sampled);
        self.policy.on_insert(slot, page);
        if let Some(samples) = &mut self.samples {
            samples.references += 1;
            samples.misses += 1;
            if sampled {
                samples.noted.push(SampledReference { page, missed: true });
            }
        }
        self.flush_samples_if_full();
    }

    /// When a page was referenced last, as far as the policy has been told; 0 if it does not know
    /// the page.
    pub(crate) fn last_reference_at(&self, slot: Slot) -> Nanos {
        self.last_reference
            .find(slot)
            .map_or(0, |last_reference| last_reference.at().saturating_sub(1))
    }

    /// Puts an empty policy in the place of the one that is there. It learns of all pages that the
    /// old one knew ([`hand_over`]), and expects `pages`.
    pub(crate) fn rebuild_policy(&mut self, mut policy: Box<dyn Policy>, pages: usize) {
        policy.on_capacity(pages);
        hand_over(&*self.policy, &mut *policy, &mut self.admitted());
        self.policy = policy;
    }

    /// What the policy knows: when each page was referenced last, its slot and its number.
    fn admitted(&self) -> Vec<(Nanos, Slot, u64)> {
        let known = self.pages.slots().filter_map(|slot| {
            let last_reference = self.last_reference.find(slot)?.at();
            (last_reference > 0).then(|| (last_reference, slot, self.pages.get(slot).number))
        });
        known.collect()
    }

    /// Tells the policy of a reference, if it knows the page: it may have gone meanwhile. Whoever
    /// calls this counts the reference; see [`Instance::reference`].
    #[inline]
    pub(crate) fn hit(&mut self, slot: Slot, now: Nanos) {
        if let Some(last_reference) = self.last_reference.find_mut(slot) {
            if last_reference.is_plain() {
                // Storing what is there already would take the line from other processors.
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
        samples.noted.push(SampledReference { page, missed: false });
    }

    /// Counts a reference to a resident page and tells the policy of it.
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

    /// Hands what was noted to the volume's tracker.
    pub(crate) fn flush_samples(&mut self) {
        if let (Some(samples), Some(locked_tracker)) =
            (&mut self.samples, &self.volume.locked_tracker)
            && locked_tracker.take_in(samples)
        {
            self.volume.notify.notify();
        }
    }

    /// Has what [`Instance::hit`] needs come near.
    #[inline]
    fn expect_hit(&self, slot: Slot) {
        if let Some(last_reference) = self.last_reference.find(slot) {
            F::fetch_to_change(last_reference);
        }
    }

    /// Removes a page of which nothing is resident; when it had been touched last.
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

    /// Returns whether a page has blocks that the store does not have yet.
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

    /// Returns all dirty pages, the oldest first.
    pub(crate) fn dirty_pages(&self) -> impl Iterator<Item = Slot> {
        std::iter::successors(self.dirty_oldest(), |&slot| self.dirty_newer(slot))
    }

    /// Returns the dirty pages whose write has not failed, the oldest first.
    pub(crate) fn dirty_untried(&self) -> impl Iterator<Item = Slot> {
        let oldest = (self.dirty_untried != NO_SLOT).then_some(self.dirty_untried);
        std::iter::successors(oldest, |&slot| self.dirty_newer(slot))
    }

    /// Returns the pages whose write has failed, the one that failed first before the others.
    pub(crate) fn dirty_failed(&self) -> impl Iterator<Item = Slot> {
        let older = |slot: Slot| Some(slot).filter(|&slot| slot != NO_SLOT);
        let newest = match self.dirty_untried {
            NO_SLOT => self.dirty_newest,
            slot => self.pages.get(slot).dirty_older,
        };
        std::iter::successors(older(newest), move |&slot| older(self.pages.get(slot).dirty_older))
    }

    /// Puts a page that has become dirty at the young end of the list.
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

    /// Puts a page whose write, of `epoch`, failed back at the old end. It counts as old as the
    /// page that it is put before, so that the list stays in order: the flush and the lazy writer
    /// look no further than the first page that is too young for them.
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

    /// Takes a page out of the list of dirty pages.
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

    /// Asserts that pages, frames, lists and counts agree; gives (resident, dirty, writing) blocks.
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

/// What one lock guards.
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

    /// The part of a volume that may have been removed.
    pub(crate) fn instance_of(&mut self, volume: &Volume<F>) -> Option<&mut Instance<F>> {
        let instance = self.instances.get_mut(usize::from(volume.id))?.as_mut()?;
        std::ptr::eq(&raw const *instance.volume, volume).then_some(instance)
    }

    /// Tells the policies of the hits in all rings.
    pub(crate) fn drain(&mut self, now: Nanos) {
        for at in 0..self.rings.len() {
            let ring = Arc::clone(&self.rings[at]);
            self.drain_ring(&ring, now);
        }
    }

    /// Tells the policies of the hits in one ring. Whoever hits often does no more: the rings of
    /// other lanes are memory that their processors write all the time.
    pub(crate) fn drain_ring(&mut self, ring: &Ring, now: Nanos) {
        let instances = &mut self.instances;
        // The pages lie all over memory: asked for together they come together.
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
        // A lane has one volume, so a ring has hits of one.
        if let Some(Some(instance)) = last.and_then(|volume| instances.get_mut(usize::from(volume)))
        {
            instance.count_hits(hits);
        }
    }
}
