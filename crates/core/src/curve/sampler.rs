//! The sampling decision for a page, and the references that a shard collects for the tracker.
//!
//! The decision for a page does not change while the sampler is the same, so a shard stores it with
//! the page, and a hit on a page outside the sample costs nothing here. Sampled references are
//! collected and passed to the tracker in batches.

use crate::mix;
use crate::replace::CacheEvent;

/// The number of sampled references in a batch.
pub(crate) const BATCH: usize = 64;
/// The number of references of all pages after which a batch is passed on even if it is not full.
const COUNTED_MAX: u64 = 4096;

/// A hash threshold that selects the sampled pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sampler {
    salt: u64,
    threshold: u64,
}

impl Sampler {
    /// Creates a sampler that selects the pages whose hash with this salt is below the threshold.
    pub(crate) fn new(salt: u64, threshold: u64) -> Self {
        Sampler { salt, threshold }
    }

    pub(crate) fn threshold(self) -> u64 {
        self.threshold
    }

    #[inline]
    pub(crate) fn hash(self, page: u64) -> u64 {
        mix(page ^ self.salt)
    }

    /// Returns true if a page belongs to the sample.
    #[inline]
    pub(crate) fn admits(self, page: u64) -> bool {
        self.hash(page) < self.threshold
    }
}

/// An event of a page of the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledReference {
    pub(crate) page: u64,
    pub(crate) event: CacheEvent,
}

/// References that the shard has not passed to the tracker yet.
#[derive(Debug)]
pub(crate) struct PendingSamples {
    pub(crate) sampler: Sampler,
    pub(crate) samples: Vec<SampledReference>,
    pub(crate) counts: ReferenceCounts,
}

/// References of all pages since the last batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReferenceCounts {
    pub(crate) references: u64,
    /// References among them that missed.
    pub(crate) misses: u64,
    /// First references to pages that read-ahead had brought in; they hit.
    pub(crate) first_uses: u64,
}

impl PendingSamples {
    pub(crate) fn new(sampler: Sampler) -> Self {
        PendingSamples {
            sampler,
            samples: Vec::with_capacity(2 * BATCH),
            counts: ReferenceCounts::default(),
        }
    }

    /// Returns true if the batch must be passed on.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.samples.len() >= BATCH || self.counts.references >= COUNTED_MAX
    }
}
