//! Changes of the page size of an instance. No block moves.
//!
//! The counts of the new pages are computed from the frames of their blocks. Times are taken from
//! the old pages: a new page has the latest of their references, and is dirty since the earliest of
//! them, so no block waits longer for its writeback than before.

use super::references::{LastReference, References};
use super::{DirtyList, Instance, Page};
use crate::curve::sampler::{PendingSamples, Sampler};
use crate::frames::Frames;
use crate::page::{BlockKey, Paging, Slab, Table};
use crate::policy::Slot;
use std::collections::BTreeMap;

impl<F: Frames> Instance<F> {
    /// Returns true if no page is being filled or written, and no write waits for a page.
    pub(crate) fn is_idle(&self) -> bool {
        self.fills.is_empty() && self.syncs.is_empty() && self.pages_under_writeback == 0
    }

    /// Groups the blocks into pages of `page_blocks`, with a new policy that expects `pages`. The
    /// instance must be idle, and its rings drained.
    pub(crate) fn regroup(&mut self, table: &Table, page_blocks: u32, pages: usize) {
        assert!(self.is_idle(), "pages with references are regrouped");
        let before = self.paging;
        let dirty: Vec<_> = self.dirty.iter(&self.pages).collect();
        let old = std::mem::replace(&mut self.pages, Slab::new());
        // The old policy knows pages of the old size. No samples are collected until there is a
        // tracker for pages of this size.
        let sampler = self.references.samples.as_ref().map(|_| Sampler::new(0, 0));
        let references = References::new(self.volume.policy().build(), sampler);
        let old_references = std::mem::replace(&mut self.references, references);
        self.dirty = DirtyList::default();
        self.paging = Paging { page_blocks, ..before };
        // These are numbers of pages of the old size.
        self.drop_behind.clear();
        let mut slots = BTreeMap::new();
        let (mut failed, mut failing) = (0, 0);
        for slot in old.slots() {
            let page = old.get(slot);
            failed += u64::from(page.failing);
            let last_reference = old_references.last.find(slot).copied().unwrap_or_default().at();
            for block in before.blocks_of(page.number) {
                let Some(frame) = table.find(BlockKey::new(self.volume.id, block)) else {
                    continue;
                };
                let state = table.state(frame);
                assert_eq!(state.writing, 0, "a block of a settled instance is being written");
                let slot = self.slot_for(&mut slots, block);
                table.set_slot(frame, slot);
                // The streams that the page was read ahead of are forgotten: its first touch is an
                // ordinary hit.
                table.unmark(frame);
                let is_failing = page.failing > 0 && state.dirty != 0;
                failing += u64::from(is_failing);
                let page = self.pages.get_mut(slot);
                page.resident += 1;
                page.dirty += u16::from(state.dirty != 0);
                page.failing += u16::from(is_failing);
                let new_reference = self.references.last.get_mut(slot);
                new_reference.0 = new_reference.0.max(last_reference);
            }
        }
        // From the oldest page on, so that the new list is sorted too.
        for slot in dirty {
            let page = old.get(slot);
            let blocks = before.blocks_of(page.number);
            let numbers = self.paging.pages_of(&blocks);
            for slot in slots.range(numbers).map(|(_, &slot)| slot) {
                let new = self.pages.get(slot);
                // Epochs begin at 1: 0 means that the page is not in the list yet.
                if new.dirty > 0 && new.dirty_epoch == 0 {
                    self.dirty.push(&mut self.pages, slot, page.dirty_at, page.dirty_epoch);
                }
            }
        }
        self.note_pages();
        self.volume.dirty.change_failing(failing, failed);
        // The new policy receives the new pages, coldest first.
        self.references.policy.on_capacity(pages);
        let mut known = self.references.known(&self.pages);
        known.sort_unstable();
        for (_, slot, page) in known {
            self.references.policy.on_insert(slot, page);
        }
    }

    /// Collects samples for a new tracker with this sampler from now on. Earlier samples are
    /// dropped.
    pub(crate) fn set_sampler(&mut self, sampler: Sampler) {
        for slot in self.pages.slots() {
            let is_sampled = sampler.admits(self.pages.get(slot).number);
            if let Some(last_reference) = self.references.last.find_mut(slot)
                && last_reference.at() > 0
            {
                *last_reference = LastReference::new(last_reference.at() - 1, is_sampled);
            }
        }
        self.references.samples = Some(PendingSamples::new(sampler));
    }

    fn slot_for(&mut self, slots: &mut BTreeMap<u64, Slot>, block: u64) -> Slot {
        let number = self.paging.page_of(block);
        *slots.entry(number).or_insert_with(|| self.pages.insert(Page::new(number)))
    }

    /// Returns the clean pages that the policy does not know: parts of a page that was resident
    /// only until its writeback.
    pub(crate) fn unadmitted_pages(&self) -> Vec<Slot> {
        let is_stray =
            |&slot: &Slot| self.pages.get(slot).is_clean_and_idle() && !self.is_retained(slot);
        self.pages.slots().filter(is_stray).collect()
    }
}
