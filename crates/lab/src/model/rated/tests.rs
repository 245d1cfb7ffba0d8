//! Tests of a device with rates: its limits at each depth, bursts, slices, credit and transfers.

use super::*;
use crate::model::rig::{closed_loop, scattered};
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
    let rates =
        DeviceRates { transfer_bytes_per_s: Some(100 * mib), ..DeviceRates::fixed(MILLISECOND) };
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
            let is_free =
                |begin: Nanos| busy.iter().all(|&(from, to)| begin + time <= from || to <= begin);
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
    let mut time = |kind| device.serve(0, &Access { kind, offset: 0, len: 4096, arrived_at: 0 });
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
fn credit_is_used_up_and_earned_back() {
    let credit = Some(BurstCredit { operations_per_s: 100, operations: 2_000 });
    let rates = DeviceRates { credit, ..limited(1_000, 0) };
    let mut device = RatedDevice::new(rates, 0);
    let access = Access { kind: StoreOpKind::Read, offset: 0, len: 4096, arrived_at: 0 };
    let mut seconds = |from: Nanos, count: u64| {
        let served = (0..count).map(|_| device.serve(from, &access)).last().unwrap();
        as_f64(served - from) / as_f64(SECOND)
    };
    // 1,000 per second, of which 100 are earned meanwhile: the credit lasts for 2.2 s.
    assert!((seconds(0, 2_200) - 2.2).abs() < 0.01);
    // 100 are left then, and 100 are earned in a second.
    let begin = 3 * SECOND;
    assert!((seconds(begin, 200) - 1.0).abs() < 0.01);
    // Three seconds later 300 are there.
    assert!((seconds(begin + 4 * SECOND, 200) - 0.2).abs() < 0.01);
}

#[test]
fn bytes_beyond_a_slice_wait_for_their_own_tokens() {
    let mebibyte = 1 << 20;
    let mut bucket = TokenBucket::new(10 * mebibyte, 0, 100 * MILLISECOND);
    bucket.waits_for_last = true;
    let mut times = |now: Nanos, bytes| bucket.take(now, bytes) - now;
    // A slice has 1 MiB. The second request needs half of the next one, whose rest is there
    // then.
    assert_eq!(times(0, mebibyte * 3 / 4), 0);
    assert_eq!(times(MILLISECOND, mebibyte * 3 / 4), 149 * MILLISECOND);
    assert_eq!(times(2 * MILLISECOND, mebibyte / 2), 148 * MILLISECOND);
    assert_eq!(times(3 * MILLISECOND, 2 * mebibyte), 397 * MILLISECOND);
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
