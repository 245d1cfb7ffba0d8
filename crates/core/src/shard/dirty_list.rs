//! The dirty pages of an instance, oldest first. The links are in the pages.
//!
//! The pages whose writeback has failed since they became dirty are at the old end; the others,
//! which were not tried, follow.

use super::page::Page;
use crate::clock::Nanos;
use crate::page::Slab;
use crate::policy::{NO_SLOT, Slot};

/// The ends of the list.
#[derive(Debug)]
pub(crate) struct DirtyList {
    oldest: Slot,
    newest: Slot,
    /// The oldest page whose writeback has not been tried since it became dirty.
    untried: Slot,
}

impl Default for DirtyList {
    fn default() -> Self {
        DirtyList { oldest: NO_SLOT, newest: NO_SLOT, untried: NO_SLOT }
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NO_SLOT).then_some(slot)
}

impl DirtyList {
    pub(crate) fn oldest(&self) -> Option<Slot> {
        some(self.oldest)
    }

    /// Returns all dirty pages, oldest first.
    pub(crate) fn iter(&self, pages: &Slab<Page>) -> impl Iterator<Item = Slot> {
        std::iter::successors(self.oldest(), |&slot| some(pages.get(slot).dirty_newer))
    }

    /// Returns the pages whose writeback has not failed, oldest first.
    pub(crate) fn untried(&self, pages: &Slab<Page>) -> impl Iterator<Item = Slot> {
        std::iter::successors(some(self.untried), |&slot| some(pages.get(slot).dirty_newer))
    }

    /// Returns the pages whose writeback has failed, in the order of the failures.
    pub(crate) fn failed(&self, pages: &Slab<Page>) -> impl Iterator<Item = Slot> {
        let newest = some(self.untried).map_or(self.newest, |slot| pages.get(slot).dirty_older);
        std::iter::successors(some(newest), |&slot| some(pages.get(slot).dirty_older))
    }

    /// Adds a page that has become dirty at the young end.
    pub(crate) fn push(&mut self, pages: &mut Slab<Page>, slot: Slot, now: Nanos, epoch: u64) {
        let older = self.newest;
        let page = pages.get_mut(slot);
        (page.dirty_at, page.dirty_epoch) = (now, epoch);
        (page.dirty_older, page.dirty_newer) = (older, NO_SLOT);
        if older == NO_SLOT {
            self.oldest = slot;
        } else {
            pages.get_mut(older).dirty_newer = slot;
        }
        self.newest = slot;
        if self.untried == NO_SLOT {
            self.untried = slot;
        }
    }

    /// Adds a page whose writeback, of `epoch`, has failed at the old end. It gets at most the age
    /// of the next page, so that the list stays sorted: a flush and the lazy writer stop at the
    /// first page that is too young for them.
    pub(crate) fn push_failed(&mut self, pages: &mut Slab<Page>, slot: Slot, epoch: u64) {
        let newer = self.oldest;
        let (at, before) = match some(newer).map(|newer| pages.get(newer)) {
            None => (Nanos::MAX, u64::MAX),
            Some(newer) => (newer.dirty_at, newer.dirty_epoch),
        };
        let page = pages.get_mut(slot);
        page.dirty_at = page.dirty_at.min(at);
        page.dirty_epoch = page.dirty_epoch.min(epoch).min(before);
        (page.dirty_older, page.dirty_newer) = (NO_SLOT, newer);
        if newer == NO_SLOT {
            self.newest = slot;
        } else {
            pages.get_mut(newer).dirty_older = slot;
        }
        self.oldest = slot;
    }

    pub(crate) fn remove(&mut self, pages: &mut Slab<Page>, slot: Slot) {
        let Page { dirty_older: older, dirty_newer: newer, .. } = *pages.get(slot);
        if self.untried == slot {
            self.untried = newer;
        }
        if older == NO_SLOT {
            debug_assert_eq!(self.oldest, slot, "not in the list");
            self.oldest = newer;
        } else {
            pages.get_mut(older).dirty_newer = newer;
        }
        if newer == NO_SLOT {
            debug_assert_eq!(self.newest, slot, "not in the list");
            self.newest = older;
        } else {
            pages.get_mut(newer).dirty_older = older;
        }
    }

    /// Asserts that the list has `len` pages, all dirty; for tests.
    pub(super) fn check(&self, pages: &Slab<Page>, len: usize) {
        let is_dirty = |&slot: &Slot| assert!(pages.get(slot).dirty > 0);
        assert_eq!(self.iter(pages).inspect(is_dirty).count(), len, "pages in the dirty list");
        let parts = self.failed(pages).count() + self.untried(pages).count();
        assert_eq!(parts, len, "pages that failed, and those that were not tried");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_failed_are_before_the_others_and_no_younger() {
        let (mut pages, mut list) = (Slab::new(), DirtyList::default());
        let slots = [10, 11, 12].map(|number| pages.insert(Page::new(number)));
        for (at, slot) in (1..).zip(slots) {
            list.push(&mut pages, slot, at, at);
        }
        let [first, second, third] = slots;
        list.remove(&mut pages, third);
        list.push_failed(&mut pages, third, 3);
        assert_eq!(list.iter(&pages).collect::<Vec<_>>(), [third, first, second]);
        assert_eq!(list.failed(&pages).collect::<Vec<_>>(), [third]);
        assert_eq!(list.untried(&pages).collect::<Vec<_>>(), [first, second]);
        assert_eq!((pages.get(third).dirty_at, pages.get(third).dirty_epoch), (1, 1));
        for slot in slots {
            list.remove(&mut pages, slot);
        }
        assert_eq!((list.oldest(), list.failed(&pages).count()), (None, 0));
    }

    #[test]
    fn a_page_that_is_dirty_again_is_untried() {
        let (mut pages, mut list) = (Slab::new(), DirtyList::default());
        let slot = pages.insert(Page::new(1));
        list.push_failed(&mut pages, slot, 1);
        assert_eq!((list.failed(&pages).count(), list.untried(&pages).count()), (1, 0));
        list.remove(&mut pages, slot);
        list.push(&mut pages, slot, 5, 2);
        assert_eq!((list.failed(&pages).count(), list.untried(&pages).count()), (0, 1));
    }
}
