//! A capped volume: a cloud disk with limits on operations and bytes per second.
//!
//! Two token buckets, one of operations and one of bytes, and a base latency. A bucket is kept as
//! the time at which it will be full again (the generic cell rate algorithm of ITU-T I.371), which
//! is exact in whole nanoseconds and needs no refilling. Operations run in parallel; an operation
//! that finds a bucket empty waits for its tokens, in order of arrival.
//!
//! Times are nanoseconds, sizes are bytes, rates are per second.

use super::{Access, Model};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;

/// The limits that the provider states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CappedVolumeSpec {
    /// Operations per second.
    pub operations_per_s: u64,
    /// Operations that may arrive at once after an idle period; at least 1.
    pub burst_operations: u64,
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// Bytes that may arrive at once after an idle period.
    pub burst_bytes: u64,
    /// A longer operation counts as several of this many bytes.
    pub operation_bytes_max: u64,
    /// Latency of an operation that waits for no token, nanoseconds.
    pub latency: Nanos,
    /// Maximum operations in service at a time.
    pub max_concurrency: usize,
}

impl CappedVolumeSpec {
    /// A general-purpose volume, the default of the large clouds: 3,000 operations and 125 MiB per
    /// second, counted in units of 256 KiB, about 0.8 ms.
    #[must_use]
    pub const fn general_purpose() -> Self {
        CappedVolumeSpec {
            operations_per_s: 3_000,
            burst_operations: 30,
            bytes_per_s: 125 << 20,
            burst_bytes: 2 << 20,
            operation_bytes_max: 256 << 10,
            latency: 800_000,
            max_concurrency: 128,
        }
    }

    /// The cheapest volume type, on rotating disks: 500 operations and 60 MiB per second, about 5
    /// ms.
    #[must_use]
    pub const fn standard() -> Self {
        CappedVolumeSpec {
            operations_per_s: 500,
            burst_operations: 10,
            bytes_per_s: 60 << 20,
            burst_bytes: 1 << 20,
            operation_bytes_max: 256 << 10,
            latency: 5_000_000,
            max_concurrency: 64,
        }
    }
}

/// The state of a capped volume.
#[derive(Clone, Debug)]
pub struct CappedVolume {
    spec: CappedVolumeSpec,
    operations: TokenBucket,
    bytes: TokenBucket,
}

impl CappedVolume {
    /// Creates a volume with full buckets.
    #[must_use]
    pub fn new(spec: CappedVolumeSpec) -> Self {
        CappedVolume {
            spec,
            operations: TokenBucket::new(spec.operations_per_s, spec.burst_operations),
            bytes: TokenBucket::new(spec.bytes_per_s, spec.burst_bytes),
        }
    }
}

impl Model for CappedVolume {
    fn max_concurrency(&self) -> usize {
        self.spec.max_concurrency
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        let operations = access.len.div_ceil(self.spec.operation_bytes_max).max(1);
        let transferred = match access.kind {
            StoreOpKind::Read | StoreOpKind::Write { .. } => access.len,
            StoreOpKind::Flush | StoreOpKind::Discard | StoreOpKind::Zero { .. } => 0,
        };
        let operations = if transferred == 0 { 1 } else { operations };
        let tokens = self.operations.take(now, operations).max(self.bytes.take(now, transferred));
        tokens + self.spec.latency
    }
}

/// A token bucket, kept as the time at which it will be full again.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    per_s: u64,
    /// Nanoseconds needed to fill the empty bucket.
    depth: Nanos,
    full_at: Nanos,
}

impl TokenBucket {
    fn new(per_s: u64, burst: u64) -> Self {
        assert!(per_s > 0, "a rate above zero");
        let mut bucket = TokenBucket { per_s, depth: 0, full_at: 0 };
        bucket.depth = bucket.fill_time(burst);
        bucket
    }

    /// Takes `tokens` and returns the time at which they are available. A request larger than the
    /// bucket waits until its last token has arrived.
    fn take(&mut self, now: Nanos, tokens: u64) -> Nanos {
        if tokens == 0 {
            return now;
        }
        self.full_at = self.full_at.max(now) + self.fill_time(tokens);
        now.max(self.full_at.saturating_sub(self.depth))
    }

    fn fill_time(&self, tokens: u64) -> Nanos {
        let fill_time = u128::from(tokens) * u128::from(SECOND) / u128::from(self.per_s);
        u64::try_from(fill_time).expect("a wait of less than 500 years")
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{closed_loop, scattered};
    use super::*;

    const GIB: u64 = 1 << 30;

    fn volume() -> CappedVolume {
        CappedVolume::new(CappedVolumeSpec::general_purpose())
    }

    #[test]
    fn one_at_a_time_it_is_bound_by_latency() {
        let offset_of = scattered(GIB, 1);
        let result = closed_loop(volume(), 1, 2_000, StoreOpKind::Read, 4096, offset_of);
        assert!((1_240.0..=1_251.0).contains(&result.rate), "{}", result.rate);
    }

    #[test]
    fn a_deep_queue_is_capped_by_operations() {
        let offset_of = scattered(GIB, 1);
        let result = closed_loop(volume(), 64, 30_000, StoreOpKind::Read, 4096, offset_of);
        assert!((2_990.0..=3_010.0).contains(&result.rate), "{}", result.rate);
    }

    #[test]
    fn large_operations_are_capped_by_bytes() {
        let len = 1 << 20;
        let result = closed_loop(volume(), 16, 2_000, StoreOpKind::Read, len, |at| at * len);
        assert!((124.0..=126.0).contains(&result.rate), "{} MiB/s", result.rate);
    }

    #[test]
    fn a_rest_fills_the_bucket_for_a_burst_and_no_more() {
        let mut bucket = TokenBucket::new(1_000, 10);
        let waits: Vec<Nanos> = (0..12).map(|_| bucket.take(5 * SECOND, 1) - 5 * SECOND).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10..], [1_000_000, 2_000_000]);
    }
}
