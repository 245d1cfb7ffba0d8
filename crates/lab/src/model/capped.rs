//! A capped volume: a cloud disk sold by operations and bytes per second.
//!
//! Two token buckets, one of operations and one of bytes, and a base latency. A bucket is kept as
//! the time at which it will be full again (the generic cell rate algorithm of ITU-T I.371), which
//! is exact in whole nanoseconds and needs no refilling. Operations run in parallel; one that
//! finds a bucket empty is served when its tokens have come, in order of arrival.
//!
//! Times are nanoseconds, sizes are bytes, rates are per second.

use super::{Access, Model};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;

/// What the provider promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CappedSpec {
    /// Operations per second.
    pub operations_per_s: u64,
    /// Operations that may come at once after a rest; at least 1.
    pub burst_operations: u64,
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// Bytes that may come at once after a rest.
    pub burst_bytes: u64,
    /// A longer operation counts as several of this many bytes.
    pub operation_bytes_max: u64,
    /// Time of an operation that waits for no token, nanoseconds.
    pub latency: Nanos,
    /// Operations in service at a time, at most.
    pub parallel: usize,
}

impl CappedSpec {
    /// A general-purpose volume as the large clouds sell it by default: 3,000 operations and 125
    /// MiB per second, counted in 256 KiB, about 0.8 ms.
    #[must_use]
    pub const fn general_purpose() -> Self {
        CappedSpec {
            operations_per_s: 3_000,
            burst_operations: 30,
            bytes_per_s: 125 << 20,
            burst_bytes: 2 << 20,
            operation_bytes_max: 256 << 10,
            latency: 800_000,
            parallel: 128,
        }
    }

    /// The cheapest kind, on rotating disks: 500 operations and 60 MiB per second, about 5 ms.
    #[must_use]
    pub const fn standard() -> Self {
        CappedSpec {
            operations_per_s: 500,
            burst_operations: 10,
            bytes_per_s: 60 << 20,
            burst_bytes: 1 << 20,
            operation_bytes_max: 256 << 10,
            latency: 5_000_000,
            parallel: 64,
        }
    }
}

/// A capped volume at work.
#[derive(Clone, Debug)]
pub struct Capped {
    spec: CappedSpec,
    operations: Bucket,
    bytes: Bucket,
}

impl Capped {
    /// A volume with full buckets.
    #[must_use]
    pub fn new(spec: CappedSpec) -> Self {
        Capped {
            spec,
            operations: Bucket::new(spec.operations_per_s, spec.burst_operations),
            bytes: Bucket::new(spec.bytes_per_s, spec.burst_bytes),
        }
    }
}

impl Model for Capped {
    fn parallel(&self) -> usize {
        self.spec.parallel
    }

    fn pick(&self, _now: Nanos, _waiting: &[Access]) -> usize {
        0
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        let operations = access.len.div_ceil(self.spec.operation_bytes_max).max(1);
        let moved = match access.kind {
            StoreOpKind::Read | StoreOpKind::Write { .. } => access.len,
            StoreOpKind::Flush | StoreOpKind::Discard | StoreOpKind::Zero { .. } => 0,
        };
        let operations = if moved == 0 { 1 } else { operations };
        let tokens = self.operations.take(now, operations).max(self.bytes.take(now, moved));
        tokens + self.spec.latency
    }
}

/// A token bucket that knows when it will be full again.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_s: u64,
    /// Nanoseconds that filling the empty bucket takes.
    depth: Nanos,
    full_at: Nanos,
}

impl Bucket {
    fn new(per_s: u64, burst: u64) -> Self {
        assert!(per_s > 0, "a rate above zero");
        let mut bucket = Bucket { per_s, depth: 0, full_at: 0 };
        bucket.depth = bucket.time(burst);
        bucket
    }

    /// Takes `tokens` and says when they are there. A request larger than the bucket waits until
    /// its last token has come.
    fn take(&mut self, now: Nanos, tokens: u64) -> Nanos {
        if tokens == 0 {
            return now;
        }
        self.full_at = self.full_at.max(now) + self.time(tokens);
        now.max(self.full_at.saturating_sub(self.depth))
    }

    fn time(&self, tokens: u64) -> Nanos {
        let time = u128::from(tokens) * u128::from(SECOND) / u128::from(self.per_s);
        u64::try_from(time).expect("a wait of less than 500 years")
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{closed_loop, scattered};
    use super::*;

    const GIB: u64 = 1 << 30;

    fn volume() -> Capped {
        Capped::new(CappedSpec::general_purpose())
    }

    #[test]
    fn one_at_a_time_it_is_bound_by_latency() {
        let place = scattered(GIB, 1);
        let seen = closed_loop(volume(), 1, 2_000, StoreOpKind::Read, 4096, place);
        assert!((1_240.0..=1_251.0).contains(&seen.rate), "{}", seen.rate);
    }

    #[test]
    fn a_deep_queue_is_capped_by_operations() {
        let place = scattered(GIB, 1);
        let seen = closed_loop(volume(), 64, 30_000, StoreOpKind::Read, 4096, place);
        assert!((2_990.0..=3_010.0).contains(&seen.rate), "{}", seen.rate);
    }

    #[test]
    fn large_operations_are_capped_by_bytes() {
        let len = 1 << 20;
        let seen = closed_loop(volume(), 16, 2_000, StoreOpKind::Read, len, |at| at * len);
        assert!((124.0..=126.0).contains(&seen.rate), "{} MiB/s", seen.rate);
    }

    #[test]
    fn a_rest_fills_the_bucket_for_a_burst_and_no_more() {
        let mut bucket = Bucket::new(1_000, 10);
        let waits: Vec<Nanos> = (0..12).map(|_| bucket.take(5 * SECOND, 1) - 5 * SECOND).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10..], [1_000_000, 2_000_000]);
    }
}
