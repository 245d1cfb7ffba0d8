//! Clock2Q+: a small queue in which references to a recently inserted page do not count.
//!
//! Zhai et al., "Clock2Q+: a simple and efficient replacement algorithm for metadata cache in
//! VMware vSAN", 2025 (arXiv 2511.21958, VLDB '26). Like S3-FIFO it has a small queue (a tenth of
//! the cache), a main queue run as a CLOCK, and ghosts of nine tenths. One reference promotes a
//! page from the small queue to the main one, unless the reference falls into the correlation
//! window: as long as fewer pages were inserted into the small queue after the page than half of
//! that queue holds. So correlated references (a page touched several times by one operation) count
//! as one. This is the variant with a fixed window; the main queue has one reference bit per page.

use super::small_and_main::SmallMain;
use super::{Policy, Slot};
use crate::page::ChunkedArray;

/// The number of references outside the window that promote a page to the main queue.
const PROMOTE_AT: u8 = 1;
/// The maximum of a reference count: one bit.
const COUNT_MAX: u8 = 1;
/// The window is the small queue's pages divided by this.
const WINDOW_SHARE: usize = 2;

/// Clock2Q+ with a fixed correlation window.
#[derive(Debug, Default)]
pub struct Clock2QPlus {
    queues: SmallMain,
    /// The number of pages inserted into the small queue, modulo 2^32.
    arrivals: u32,
    /// The value of `arrivals` at the insertion of each slot's page.
    arrival_of: ChunkedArray<u32>,
}

impl Clock2QPlus {
    /// Memory per resident page in bytes, ghosts included.
    pub(super) const BYTES: usize = SmallMain::BYTES + size_of::<u32>();
}

impl Policy for Clock2QPlus {
    fn on_capacity(&mut self, pages: usize) {
        self.queues.set_capacity(pages);
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        if !self.queues.insert(slot, page) {
            self.arrivals = self.arrivals.wrapping_add(1);
            *self.arrival_of.get_mut(slot) = self.arrivals;
        }
    }

    fn on_hit(&mut self, slot: Slot) {
        let window = self.queues.small_max().div_ceil(WINDOW_SHARE);
        let is_new = !self.queues.is_main(slot)
            && (self.arrivals.wrapping_sub(*self.arrival_of.get(slot)) as usize) < window;
        if !is_new {
            self.queues.count_reference(slot, COUNT_MAX);
        }
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
