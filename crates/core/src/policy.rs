//! Replacement policies: who is admitted, who is evicted.
//!
//! A policy works on slots, small numbers that name the pages that are resident now; pages that are
//! gone are remembered, where a policy does so, by page number (ghosts). The engine and the
//! simulator use the same objects. One file each, named as in the literature.

mod ghost;
mod list;
mod lru;
mod s3fifo;

pub use lru::Lru;
pub use s3fifo::S3Fifo;

/// Names a resident page inside one policy; small, dense, reused.
pub type Slot = u32;
/// No slot.
pub const NO_SLOT: Slot = u32::MAX;

/// How many candidates that cannot be evicted now (dirty, pinned, being filled) a search for a
/// victim passes over before it gives up. Bounds the time under the lock of a shard; the lazy
/// writer is told of each dirty page that is passed over, so that a later search finds it clean.
pub const PASSED_OVER_MAX: u32 = 64;

/// A replacement policy over resident pages.
pub trait Policy: Send + std::fmt::Debug {
    /// Its name in the literature and on the command line.
    fn name(&self) -> &'static str;
    /// A page became resident.
    fn on_insert(&mut self, slot: Slot, page: u64);
    /// A resident page was referenced again.
    fn on_hit(&mut self, slot: Slot);
    /// The page to evict next among those that `accept` takes, searched from the coldest on. It
    /// stays resident until [`Policy::on_remove`].
    fn victim(&mut self, accept: &mut dyn FnMut(Slot) -> bool) -> Option<Slot>;
    /// A page is no longer resident: `evicted` to make room, or gone for another reason (discarded,
    /// failed to fill), in which case it leaves no ghost.
    fn on_remove(&mut self, slot: Slot, page: u64, evicted: bool);
    /// Resident pages.
    fn len(&self) -> usize;
    /// Whether no page is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Asserts every invariant of the structure; for tests.
    fn check(&self);
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Least recently used.
    Lru,
    /// Three static FIFO queues.
    S3Fifo,
}

impl PolicyKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [PolicyKind; 2] = [PolicyKind::Lru, PolicyKind::S3Fifo];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Lru => "lru",
            PolicyKind::S3Fifo => "s3fifo",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// A new, empty policy.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Lru => Box::new(Lru::new()),
            PolicyKind::S3Fifo => Box::new(S3Fifo::new()),
        }
    }

    /// Bytes that it needs for each resident page, ghosts included: counted into the memory bound.
    #[must_use]
    pub fn bytes_per_page(self) -> usize {
        match self {
            PolicyKind::Lru => 8,
            // Links and frequency, and up to two ghost entries of 8 bytes at half load.
            PolicyKind::S3Fifo => 12 + 16,
        }
    }
}

#[cfg(test)]
mod tests;
