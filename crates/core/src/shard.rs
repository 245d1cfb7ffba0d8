//! Shards: parts of the cache with one lock each, and the pages in them.
//!
//! All volumes share the shards. Each volume has an instance in every shard, with its pages, its
//! policy, its list of dirty pages and its fills.

mod dirty_list;
mod page;
mod references;
mod regroup;

pub(crate) use page::Page;

use crate::clock::Nanos;
use crate::completion::{CompletionQueue, Ring};
use crate::curve::locked_tracker::LockedTracker;
use crate::frames::Frames;
use crate::mode::BypassReason;
use crate::page::{BlockKey, Paging, Slab, Table};
use crate::policy::{NO_SLOT, Policy, Slot};
use crate::queue::FillWaiter;
use crate::store::StoreError;
use crate::sync::Arc;
use crate::volume::Volume;
use dirty_list::DirtyList;
use references::References;
use std::collections::{BTreeMap, VecDeque};

/// The reason for which a page becomes resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A reference; the policy receives it.
    Reference,
    /// Read-ahead; the policy receives the page, and its first reference is still to come.
    ReadAhead,
    /// A reference that bypasses the policy.
    Bypass,
}

impl Admission {
    /// Returns the admission of a reference that may have a reason to bypass the cache.
    pub(crate) fn unless_bypassed(reason: Option<BypassReason>) -> Self {
        if reason.is_none() { Admission::Reference } else { Admission::Bypass }
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
    pub(crate) references: References,
    pub(crate) dirty: DirtyList,
    pub(crate) fills: BTreeMap<u64, Fill<F>>,
    pub(crate) syncs: BTreeMap<Slot, Vec<SyncWaiter<F>>>,
    /// Pages that a sequential reader has passed, and the time of that; they are evicted first.
    pub(crate) drop_behind: VecDeque<(u64, Nanos)>,
    /// Position of the search over all pages, whether warm or cold.
    pub(crate) hand: Slot,
    /// Number of pages under writeback.
    pub(crate) pages_under_writeback: u32,
}

impl<F: Frames> Instance<F> {
    pub(crate) fn new(index: usize, volume: Arc<Volume<F>>, policy: Box<dyn Policy>) -> Self {
        let tracker = volume.tuning.tracker.as_ref();
        let sampler = tracker.map(LockedTracker::sampler);
        Instance {
            index,
            paging: volume.paging(),
            volume,
            pages: Slab::new(),
            references: References::new(policy, sampler),
            dirty: DirtyList::default(),
            fills: BTreeMap::new(),
            syncs: BTreeMap::new(),
            drop_behind: VecDeque::new(),
            hand: 0,
            pages_under_writeback: 0,
        }
    }

    /// Returns the slot of a page, if the page has a resident block or is being filled.
    pub(crate) fn find(&self, table: &Table, page: u64) -> Option<Slot> {
        let resident = self
            .paging
            .blocks_of(page)
            .find_map(|block| table.find(BlockKey::new(self.volume.id, block)));
        match resident {
            Some(frame) => Some(table.slot(frame)),
            None => self.fills.get(&page).map(|fill| fill.slot),
        }
    }

    /// Returns the slot of a page, and adds the page if it is missing. Passes the reference, if it
    /// is one, to the policy.
    pub(crate) fn find_or_insert(
        &mut self,
        table: &Table,
        page: u64,
        admission: Admission,
        now: Nanos,
    ) -> Slot {
        if let Some(slot) = self.find(table, page) {
            match (admission, self.is_retained(slot)) {
                (Admission::Reference, false) => {
                    // Counted as a miss, but the policy also receives a reference.
                    self.admit(slot, page, now);
                    self.references.hit(&self.pages, slot, NO_SLOT, now);
                }
                (Admission::ReadAhead, false) => self.admit_ahead(slot, page, now),
                (Admission::ReadAhead, true) => {}
                (Admission::Reference, true) | (Admission::Bypass, _) => self.reference(slot, now),
            }
            return slot;
        }
        let slot = self.pages.insert(Page::new(page));
        self.note_pages();
        if self.volume.quota.coldest(self.index) == Nanos::MAX {
            self.volume.quota.set_coldest(self.index, now);
        }
        match admission {
            _ if self.is_pinned(page) => {}
            Admission::Reference => self.admit(slot, page, now),
            Admission::ReadAhead => self.admit_ahead(slot, page, now),
            Admission::Bypass => {}
        }
        slot
    }

    fn note_pages(&self) {
        self.volume.quota.set_pages(self.index, self.pages.len());
    }

    /// Returns true if a part of the page is pinned. The policy does not know such pages, so that
    /// its searches need not skip them.
    pub(crate) fn is_pinned(&self, page: u64) -> bool {
        self.volume.pinned.overlaps(&self.paging.blocks_of(page))
    }

    /// Returns true if the page stays resident when it is clean.
    pub(crate) fn is_retained(&self, slot: Slot) -> bool {
        self.references.is_known(slot) || self.is_pinned(self.pages.get(slot).number)
    }

    /// Adds a page to the policy or removes it, so that the policy knows exactly the pages that are
    /// not pinned.
    pub(crate) fn note_pinned(&mut self, slot: Slot, now: Nanos) {
        let page = self.pages.get(slot).number;
        match (self.is_pinned(page), self.references.is_known(slot)) {
            (true, true) => {
                self.references.remove(slot, page, false);
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

    /// Removes a page without resident blocks. Returns the time of its last reference.
    pub(crate) fn remove(&mut self, slot: Slot, evicted: bool) -> Nanos {
        let page = self.pages.remove(slot);
        self.note_pages();
        assert!(page.resident == 0 && page.is_clean_and_idle(), "{page:?} was removed");
        self.references.remove(slot, page.number, evicted)
    }

    fn admit(&mut self, slot: Slot, page: u64, now: Nanos) {
        self.references.admit(slot, page, now);
        self.references.flush_if_full(&self.volume);
    }

    fn admit_ahead(&mut self, slot: Slot, page: u64, now: Nanos) {
        self.references.admit_ahead(slot, page, now);
        self.references.flush_if_full(&self.volume);
    }

    /// Passes a reference to a resident page to the policy, and counts it.
    pub(crate) fn reference(&mut self, slot: Slot, now: Nanos) {
        self.references.hit(&self.pages, slot, NO_SLOT, now);
        self.count_hits(1);
    }

    fn count_hits(&mut self, hits: u64) {
        self.references.count_hits(hits);
        self.references.flush_if_full(&self.volume);
    }

    /// Returns true if a page has blocks that the store does not have yet.
    pub(crate) fn has_unclean(&self) -> bool {
        self.dirty.oldest().is_some() || self.pages_under_writeback > 0
    }

    /// Asserts that pages, frames, lists and counts agree. Returns the numbers of resident, dirty
    /// and writing blocks.
    pub(crate) fn check(&self, table: &Table) -> (u64, u64, u64) {
        self.references.policy.check();
        let (mut resident, mut dirty, mut writing, mut dirty_pages) = (0, 0, 0, 0);
        let (mut admitted, mut pages_under_writeback) = (0, 0);
        for slot in self.pages.slots() {
            let page = self.pages.get(slot);
            let mut counts = (0u16, 0u16, 0u16);
            for block in self.paging.blocks_of(page.number) {
                let Some(frame) = table.find(BlockKey::new(self.volume.id, block)) else {
                    continue;
                };
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
                "{page:?} is written outside of a writeback"
            );
            assert_eq!(page.filling, self.fills.contains_key(&page.number), "{page:?}");
            resident += u64::from(page.resident);
            dirty += u64::from(page.dirty);
            writing += u64::from(page.writing);
            dirty_pages += usize::from(page.dirty > 0);
            admitted += usize::from(self.references.is_known(slot));
            let is_evictable = self.references.is_known(slot) && self.is_pinned(page.number);
            assert!(!is_evictable, "{page:?} is pinned, and the policy knows it");
            pages_under_writeback += u32::from(page.is_under_writeback());
            let is_known = self.is_retained(slot) || !page.is_clean_and_idle();
            assert!(is_known, "{page:?} is clean and can never be evicted");
        }
        assert_eq!(pages_under_writeback, self.pages_under_writeback, "pages being written");
        assert_eq!(admitted, self.references.policy.len(), "pages that the policy knows");
        self.dirty.check(&self.pages, dirty_pages);
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
        let Some(Some(instance)) = self.instances.get_mut(usize::from(ring.volume())) else {
            // The volume was removed.
            ring.drain(|_| ());
            return;
        };
        // The pages are scattered over memory; prefetching all of them overlaps the accesses.
        for slot in ring.pending() {
            instance.references.expect_hit::<F>(slot);
        }
        let Instance { references, pages, .. } = instance;
        let mut previous = NO_SLOT;
        let hits = ring.drain(|slot| {
            references.hit(pages, slot, previous, now);
            previous = slot;
        });
        if hits > 0 {
            instance.count_hits(hits);
        }
    }
}
