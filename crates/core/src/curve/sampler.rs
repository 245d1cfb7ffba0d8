//! Which pages belong to a sample, and what a shard has noted for the tracker of a volume.
//!
//! A page's membership never changes while the gate is the same, so a shard remembers it beside the
//! page, and a hit on any other page costs nothing here. What belongs is gathered and handed to
//! the tracker in batches.

use crate::mix;

/// References that are gathered before they are handed on.
pub(crate) const BATCH: usize = 64;
/// References of all pages after which they are handed on, sampled or not.
const COUNTED_MAX: u64 = 4096;

/// Which pages belong to the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sampler {
    salt: u64,
    threshold: u64,
}

impl Sampler {
    /// The gate for hashes below the threshold, of pages numbered with this salt.
    pub(crate) fn new(salt: u64, threshold: u64) -> Self {
        Sampler { salt, threshold }
    }

    pub(crate) fn threshold(self) -> u64 {
        self.threshold
    }

    /// The hash of a page.
    #[inline]
    pub(crate) fn hash(self, page: u64) -> u64 {
        mix(page ^ self.salt)
    }

    /// Whether a page belongs.
    #[inline]
    pub(crate) fn admits(self, page: u64) -> bool {
        self.hash(page) < self.threshold
    }
}

/// A reference to a page of the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledReference {
    pub(crate) page: u64,
    pub(crate) missed: bool,
}

/// References that were not handed to the tracker yet.
#[derive(Debug)]
pub(crate) struct PendingSamples {
    pub(crate) gate: Sampler,
    pub(crate) noted: Vec<SampledReference>,
    /// References of all pages, and those of them that missed.
    pub(crate) references: u64,
    pub(crate) misses: u64,
}

impl PendingSamples {
    pub(crate) fn new(gate: Sampler) -> Self {
        PendingSamples { gate, noted: Vec::with_capacity(2 * BATCH), references: 0, misses: 0 }
    }

    /// Whether it is time to hand on.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.noted.len() >= BATCH || self.references >= COUNTED_MAX
    }
}
