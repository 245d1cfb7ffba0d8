//! Token buckets, kept as the time at which they will be full again.

use super::RateLimits;
use larder_core::clock::{Nanos, SECOND};

/// The buckets of one direction, or of both together.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    operations: Option<TokenBucket>,
    bytes: Option<TokenBucket>,
}

impl Limiter {
    pub(super) fn new(limits: RateLimits, burst: Nanos, slice: Nanos) -> Self {
        let operations = limits.operations_per_s.map(|per_s| {
            let mut bucket = TokenBucket::new(per_s, burst, slice);
            if slice == 0 {
                bucket.depth = bucket.depth.max(bucket.fill_time(1));
            }
            bucket
        });
        let bytes = limits.bytes_per_s.map(|per_s| {
            let bucket = TokenBucket::new(per_s, burst, slice);
            TokenBucket { waits_for_last: true, ..bucket }
        });
        Limiter { operations, bytes }
    }

    /// Takes the tokens of an operation and returns the time at which they are available.
    pub(super) fn take(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let operations = self.operations.as_mut().map_or(now, |bucket| bucket.take(now, 1));
        operations.max(self.bytes.as_mut().map_or(now, |bucket| bucket.take(now, bytes)))
    }
}

/// A token bucket, kept as the time at which it will be full again.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    per_s: u64,
    /// Nanoseconds needed to fill the empty bucket.
    depth: Nanos,
    /// Time whose tokens arrive together at its begin; 0 if they arrive continuously.
    slice: Nanos,
    /// With slices: a request that exceeds the tokens of its slice waits until its last token would
    /// arrive continuously, instead of for the next slice. The kernel's throttle treats bytes so
    /// (`tg_within_bps_limit`), and operations the other way (`tg_within_iops_limit`).
    pub(super) waits_for_last: bool,
    full_at: Nanos,
    /// Time at which the latest request got its tokens.
    granted_at: Nanos,
}

impl TokenBucket {
    pub(super) fn new(per_s: u64, depth: Nanos, slice: Nanos) -> Self {
        assert!(per_s > 0, "a rate above zero");
        TokenBucket { per_s, depth, slice, waits_for_last: false, full_at: 0, granted_at: 0 }
    }

    /// Takes `tokens` and returns the time at which they are available. A request larger than the
    /// bucket waits until its last token has arrived.
    pub(super) fn take(&mut self, now: Nanos, tokens: u64) -> Nanos {
        if tokens == 0 {
            return now;
        }
        // The tokens of the current slice remain until its end.
        let begin = if self.slice == 0 { now } else { now - now % self.slice };
        self.full_at = self.full_at.max(begin).saturating_add(self.fill_time(tokens));
        let last = self.full_at.saturating_sub(self.depth);
        // The last token of a slice arrives with the others.
        let Some(slices) = last.saturating_sub(1).checked_div(self.slice) else {
            return now.max(last);
        };
        let earliest = now.max(self.granted_at);
        let has_its_slice = slices <= earliest / self.slice;
        let waits_until = if self.waits_for_last { last } else { slices * self.slice };
        self.granted_at = if has_its_slice { earliest } else { waits_until };
        self.granted_at
    }

    fn fill_time(&self, tokens: u64) -> Nanos {
        time_of(tokens, self.per_s)
    }
}

/// Returns the nanoseconds in which a rate per second gives an amount.
pub(super) fn time_of(amount: u64, per_s: u64) -> Nanos {
    let time = u128::from(amount) * u128::from(SECOND) / u128::from(per_s);
    u64::try_from(time).expect("a wait of less than 500 years")
}
