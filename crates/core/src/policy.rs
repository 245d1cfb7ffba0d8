//! Replacement policies, which choose the page to evict.
//!
//! A policy works on slots, small numbers that identify the resident pages; a policy that remembers
//! evicted pages does so by page number (ghosts). The engine and the simulator use the same
//! objects. Each policy has its own file, named as in the literature; docs/policies.md compares
//! them.
//!
//! The state of a policy is proportional to the pages that it holds or that it is configured to
//! hold, whichever is more: that number is the capacity of which its lists have their shares.

mod arc;
mod clock;
mod clock2q_plus;
mod fifo;
mod ghost;
mod ghost_lists;
mod ghost_queue;
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
pub use linux::Linux;
pub use lirs::Lirs;
pub use lru::Lru;
pub use random::{Random, SEED};
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use slru::Slru;
pub use two_q::TwoQ;
pub use wtinylfu::WTinyLfu;

pub use crate::page::Slot;

kind::policies! {
    /// Uniformly random.
    Random = "random";
    /// First in, first out.
    Fifo = "fifo";
    /// Least recently used.
    Lru = "lru";
    /// Second chance.
    Clock = "clock";
    /// A1in, A1out and Am.
    TwoQ = "2q";
    /// Segmented LRU.
    Slru = "slru";
    /// Adaptive replacement cache.
    Arc = "arc";
    /// Low inter-reference recency set.
    Lirs = "lirs";
    /// Three static FIFO queues.
    S3Fifo = "s3fifo";
    /// A queue with a hand that moves towards new pages.
    Sieve = "sieve";
    /// A window, and admission by frequency.
    WTinyLfu = "wtinylfu";
    /// A small queue with a correlation window, and a clock.
    Clock2QPlus = "clock2q+";
    /// Active and inactive lists with refault distance.
    Linux = "linux";
}

/// A function that is generic over the type of the policy; see [`PolicyKind::visit`].
pub trait PolicyVisitor {
    /// The result.
    type Output;
    /// Continues with a new, empty policy.
    fn visit<P: Policy + 'static>(self, policy: P) -> Self::Output;
}

/// The value for "no slot".
pub const NO_SLOT: Slot = u32::MAX;

/// The maximum number of candidates that cannot be evicted now (dirty, pinned, being filled) and
/// that a search for a victim skips before it gives up, or before it continues with the other
/// queue. It bounds the time under the lock of a shard. The search reports the first dirty pages
/// that it skips to the background writer, so that a later search finds them clean.
pub const PASSED_OVER_MAX: u32 = 64;

/// A replacement policy over resident pages.
///
/// A reference to a resident page is [`Policy::on_hit`]. A reference to any other page is
/// [`Policy::on_miss`], then, if the cache is full, [`Policy::victim`] and [`Policy::on_remove`] of
/// the returned page, then [`Policy::on_insert`].
pub trait Policy: Send + std::fmt::Debug {
    /// Sets the number of pages that it is expected to hold when the cache is full. It may hold
    /// more or fewer, and the number may change at any time.
    fn on_capacity(&mut self, _pages: usize) {}
    /// Reports a reference to a page that is not resident and is about to be inserted; called
    /// before the search for its victim. The call may be repeated, and the page may not be inserted
    /// after all.
    fn on_miss(&mut self, _page: u64) {}
    /// Reports that a page became resident, with or without a preceding [`Policy::on_miss`].
    fn on_insert(&mut self, slot: Slot, page: u64);
    /// Reports another reference to a resident page.
    fn on_hit(&mut self, slot: Slot);
    /// Returns the page to evict next among those that `accept` accepts, searched from the coldest
    /// on. The page stays resident until [`Policy::on_remove`].
    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot>;
    /// Reports that a page is no longer resident. `evicted` is true if it was evicted to free its
    /// frame; a page removed for another reason (discarded, failed to fill) leaves no ghost.
    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool);
    /// Returns true if the policy has promoted the page: it is in the main queue, or in the list of
    /// pages that were referenced again. Policies that treat all pages alike return false.
    fn is_protected(&self, _slot: Slot) -> bool {
        false
    }
    /// Returns the number of resident pages.
    fn len(&self) -> usize;
    /// Returns true if no page is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Asserts every invariant of the structure; for tests.
    fn check(&self);
}

impl<P: Policy + ?Sized> Policy for Box<P> {
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

/// Transfers the resident pages from one policy to another. `pages` has the time of the last
/// reference, the slot and the number of each page. The pages are inserted from the coldest on, and
/// protected pages last, in such a way that they are protected again: as ghosts that are inserted
/// again, or else by a reference. The ghosts of the old policy are lost, since their meaning
/// differs between policies.
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
