//! A small queue that new pages must survive, and a main queue: what S3-FIFO and Clock2Q+ have in
//! common, with the ghosts of the small queue.
//!
//! The small queue is over its share when it holds that many pages; then it gives up one, else the
//! main queue does. What a full cache gives up, and what a reference is worth, is the owner's.

use super::ghost::Ghosts;
use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Slot};
use crate::page::Chunked;

/// The small queue holds one page in this many.
const SMALL_SHARE: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    count: u8,
    main: bool,
}

/// The two queues and the ghosts.
#[derive(Debug, Default)]
pub(super) struct SmallMain {
    links: Links,
    small: List,
    main: List,
    entries: Chunked<Entry>,
    ghosts: Ghosts,
    pub(super) capacity: usize,
}

impl SmallMain {
    /// Bytes for each resident page, ghosts included.
    pub(super) const BYTES: usize = Links::BYTES + size_of::<Entry>() + Ghosts::BYTES;

    fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// How many pages the small queue should hold.
    pub(super) fn small_max(&self) -> usize {
        (self.capacity() / SMALL_SHARE).max(1)
    }

    pub(super) fn is_main(&self, slot: Slot) -> bool {
        self.entries.get(slot).main
    }

    /// Takes a page in; whether it went to the main queue because its ghost was there.
    pub(super) fn insert(&mut self, slot: Slot, page: u64) -> bool {
        let main = self.ghosts.take(page).is_some();
        *self.entries.get_mut(slot) = Entry { count: 0, main };
        let queue = if main { &mut self.main } else { &mut self.small };
        self.links.push_head(queue, slot);
        main
    }

    /// Counts a reference, up to `most`.
    #[inline]
    pub(super) fn count(&mut self, slot: Slot, most: u8) {
        let entry = self.entries.find_mut(slot).expect("a resident page");
        // Most have been referenced so often already: nothing is stored then, which would take the
        // line from other processors.
        if entry.count < most {
            entry.count += 1;
        }
    }

    /// The page to evict, where so many references carry a page from the small queue to the main
    /// one. Each queue is searched as if it were alone: a small one full of dirty pages must not
    /// hide what is clean in the main one.
    pub(super) fn victim(
        &mut self,
        promote_at: u8,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        if self.main.len() == 0 || self.small.len() >= self.small_max() {
            self.victim_small(promote_at, accept).or_else(|| self.victim_main(accept))
        } else {
            self.victim_main(accept).or_else(|| self.victim_small(promote_at, accept))
        }
    }

    /// The oldest page of the small queue that may go; pages that earned it move to the main queue
    /// on the way.
    fn victim_small(
        &mut self,
        promote_at: u8,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut slot = self.small.tail();
        while slot != NO_SLOT && budget > 0 {
            let newer = self.links.newer(slot);
            let entry = self.entries.get_mut(slot);
            if entry.count >= promote_at {
                *entry = Entry { count: 0, main: true };
                self.links.remove(&mut self.small, slot);
                self.links.push_head(&mut self.main, slot);
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
            }
            slot = newer;
        }
        None
    }

    /// The oldest page of the main queue that may go; pages with references left go round.
    fn victim_main(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        let mut slot = self.main.tail();
        while slot != NO_SLOT && budget > 0 {
            let newer = self.links.newer(slot);
            let entry = self.entries.get_mut(slot);
            if entry.count > 0 {
                entry.count -= 1;
                self.links.move_to_head(&mut self.main, slot);
                // The newest one is met again at once, the others at the end of the walk.
                slot = if newer == NO_SLOT { slot } else { newer };
            } else if accept(slot) {
                return Some(slot);
            } else {
                budget -= 1;
                slot = newer;
            }
        }
        None
    }

    pub(super) fn remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let capacity = self.capacity();
        let main = self.entries.get(slot).main;
        let queue = if main { &mut self.main } else { &mut self.small };
        self.links.remove(queue, slot);
        if evicted && !main {
            // As many ghosts as the main queue should hold pages.
            self.ghosts.remember(page, (capacity - capacity / SMALL_SHARE).max(1));
        }
    }

    /// Asserts that queues, pages and ghosts are whole.
    pub(super) fn check(&self) {
        self.ghosts.check();
        for (queue, main) in [(&self.small, false), (&self.main, true)] {
            self.links.check(queue);
            let right = |slot| self.is_main(slot) == main;
            assert!(self.links.oldest_first(queue).all(right), "a page in the wrong queue");
        }
    }
}
