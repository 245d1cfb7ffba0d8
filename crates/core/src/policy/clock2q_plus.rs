//! Clock2Q+: a small queue in which a reference counts only once the page is no longer new.
//!
//! Zhai et al., "Clock2Q+: a simple and efficient replacement algorithm for metadata cache in
//! VMware vSAN", 2025 (arXiv 2511.21958, VLDB '26). As S3-FIFO it has a small queue (a tenth of the
//! cache), a main queue run as a CLOCK, and ghosts of nine tenths. One reference carries a page
//! from the small queue to the main one, but not one made in the correlation window: while fewer
//! pages came into the small queue after it than half of that queue holds. So references that
//! belong together (a page touched several times by one operation) count as one. This is the
//! variant with a fixed window; the main queue has one reference bit per page.

use super::small_and_main::SmallMain;
use super::{Policy, Slot};
use crate::page::Chunked;

/// References outside of the window that carry a page to the main queue.
const PROMOTE_AT: u8 = 1;
/// References are counted up to this: one bit.
const COUNT_MAX: u8 = 1;
/// The window is the small queue's pages by this.
const WINDOW_SHARE: usize = 2;

/// Clock2Q+ with a fixed correlation window.
#[derive(Debug, Default)]
pub struct Clock2QPlus {
    queues: SmallMain,
    /// Pages that came into the small queue, modulo 2^32.
    arrivals: u32,
    /// What `arrivals` was when the page of a slot came.
    arrived: Chunked<u32>,
}

impl Clock2QPlus {
    /// Bytes for each resident page, ghosts included.
    pub(super) const BYTES: usize = SmallMain::BYTES + size_of::<u32>();
}

impl Policy for Clock2QPlus {
    fn name(&self) -> &'static str {
        "clock2q+"
    }

    fn on_capacity(&mut self, pages: usize) {
        self.queues.capacity = pages;
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        if !self.queues.insert(slot, page) {
            self.arrivals = self.arrivals.wrapping_add(1);
            *self.arrived.get_mut(slot) = self.arrivals;
        }
    }

    fn on_hit(&mut self, slot: Slot) {
        let window = self.queues.small_max() / WINDOW_SHARE;
        let is_new = !self.queues.is_main(slot)
            && (self.arrivals.wrapping_sub(*self.arrived.get(slot)) as usize) < window;
        if !is_new {
            self.queues.count(slot, COUNT_MAX);
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
