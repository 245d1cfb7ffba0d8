//! Regrouping: the pages of an instance become larger or smaller ones, without a block moving.
//!
//! All that a page says of its blocks is counted anew from their frames. What it says of time, the
//! new page takes over from the one that says most: it was used when the last of them was, and is
//! dirty since the first of them is, so that nothing waits longer to be written than before.

use super::{Instance, LastReference, Page};
use crate::curve::sampler::{PendingSamples, Sampler};
use crate::frames::Frames;
use crate::page::{Key, Paging, Slab, Table};
use crate::policy::Slot;
use crate::sync::atomic::Ordering;
use std::collections::BTreeMap;

impl<F: Frames> Instance<F> {
    /// Whether nobody refers to a page of it: none is being filled or written, and nobody waits
    /// for one to be.
    pub(crate) fn is_idle(&self) -> bool {
        self.fills.is_empty() && self.syncs.is_empty() && self.pages_under_writeback == 0
    }

    /// Groups the blocks into pages of `page_blocks`, of which the policy, a new one, expects
    /// `pages`. The instance must be settled, and its rings drained.
    pub(crate) fn regroup(&mut self, table: &Table, page_blocks: u32, pages: usize) {
        assert!(self.is_idle(), "pages that somebody refers to are regrouped");
        let before = self.paging;
        let dirty: Vec<_> = self.dirty_pages().collect();
        let old = std::mem::replace(&mut self.pages, Slab::new());
        let old_references = std::mem::take(&mut self.last_reference);
        (self.dirty_oldest, self.dirty_newest) = (super::NO_SLOT, super::NO_SLOT);
        self.dirty_untried = super::NO_SLOT;
        self.paging = Paging { page_blocks, ..before };
        // Which pages a reader has passed was said of other pages.
        self.drop_behind.clear();
        let mut slots = BTreeMap::new();
        let (mut failed, mut failing) = (0, 0);
        for slot in old.slots() {
            let page = old.get(slot);
            failed += u64::from(page.failing);
            let last_reference = old_references.find(slot).copied().unwrap_or_default().at();
            for block in before.blocks_of(page.number) {
                let Some(frame) = table.find(Key::new(self.volume.id, block)) else { continue };
                let state = table.state(frame);
                assert_eq!(state.writing, 0, "a block of a settled instance is being written");
                let slot = self.slot_for(&mut slots, block);
                table.set_slot(frame, slot);
                // The streams that it was read ahead of are forgotten: its first touch is a hit
                // like any other.
                table.unmark(frame);
                let is_failing = page.failing > 0 && state.dirty != 0;
                failing += u64::from(is_failing);
                let page = self.pages.get_mut(slot);
                page.resident += 1;
                page.dirty += u16::from(state.dirty != 0);
                page.failing += u16::from(is_failing);
                let new_reference = self.last_reference.get_mut(slot);
                new_reference.0 = new_reference.0.max(last_reference);
            }
        }
        // Old pages from the old end on, so that the new list is in order, too.
        for slot in dirty {
            let page = old.get(slot);
            let blocks = before.blocks_of(page.number);
            let numbers = self.paging.pages_of(&blocks);
            for slot in slots.range(numbers).map(|(_, &slot)| slot) {
                let new = self.pages.get(slot);
                // Epochs begin at 1: 0 is a page that is not in the list yet.
                if new.dirty > 0 && new.dirty_epoch == 0 {
                    self.link_dirty(slot, page.dirty_at, page.dirty_epoch);
                }
            }
        }
        self.note_pages();
        self.volume.failing.fetch_add(failing, Ordering::AcqRel);
        self.volume.failing.fetch_sub(failed, Ordering::AcqRel);
        // Nothing is noted until there is a tracker of such pages.
        self.samples = self.samples.take().map(|_| PendingSamples::new(Sampler::new(0, 0)));
        // What the old policy knows is of other pages. The new one learns of these from the coldest
        // on.
        self.policy = self.volume.policy().build();
        self.policy.on_capacity(pages);
        let mut known = self.admitted();
        known.sort_unstable();
        for (_, slot, page) in known {
            self.policy.on_insert(slot, page);
        }
    }

    /// Notes for a tracker with this gate from now on, that knows nothing of what was noted before.
    pub(crate) fn set_sampler(&mut self, gate: Sampler) {
        for slot in self.pages.slots() {
            let sampled = gate.admits(self.pages.get(slot).number);
            if let Some(last_reference) = self.last_reference.find_mut(slot)
                && last_reference.at() > 0
            {
                *last_reference = LastReference::new(last_reference.at() - 1, sampled);
            }
        }
        self.samples = Some(PendingSamples::new(gate));
    }

    fn slot_for(&mut self, slots: &mut BTreeMap<u64, Slot>, block: u64) -> Slot {
        let number = self.paging.page_of(block);
        *slots.entry(number).or_insert_with(|| self.pages.insert(Page::new(number)))
    }

    /// Clean pages that the policy does not know: parts of one that was only there to be written.
    pub(crate) fn unadmitted_pages(&self) -> Vec<Slot> {
        let is_stray =
            |&slot: &Slot| self.pages.get(slot).is_clean_and_idle() && !self.is_retained(slot);
        self.pages.slots().filter(is_stray).collect()
    }
}
