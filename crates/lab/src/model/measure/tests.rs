//! Tests of the measurement of a file, of the fit, and of predictions.

use super::fit::{Effort, LARGE_BYTES, LARGE_DEPTH, SMALL_BYTES, measure_within};
use super::*;
use crate::bench::target::O_DIRECT;
use crate::model::{DeviceRates, Latency, RateLimits, StoreModel};
use larder_core::clock::MILLISECOND;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::AtomicU64;

/// Returns what a device with these rates would measure.
fn ideal(rates: &DeviceRates) -> SideMeasurement {
    let result = |depth, len| {
        let operations_per_s = rates.reads_per_s(depth, len);
        let own = rates.total.bytes_per_s.map_or(0, |it| len * SECOND / it);
        let p50 = rates.read_latency.median + own;
        PatternResult { operations: 1, operations_per_s, p50, p99: p50 }
    };
    let small = DEPTHS.map(|depth| result(depth, SMALL_BYTES));
    SideMeasurement { small, large: [1, LARGE_DEPTH].map(|depth| result(depth, LARGE_BYTES)) }
}

/// Returns the results of the steps on a modeled device.
fn measured(model: &StoreModel, is_write: bool) -> SideMeasurement {
    let limits = PatternLimits { time: Duration::from_secs(2), operations: 40_000 };
    let step = |is_random, len, depth| {
        let pattern = Pattern { is_write, is_random, len, depth };
        predict(model, 1 << 30, &pattern, limits)
    };
    let small = DEPTHS.map(|depth| step(true, SMALL_BYTES, depth));
    SideMeasurement { small, large: [1, LARGE_DEPTH].map(|it| step(false, LARGE_BYTES, it)) }
}

fn limits(operations_per_s: Option<u64>, bytes_per_s: Option<u64>) -> RateLimits {
    RateLimits { operations_per_s, bytes_per_s }
}

#[test]
fn the_fit_of_an_ideal_device_is_the_device() {
    for (total, latency) in [
        (limits(Some(100), None), 100_000),
        (limits(Some(180), None), 8_000_000),
        (limits(Some(3_000), Some(125 << 20)), 800_000),
        (limits(Some(98_000), Some(534 << 20)), 70_000),
    ] {
        let device = DeviceRates { total, ..DeviceRates::fixed(latency) };
        let fitted = Measurement { read: ideal(&device), write: None }.fit();
        assert_eq!(fitted.total.operations_per_s, total.operations_per_s, "{fitted}");
        // Only the first one completes a read far sooner than its limit permits the next one.
        assert_eq!(fitted.slice > 0, total.operations_per_s == Some(100), "{fitted}");
        assert!(
            fitted.read_latency.mean.abs_diff(latency) <= latency / 50,
            "{fitted} for {device}"
        );
        for depth in DEPTHS {
            let rates = [&device, &fitted].map(|it| it.reads_per_s(depth, SMALL_BYTES));
            assert!((rates[0] / rates[1] - 1.0).abs() < 0.02, "{fitted} for {device}: {rates:?}");
        }
    }
}

#[test]
fn a_device_that_no_depth_saturates_gets_the_largest_depth_that_was_measured() {
    let fitted = Measurement { read: ideal(&DeviceRates::fixed(10_000_000)), write: None }.fit();
    assert_eq!((fitted.depth, fitted.total.operations_per_s), (32, None), "{fitted}");
    assert_eq!(fitted.read_latency.mean, 10_000_000);
}

/// The steps of a measurement on a model give a model that predicts the same.
#[test]
fn a_fit_predicts_each_pattern_of_the_model_that_was_measured() {
    let plain = DeviceRates::fixed(100_000);
    let slice = 100 * MILLISECOND;
    let varied = Latency { mean: 5_000_000, median: 4_000_000 };
    for device in [
        DeviceRates {
            read: limits(Some(100), None),
            write: limits(Some(50), None),
            slice,
            ..plain
        },
        DeviceRates { total: limits(None, Some(2 << 20)), slice, ..plain },
        DeviceRates {
            total: limits(Some(500), Some(60 << 20)),
            ..DeviceRates::fixed(5 * MILLISECOND)
        },
        DeviceRates {
            total: limits(Some(3_000), Some(125 << 20)),
            burst: 16 * MILLISECOND,
            ..DeviceRates::fixed(800_000)
        },
        DeviceRates { read_latency: varied, ..DeviceRates::fixed(5 * MILLISECOND) },
    ] {
        let model = StoreModel::rated(device);
        let write = Some(measured(&model, true));
        let fitted = Measurement { read: measured(&model, false), write }.fit();
        let limits = PatternLimits { time: Duration::from_secs(8), operations: 20_000 };
        for pattern in READ_PATTERNS.iter().chain(&PATTERNS) {
            let [expected, found] = [device, fitted]
                .map(|it| predict(&StoreModel::rated(it), 1 << 30, pattern, limits));
            let case = format!("{device}: {fitted}: {pattern:?}: {expected:?} {found:?}");
            let ratio = found.operations_per_s / expected.operations_per_s;
            assert!((ratio - 1.0).abs() < 0.1, "{case}");
            for (found, expected, most) in
                [(found.p50, expected.p50, 0.1), (found.p99, expected.p99, 0.2)]
            {
                assert!((as_f64(found) / as_f64(expected) - 1.0).abs() < most, "{case}");
            }
        }
    }
}

#[test]
fn a_limit_of_bytes_is_not_also_one_of_operations() {
    let device = DeviceRates { total: limits(None, Some(8 << 20)), ..DeviceRates::fixed(100_000) };
    let fitted = Measurement { read: ideal(&device), write: None }.fit();
    assert_eq!(fitted.total, limits(None, Some(8 << 20)));
}

#[test]
fn a_burst_at_the_beginning_and_slices_do_not_change_the_rate() {
    // 100 reads per second, ten at the beginning of each tenth of a second.
    let operation = |number: u64| {
        let end = number / 10 * SECOND / 10 + number % 10 * 1_000;
        TimedOperation { begin: end, end }
    };
    let mut operations: Vec<TimedOperation> = (0..230).map(operation).collect();
    let found = rate(&mut operations);
    assert!((98.0..=102.0).contains(&found), "{found}");
    let mut one = [TimedOperation { begin: 0, end: SECOND / 2 }];
    assert!((rate(&mut one) - 2.0).abs() < 1e-9);
}

#[test]
fn percentiles_are_times_of_operations() {
    let operations = (1..=200).map(|number| TimedOperation { begin: 0, end: number });
    let PatternResult { operations, p50, p99, .. } = PatternResult::of(operations.collect());
    assert_eq!((operations, p50, p99), (200, 100, 198));
    let PatternResult { p50, p99, .. } =
        PatternResult::of(vec![TimedOperation { begin: 3, end: 10 }]);
    assert_eq!((p50, p99), (7, 7));
}

/// A device in memory that counts its operations.
struct CountingDevice {
    bytes: u64,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl CountingDevice {
    fn new(bytes: u64) -> Self {
        CountingDevice { bytes, reads: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }
}

impl Device for CountingDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn connect(&self) -> io::Result<Box<dyn DeviceAccess + Send + '_>> {
        Ok(Box::new(self))
    }
}

impl DeviceAccess for &CountingDevice {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert!(offset + buffer.len() as u64 <= self.bytes && offset.is_multiple_of(4096));
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(offset + bytes.len() as u64 <= self.bytes && offset.is_multiple_of(4096));
        assert!(bytes.iter().any(|byte| *byte != 0), "content that cannot be omitted");
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_measurement_is_bounded_and_writes_only_if_told() {
    let stop = AtomicBool::new(false);
    let effort = Effort { time: Duration::from_mins(1), small_max: 800, large_max: 20 };
    let device = CountingDevice::new(BYTES_MIN + 100);
    let found = measure_within(&device, false, effort, &stop).unwrap();
    assert_eq!(found.steps().count(), 5);
    assert!(found.steps().all(|(pattern, ..)| !pattern.is_write));
    let counts = || [&device.reads, &device.writes].map(|it| it.load(Ordering::Relaxed));
    assert_eq!(counts(), [100 + 200 + 400 + 20, 0]);
    let found = measure_within(&device, true, effort, &stop).unwrap();
    assert_eq!(found.steps().filter(|(pattern, ..)| pattern.is_write).count(), 5);
    assert_eq!(counts(), [2 * 720, 720]);
    stop.store(true, Ordering::Relaxed);
    let error = measure_within(&device, true, effort, &stop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    let limits = limits_of(&READ_PATTERNS[4], Duration::ZERO);
    assert_eq!(limits.operations * READ_PATTERNS[4].len, 1 << 30);
    assert_eq!(limits_of(&READ_PATTERNS[0], Duration::ZERO).operations, 200_000);
}

#[test]
fn a_file_is_read_within_its_limits_and_a_short_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    std::fs::write(&path, vec![1; usize::try_from(BYTES_MIN).unwrap() + 100]).unwrap();
    let file = match File::options().read(true).custom_flags(O_DIRECT).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return larder_testing::skip("the file system has no direct I/O");
        }
        file => file.unwrap(),
    };
    let mut device = FileDevice { file, bytes: BYTES_MIN + 100 };
    let (time, stop) = (Duration::from_mins(1), AtomicBool::new(false));
    let effort = Effort { time, small_max: 800, large_max: 20 };
    let found = measure_within(&device, false, effort, &stop).unwrap().read;
    let results: Vec<PatternResult> = found.small.into_iter().chain(found.large).collect();
    let is_valid = |it: &PatternResult| it.operations_per_s.is_normal() && it.p50 > 0;
    assert!(results.iter().all(is_valid), "{found:?}");
    let of = |time, operations| {
        let limits = PatternLimits { time, operations };
        run(&device, &READ_PATTERNS[6], limits, &stop).unwrap().operations
    };
    assert_eq!((of(time, 20), of(Duration::ZERO, 1_000)), (20, 1));
    // A file that is shorter than it was ends the measurement.
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert!(measure_within(&device, false, effort, &stop).is_err());
    device.bytes = BYTES_MIN - 1;
    let error = measure(&device, false, &stop).unwrap_err().to_string();
    assert!(error.ends_with("the minimum is 16 MiB"), "{error}");
}
