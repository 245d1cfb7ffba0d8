//! A device with rates: limits on operations and bytes per second, a latency and a queue depth.
//!
//! An operation takes one of the places of the device, waits for its tokens, and is in service for
//! the latency and its transfer. A token bucket is kept as the time at which it will be full again
//! (the generic cell rate algorithm of ITU-T I.371), which is exact in whole nanoseconds and needs
//! no refilling. Tokens are granted in the order in which operations take their places. With a
//! slice they do not arrive continuously: all tokens of a slice of time arrive at its begin.
//!
//! A read counts against the limits of reads and those of both directions; every other operation
//! counts like a write, and only reads and writes count bytes. This is the accounting of the
//! kernel's blkio throttle, which has separate limits for each direction, and of cloud volumes,
//! which have limits for both together.
//!
//! Times are nanoseconds, sizes are bytes, rates are per second.

use super::{Access, Latency, Model};
use crate::random::Random;
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;
use larder_core::units::as_f64;
use std::collections::VecDeque;

/// Maximum number of operations in service: more than a cache ever has in flight.
pub const DEPTH_MAX: u32 = 1024;

/// Limits of one direction, or of both together; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Operations per second; at least 1.
    pub operations_per_s: Option<u64>,
    /// Bytes per second; at least 1.
    pub bytes_per_s: Option<u64>,
}

/// The rates of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRates {
    /// Limits of all operations together.
    pub total: RateLimits,
    /// Limits of reads.
    pub read: RateLimits,
    /// Limits of writes, flushes, discards and zeroings.
    pub write: RateLimits,
    /// Time of a read that waits for no token.
    pub read_latency: Latency,
    /// Time of any other operation that waits for no token.
    pub write_latency: Latency,
    /// Rate at which the bytes of reads and writes are transferred, one operation after the other,
    /// before the latency of each begins; at least 1. `None` for no time.
    pub transfer_bytes_per_s: Option<u64>,
    /// Time whose tokens an idle device collects, nanoseconds. Without a slice, one operation is
    /// always collected.
    pub burst: Nanos,
    /// Time whose tokens arrive together, nanoseconds; 0 if tokens arrive continuously. The blkio
    /// throttle of the kernel has slices of 100 ms (`DFL_THROTL_SLICE` in block/blk-throttle.c).
    pub slice: Nanos,
    /// Maximum operations in service at a time, from 1 to [`DEPTH_MAX`].
    pub depth: u32,
}

impl DeviceRates {
    /// Returns a device without limits that takes this time for each operation.
    #[must_use]
    pub const fn fixed(latency: Nanos) -> Self {
        const NONE: RateLimits = RateLimits { operations_per_s: None, bytes_per_s: None };
        DeviceRates {
            total: NONE,
            read: NONE,
            write: NONE,
            read_latency: Latency::constant(latency),
            write_latency: Latency::constant(latency),
            transfer_bytes_per_s: None,
            burst: 0,
            slice: 0,
            depth: DEPTH_MAX,
        }
    }

    /// Returns the reads per second of a closed loop that keeps `depth` reads of `len` bytes in
    /// flight; infinite if reads take no time.
    #[must_use]
    pub fn reads_per_s(&self, depth: u32, len: u64) -> f64 {
        let sides = [self.total, self.read];
        let transfer = sides.iter().filter_map(|it| Some(as_f64(len) / as_f64(it.bytes_per_s?)));
        let transfer = transfer.fold(0.0, f64::max);
        let operations = sides.iter().filter_map(|it| Some(as_f64(it.operations_per_s?)));
        let places = f64::from(depth.min(self.depth));
        // Without a burst or a slice, a read waits until its last byte has its token.
        let wait = if self.burst == 0 && self.slice == 0 { transfer } else { 0.0 };
        let own = self.transfer_time(len);
        let service = self.read_latency.mean + own;
        let by_latency = places / (as_f64(service) / as_f64(SECOND) + wait);
        let transfer = transfer.max(as_f64(own) / as_f64(SECOND));
        operations.fold(by_latency, f64::min).min(1.0 / transfer)
    }

    /// Returns the time in service that the transfer of these bytes adds to the latency.
    fn transfer_time(&self, bytes: u64) -> Nanos {
        self.transfer_bytes_per_s.map_or(0, |per_s| time_of(bytes, per_s))
    }
}

/// The state of a device with rates.
#[derive(Clone, Debug)]
pub struct RatedDevice {
    rates: DeviceRates,
    total: Limiter,
    read: Limiter,
    write: Limiter,
    transfers: Transfers,
    random: Random,
}

impl RatedDevice {
    /// Creates a device with full buckets. `seed` is that of its times, if they vary.
    ///
    /// # Panics
    /// If a limit or the depth is 0.
    #[must_use]
    pub fn new(rates: DeviceRates, seed: u64) -> Self {
        assert!(rates.depth > 0, "a device that serves nothing never ends");
        let limiter = |limits| Limiter::new(limits, rates.burst, rates.slice);
        RatedDevice {
            rates,
            total: limiter(rates.total),
            read: limiter(rates.read),
            write: limiter(rates.write),
            transfers: Transfers::default(),
            random: Random::from_seed(seed),
        }
    }
}

impl Model for RatedDevice {
    fn max_concurrency(&self) -> usize {
        self.rates.depth as usize
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        let bytes = match access.kind {
            StoreOpKind::Read | StoreOpKind::Write { .. } => access.len,
            StoreOpKind::Flush | StoreOpKind::Discard | StoreOpKind::Zero { .. } => 0,
        };
        let transfer = self.rates.transfer_time(bytes);
        let (side, latency) = match access.kind {
            StoreOpKind::Read => (&mut self.read, self.rates.read_latency),
            _ => (&mut self.write, self.rates.write_latency),
        };
        let admitted_at = self.total.take(now, bytes).max(side.take(now, bytes));
        let transferred_at = self.transfers.add(now, admitted_at, transfer);
        transferred_at.saturating_add(latency.draw(&mut self.random))
    }
}

/// The times at which a device transfers, now or later: those of operations that wait for tokens
/// leave gaps, which others use.
#[derive(Clone, Debug, Default)]
struct Transfers {
    /// Begin and end of each time; none touches another one, and the first is the earliest.
    busy: VecDeque<(Nanos, Nanos)>,
}

impl Transfers {
    /// Adds a transfer that takes `time` and begins at `earliest` at the earliest; returns its end.
    /// No later transfer begins before `now`.
    fn add(&mut self, now: Nanos, earliest: Nanos, time: Nanos) -> Nanos {
        if time == 0 {
            return earliest;
        }
        while self.busy.front().is_some_and(|(_, end)| *end < now) {
            self.busy.pop_front();
        }
        let mut index = self.busy.partition_point(|(_, end)| *end < earliest);
        let mut begin = earliest;
        while let Some((next, end)) = self.busy.get(index) {
            if begin.saturating_add(time) <= *next {
                break;
            }
            begin = begin.max(*end);
            index += 1;
        }
        let end = begin.saturating_add(time);
        self.insert(index, (begin, end));
        end
    }

    /// Inserts a time at `index`, and joins it with those that it touches.
    fn insert(&mut self, index: usize, (begin, end): (Nanos, Nanos)) {
        let touches_next = self.busy.get(index).is_some_and(|next| next.0 == end);
        let touches_last = index > 0 && self.busy[index - 1].1 == begin;
        match (touches_last, touches_next) {
            (true, true) => {
                self.busy[index - 1].1 = self.busy[index].1;
                self.busy.remove(index);
            }
            (true, false) => self.busy[index - 1].1 = end,
            (false, true) => self.busy[index].0 = begin,
            (false, false) => self.busy.insert(index, (begin, end)),
        }
    }
}

/// The buckets of one direction, or of both together.
#[derive(Clone, Debug)]
struct Limiter {
    operations: Option<TokenBucket>,
    bytes: Option<TokenBucket>,
}

impl Limiter {
    fn new(limits: RateLimits, burst: Nanos, slice: Nanos) -> Self {
        let operations = limits.operations_per_s.map(|per_s| {
            let mut bucket = TokenBucket::new(per_s, burst, slice);
            if slice == 0 {
                bucket.depth = bucket.depth.max(bucket.fill_time(1));
            }
            bucket
        });
        let bytes = limits.bytes_per_s.map(|per_s| TokenBucket::new(per_s, burst, slice));
        Limiter { operations, bytes }
    }

    /// Takes the tokens of an operation and returns the time at which they are available.
    fn take(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let operations = self.operations.as_mut().map_or(now, |bucket| bucket.take(now, 1));
        operations.max(self.bytes.as_mut().map_or(now, |bucket| bucket.take(now, bytes)))
    }
}

/// A token bucket, kept as the time at which it will be full again.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    per_s: u64,
    /// Nanoseconds needed to fill the empty bucket.
    depth: Nanos,
    /// Time whose tokens arrive together at its begin; 0 if they arrive continuously.
    slice: Nanos,
    full_at: Nanos,
}

impl TokenBucket {
    fn new(per_s: u64, depth: Nanos, slice: Nanos) -> Self {
        assert!(per_s > 0, "a rate above zero");
        TokenBucket { per_s, depth, slice, full_at: 0 }
    }

    /// Takes `tokens` and returns the time at which they are available. A request larger than the
    /// bucket waits until its last token has arrived.
    fn take(&mut self, now: Nanos, tokens: u64) -> Nanos {
        if tokens == 0 {
            return now;
        }
        // The tokens of the current slice remain until its end.
        let begin = if self.slice == 0 { now } else { now - now % self.slice };
        self.full_at = self.full_at.max(begin).saturating_add(self.fill_time(tokens));
        let last = self.full_at.saturating_sub(self.depth);
        // The last token of a slice arrives with the others.
        let slices = last.saturating_sub(1).checked_div(self.slice);
        now.max(slices.map_or(last, |slices| slices * self.slice))
    }

    fn fill_time(&self, tokens: u64) -> Nanos {
        time_of(tokens, self.per_s)
    }
}

/// Returns the nanoseconds in which a rate per second gives an amount.
fn time_of(amount: u64, per_s: u64) -> Nanos {
    let time = u128::from(amount) * u128::from(SECOND) / u128::from(per_s);
    u64::try_from(time).expect("a wait of less than 500 years")
}

#[cfg(test)]
mod tests {
    use super::super::rig::{closed_loop, scattered};
    use super::*;
    use larder_core::clock::MILLISECOND;

    const GIB: u64 = 1 << 30;

    /// A general-purpose volume of a cloud.
    fn volume() -> DeviceRates {
        let operations_per_s = Some(3_000);
        let total = RateLimits { operations_per_s, bytes_per_s: Some(125 << 20) };
        DeviceRates { total, burst: 16 * MILLISECOND, depth: 128, ..DeviceRates::fixed(800_000) }
    }

    fn limited(operations_per_s: u64, latency: Nanos) -> DeviceRates {
        let total = RateLimits { operations_per_s: Some(operations_per_s), bytes_per_s: None };
        DeviceRates { total, ..DeviceRates::fixed(latency) }
    }

    /// Returns the operations per second of a closed loop over scattered blocks.
    fn rate(rates: DeviceRates, depth: u64, kind: StoreOpKind) -> f64 {
        let count = 200 * depth;
        closed_loop(RatedDevice::new(rates, 0), depth, count, kind, 4096, scattered(GIB, 1)).rate
    }

    #[test]
    fn one_at_a_time_it_is_bound_by_latency() {
        let found = rate(volume(), 1, StoreOpKind::Read);
        assert!((1_240.0..=1_251.0).contains(&found), "{found}");
    }

    #[test]
    fn a_deep_queue_is_capped_by_operations() {
        let model = RatedDevice::new(volume(), 0);
        let result = closed_loop(model, 64, 30_000, StoreOpKind::Read, 4096, scattered(GIB, 1));
        assert!((2_990.0..=3_010.0).contains(&result.rate), "{}", result.rate);
    }

    #[test]
    fn large_operations_are_capped_by_bytes() {
        let (len, model) = (1 << 20, RatedDevice::new(volume(), 0));
        let result = closed_loop(model, 16, 2_000, StoreOpKind::Read, len, |at| at * len);
        assert!((124.0..=126.0).contains(&result.rate), "{} MiB/s", result.rate);
    }

    #[test]
    fn a_limit_holds_at_every_depth_and_a_latency_does_not() {
        for depth in [1, 8, 32] {
            let found = rate(limited(100, 0), depth, StoreOpKind::Read);
            assert!((99.0..=101.5).contains(&found), "{found} at depth {depth}");
            let found = rate(DeviceRates::fixed(10 * MILLISECOND), depth, StoreOpKind::Read);
            assert!((found / as_f64(100 * depth) - 1.0).abs() < 0.01, "{found} at depth {depth}");
        }
    }

    #[test]
    fn transfers_do_not_overlap_and_latencies_do() {
        let mib = 1 << 20;
        let rates = DeviceRates {
            transfer_bytes_per_s: Some(100 * mib),
            ..DeviceRates::fixed(MILLISECOND)
        };
        let device = || RatedDevice::new(rates, 0);
        let result = closed_loop(device(), 8, 80, StoreOpKind::Read, mib, |at| at * mib);
        assert!((98.0..=100.0).contains(&result.rate), "{}", result.rate);
        assert!(result.longest <= 81 * MILLISECOND, "{} ns", result.longest);
        let result = closed_loop(device(), 1, 80, StoreOpKind::Read, mib, |at| at * mib);
        assert!((90.0..=91.0).contains(&result.rate), "{}", result.rate);
    }

    #[test]
    fn the_transfer_of_an_operation_that_waits_for_tokens_delays_no_other() {
        let write = RateLimits { operations_per_s: Some(1), bytes_per_s: None };
        let transfer_bytes_per_s = Some(4096 * 1_000);
        let rates = DeviceRates { write, transfer_bytes_per_s, ..DeviceRates::fixed(0) };
        let mut device = RatedDevice::new(rates, 0);
        let mut serve = |now, kind, blocks: u64| {
            device.serve(now, &Access { kind, offset: 0, len: 4096 * blocks, arrived_at: now })
        };
        let write = StoreOpKind::Write { fua: false };
        assert_eq!(serve(0, write, 1), MILLISECOND);
        // Its token is there after a second.
        assert_eq!(serve(0, write, 100), SECOND + 100 * MILLISECOND);
        assert_eq!(serve(0, StoreOpKind::Read, 10), 11 * MILLISECOND);
        // This one does not fit before the transfer of the write.
        let late = SECOND - 5 * MILLISECOND;
        assert_eq!(serve(late, StoreOpKind::Read, 10), SECOND + 110 * MILLISECOND);
        assert_eq!(serve(late, StoreOpKind::Read, 5), SECOND);
        assert_eq!(serve(late, StoreOpKind::Read, 1), SECOND + 111 * MILLISECOND);
    }

    /// The gaps that are used are those of a plain search, for any order of times.
    #[test]
    fn transfers_take_the_first_gap_that_is_long_enough() {
        let mut random = Random::from_seed(11);
        for _ in 0..200 {
            let (mut transfers, mut busy) = (Transfers::default(), Vec::new());
            let mut now = 0;
            for _ in 0..60 {
                now += random.below(10);
                let (earliest, time) = (now + random.below(40), random.below(6));
                let is_free = |begin: Nanos| {
                    busy.iter().all(|&(from, to)| begin + time <= from || to <= begin)
                };
                let begin = (earliest..1_000).find(|&begin| time == 0 || is_free(begin)).unwrap();
                assert_eq!(transfers.add(now, earliest, time), begin + time);
                if time > 0 {
                    busy.push((begin, begin + time));
                }
            }
        }
    }

    #[test]
    fn the_depth_bounds_the_operations_in_service() {
        let rates = DeviceRates { depth: 4, ..DeviceRates::fixed(MILLISECOND) };
        let found = rate(rates, 32, StoreOpKind::Read);
        assert!((3_990.0..=4_010.0).contains(&found), "{found}");
    }

    #[test]
    fn each_direction_has_its_own_limit_and_latency() {
        let side = |operations_per_s| RateLimits {
            operations_per_s: Some(operations_per_s),
            ..RateLimits::default()
        };
        let rates = DeviceRates { read: side(200), write: side(50), ..DeviceRates::fixed(0) };
        let mut device = RatedDevice::new(rates, 0);
        let mut last = |kind| {
            let access = Access { kind, offset: 0, len: 4096, arrived_at: 0 };
            (0..=100).map(|_| device.serve(0, &access)).last().unwrap()
        };
        assert_eq!(last(StoreOpKind::Read), 500 * MILLISECOND);
        // Flushes count like writes; reads have not used their tokens.
        assert_eq!(last(StoreOpKind::Flush), 2 * SECOND);
        assert_eq!(last(StoreOpKind::Write { fua: false }), 4_020 * MILLISECOND);
        let rates = DeviceRates { read_latency: Latency::constant(5), ..DeviceRates::fixed(7) };
        let mut device = RatedDevice::new(rates, 0);
        let mut time =
            |kind| device.serve(0, &Access { kind, offset: 0, len: 4096, arrived_at: 0 });
        assert_eq!([StoreOpKind::Read, StoreOpKind::Discard].map(&mut time), [5, 7]);
    }

    #[test]
    fn the_rate_of_times_that_vary_is_that_of_their_mean() {
        let read_latency = Latency { mean: MILLISECOND, median: MILLISECOND / 2 };
        let rates = DeviceRates { read_latency, ..DeviceRates::fixed(0) };
        let (model, count) = (RatedDevice::new(rates, 0), 100_000);
        let found = closed_loop(model, 4, count, StoreOpKind::Read, 4096, scattered(GIB, 1)).rate;
        assert!((found / rates.reads_per_s(4, 4096) - 1.0).abs() < 0.02, "{found}");
    }

    #[test]
    fn a_rest_fills_the_bucket_for_a_burst_and_no_more() {
        let mut bucket = TokenBucket::new(1_000, 10 * MILLISECOND, 0);
        let waits: Vec<Nanos> = (0..12).map(|_| bucket.take(5 * SECOND, 1) - 5 * SECOND).collect();
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(waits[10..], [1_000_000, 2_000_000]);
    }

    #[test]
    fn the_tokens_of_a_slice_arrive_together() {
        let slice = 100 * MILLISECOND;
        let mut bucket = TokenBucket::new(100, 0, slice);
        let mut times =
            |now: Nanos, count| -> Vec<Nanos> { (0..count).map(|_| bucket.take(now, 1)).collect() };
        let begin = 5 * SECOND;
        // Ten at once, the others with the next slices.
        assert_eq!(times(begin, 10), [begin; 10]);
        assert_eq!(times(begin + MILLISECOND, 10), [begin + slice; 10]);
        assert_eq!(times(begin + 2 * slice, 1), [begin + 2 * slice]);
        // Tokens that are left in a slice can be taken until its end, and not later.
        let late = begin + 3 * slice - 1;
        assert_eq!(times(late, 9), [late; 9]);
        assert_eq!(times(begin + 9 * slice, 11)[9..], [begin + 9 * slice, begin + 10 * slice]);
    }

    #[test]
    fn the_predicted_rate_is_that_of_a_closed_loop() {
        let bytes = RateLimits { operations_per_s: None, bytes_per_s: Some(2 << 20) };
        let plain = DeviceRates::fixed(MILLISECOND);
        for rates in [
            plain,
            limited(3_000, MILLISECOND),
            limited(500, 0),
            DeviceRates { depth: 5, ..plain },
            DeviceRates { read: bytes, ..plain },
            DeviceRates { total: bytes, burst: MILLISECOND, ..limited(300, 100) },
            DeviceRates { transfer_bytes_per_s: Some(2 << 20), ..plain },
            DeviceRates { slice: MILLISECOND, ..limited(2_000, 1_000) },
        ] {
            for depth in [1, 8, 32] {
                let expected = rates.reads_per_s(depth, 4096);
                let found = rate(rates, depth.into(), StoreOpKind::Read);
                let case = format!("{rates:?} at depth {depth}: {found} for {expected}");
                assert!((found / expected - 1.0).abs() < 0.02, "{case}");
            }
        }
    }
}
