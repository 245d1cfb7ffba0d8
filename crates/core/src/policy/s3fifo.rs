//! S3-FIFO: a small queue that new pages must survive, a main queue, and a queue of ghosts.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP '23. A
//! page enters the small queue (a tenth of the cache); if it was referenced at least twice by the
//! time it reaches the end, it moves to the main queue, else it goes and leaves a ghost. A page
//! whose ghost is remembered enters the main queue at once. The main queue gives a page one more
//! round for each reference, up to three.

use super::ghost::Ghosts;
use super::list::{Links, List};
use super::{NO_SLOT, PASSED_OVER_MAX, Policy, Slot};
use crate::page::Chunked;

/// The small queue holds one page in this many.
const SMALL_SHARE: usize = 10;
/// References that carry a page from the small queue to the main one (section 4.1 of the paper).
const PROMOTE_AT: u8 = 2;
/// References are counted up to this.
const COUNT_MAX: u8 = 3;

#[derive(Clone, Debug, Default)]
struct Entry {
    count: u8,
    main: bool,
}

/// Three static FIFO queues.
#[derive(Debug)]
pub struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    entries: Chunked<Entry>,
    ghosts: Ghosts,
}

impl S3Fifo {
    /// Empty queues. The cache's size is what is resident: the queues keep their proportion to it.
    #[must_use]
    pub fn new() -> Self {
        S3Fifo {
            links: Links::default(),
            small: List::new(),
            main: List::new(),
            entries: Chunked::default(),
            ghosts: Ghosts::default(),
        }
    }

    fn small_is_over(&self) -> bool {
        self.main.len() == 0 || self.small.len() > self.len() / SMALL_SHARE
    }

    /// The oldest page of the small queue that may go; pages that earned it move to the main queue
    /// on the way.
    fn victim_small(
        &mut self,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut slot = self.small.tail();
        while slot != NO_SLOT && *budget > 0 {
            let newer = self.links.newer(slot);
            let entry = self.entries.get_mut(slot);
            if entry.count >= PROMOTE_AT {
                *entry = Entry { count: 0, main: true };
                self.links.remove(&mut self.small, slot);
                self.links.push_head(&mut self.main, slot);
                if !self.small_is_over() {
                    return None;
                }
            } else if accept(slot) {
                return Some(slot);
            } else {
                *budget -= 1;
            }
            slot = newer;
        }
        None
    }

    /// The oldest page of the main queue that may go; pages with references left go round.
    fn victim_main(
        &mut self,
        budget: &mut u32,
        accept: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let mut slot = self.main.tail();
        // A page goes round at most COUNT_MAX times before its count is used up.
        let mut steps = self.main.len() * (usize::from(COUNT_MAX) + 1);
        while slot != NO_SLOT && *budget > 0 && steps > 0 {
            steps -= 1;
            let newer = self.links.newer(slot);
            let entry = self.entries.get_mut(slot);
            if entry.count > 0 {
                entry.count -= 1;
                self.links.remove(&mut self.main, slot);
                self.links.push_head(&mut self.main, slot);
                slot = if newer == NO_SLOT { self.main.tail() } else { newer };
                continue;
            }
            if accept(slot) {
                return Some(slot);
            }
            *budget -= 1;
            slot = newer;
        }
        None
    }
}

impl Default for S3Fifo {
    fn default() -> Self {
        S3Fifo::new()
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3fifo"
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        let main = self.ghosts.take(page);
        *self.entries.get_mut(slot) = Entry { count: 0, main };
        let queue = if main { &mut self.main } else { &mut self.small };
        self.links.push_head(queue, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        let entry = self.entries.get_mut(slot);
        entry.count = (entry.count + 1).min(COUNT_MAX);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let mut budget = PASSED_OVER_MAX;
        if self.small_is_over()
            && let Some(slot) = self.victim_small(&mut budget, accept)
        {
            return Some(slot);
        }
        if let Some(slot) = self.victim_main(&mut budget, accept) {
            return Some(slot);
        }
        self.victim_small(&mut budget, accept)
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        let main = self.entries.get(slot).main;
        let queue = if main { &mut self.main } else { &mut self.small };
        self.links.remove(queue, slot);
        if evicted && !main {
            // Ghosts are as many as the main queue may hold.
            self.ghosts.remember(page, self.len().max(SMALL_SHARE));
        }
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn check(&self) {
        self.links.check(&self.small);
        self.links.check(&self.main);
        let mut slot = self.main.tail();
        while slot != NO_SLOT {
            assert!(self.entries.get(slot).main, "slot {slot} of the main queue");
            slot = self.links.newer(slot);
        }
    }
}
