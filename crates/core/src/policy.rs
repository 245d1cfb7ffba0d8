//! Replacement policies: who is admitted, who is evicted.
//!
//! A policy works on slots, small numbers that name the pages that are resident now; pages that are
//! gone are remembered, where a policy does so, by page number (ghosts). The engine and the
//! simulator use the same objects. One file each, named as in the literature; docs/policies.md
//! compares them.
//!
//! What a policy keeps is in proportion to the pages that it holds or was told that it will hold,
//! whichever is more: that number is the capacity of which its lists have their shares.

mod arc;
mod clock;
mod clock2q_plus;
mod fifo;
mod ghost;
mod ghost_lists;
mod index;
mod kind;
mod linux;
mod lirs;
mod list;
mod lru;
mod random;
mod s3fifo;
mod sieve;
mod sketch;
mod slru;
mod small_and_main;
mod two_q;
mod wtinylfu;

pub use arc::Arc;
pub use clock::Clock;
pub use clock2q_plus::Clock2QPlus;
pub use fifo::Fifo;
pub use kind::PolicyKind;
pub use linux::Linux;
pub use lirs::Lirs;
pub use lru::Lru;
pub use random::{Random, SEED};
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use slru::Slru;
pub use two_q::TwoQ;
pub use wtinylfu::WTinyLfu;

/// Names a resident page inside one policy; small, dense, reused.
pub type Slot = u32;
/// No slot.
pub const NO_SLOT: Slot = u32::MAX;

/// How many candidates that cannot be evicted now (dirty, pinned, being filled) a search for a
/// victim passes over before it gives up, or before it goes on to the other queue. Bounds the time
/// under the lock of a shard; the lazy writer is told of the first dirty pages that are passed
/// over, so that a later search finds them clean.
pub const PASSED_OVER_MAX: u32 = 64;

/// A replacement policy over resident pages.
///
/// A reference to a resident page is [`Policy::on_hit`]. A reference to any other page is
/// [`Policy::on_miss`], then, if there is no room, [`Policy::victim`] and [`Policy::on_remove`] of
/// what it gave, then [`Policy::on_insert`].
pub trait Policy: Send + std::fmt::Debug {
    /// Its name in the literature and on the command line.
    fn name(&self) -> &'static str;
    /// How many pages it is expected to hold when the cache is full. It may hold more or fewer, and
    /// be told another number at any time.
    fn on_capacity(&mut self, _pages: usize) {}
    /// A page that is not resident was referenced and is about to come; told before the victim for
    /// it is chosen. It may be told twice, and the page may not come after all.
    fn on_miss(&mut self, _page: u64) {}
    /// A page became resident. That it missed need not have been told before.
    fn on_insert(&mut self, slot: Slot, page: u64);
    /// A resident page was referenced again.
    fn on_hit(&mut self, slot: Slot);
    /// The page to evict next among those that `accept` takes, searched from the coldest on. It
    /// stays resident until [`Policy::on_remove`].
    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot>;
    /// A page is no longer resident: `evicted` to make room, or gone for another reason (discarded,
    /// failed to fill), in which case it leaves no ghost.
    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool);
    /// Whether a resident page has earned a place that new pages have not: the main queue, the list
    /// of what was referenced again. Policies that keep all pages alike say no.
    fn is_protected(&self, _slot: Slot) -> bool {
        false
    }
    /// Resident pages.
    fn len(&self) -> usize;
    /// Whether no page is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Asserts every invariant of the structure; for tests.
    fn check(&self);
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn on_capacity(&mut self, pages: usize) {
        (**self).on_capacity(pages);
    }

    fn on_miss(&mut self, page: u64) {
        (**self).on_miss(page);
    }

    fn on_insert(&mut self, slot: Slot, page: u64) {
        (**self).on_insert(slot, page);
    }

    fn on_hit(&mut self, slot: Slot) {
        (**self).on_hit(slot);
    }

    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        (**self).victim(accept)
    }

    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool) {
        (**self).on_remove(slot, page, evicted);
    }

    fn is_protected(&self, slot: Slot) -> bool {
        (**self).is_protected(slot)
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn check(&self) {
        (**self).check();
    }
}

/// Tells a new policy of the pages that an old one has: when each was referenced last, its slot and
/// its number. They come from the coldest on, and those that had earned a place after the others,
/// in a way that they earn one again: as ghosts that come back, or else by a reference. Ghosts of
/// the old policy are lost, since no two policies mean the same by them.
pub fn hand_over(from: &dyn Policy, to: &mut dyn Policy, pages: &mut [(u64, Slot, u64)]) {
    pages.sort_unstable_by_key(|&(touched, slot, _)| (from.is_protected(slot), touched, slot));
    for &mut (_, slot, page) in pages {
        to.on_insert(slot, page);
        if from.is_protected(slot) && !to.is_protected(slot) {
            to.on_remove(slot, page, true);
            to.on_insert(slot, page);
            if !to.is_protected(slot) {
                to.on_hit(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests;
