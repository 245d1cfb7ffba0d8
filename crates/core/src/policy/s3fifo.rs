//! S3-FIFO: a small queue for new pages, a main queue, and a queue of ghosts.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP '23. A
//! page enters the small queue (a tenth of the cache). If it was referenced at least twice by the
//! time it reaches the end, it moves to the main queue; otherwise it is evicted and leaves a ghost.
//! A page that has a ghost enters the main queue at once. In the main queue a page gets one more
//! round for each reference, up to three. There are as many ghosts as nine tenths of the cache's
//! pages.

use super::small_and_main::SmallMain;
use super::{Policy, Slot};

/// The number of references that promote a page to the main queue (section 4.1 of the paper).
const PROMOTE_AT: u8 = 2;
/// The maximum of a reference count.
const COUNT_MAX: u8 = 3;

/// Three static FIFO queues.
#[derive(Debug, Default)]
pub struct S3Fifo {
    queues: SmallMain,
}

impl S3Fifo {
    /// Memory per resident page in bytes, ghosts included.
    pub(super) const BYTES: usize = SmallMain::BYTES;
}

impl Policy for S3Fifo {
    fn on_capacity(&mut self, pages: usize) {
        self.queues.set_capacity(pages);
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        self.queues.insert(slot, page);
    }

    fn on_hit(&mut self, slot: Slot) {
        self.queues.count_reference(slot, COUNT_MAX);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.queues.victim(PROMOTE_AT, accept)
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        self.queues.remove(slot, page, evicted);
    }

    fn is_protected(&self, slot: Slot) -> bool {
        self.queues.is_main(slot)
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn check(&self) {
        self.queues.check();
    }
}
