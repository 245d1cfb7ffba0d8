//! Tests of the measurement of a file, and of the fit.

use super::*;
use crate::bench::target::O_DIRECT;
use std::os::unix::fs::OpenOptionsExt;

/// Returns what a device with these rates would measure.
fn ideal(rates: &DeviceRates) -> Measurement {
    let reads_per_s = DEPTHS.map(|depth| rates.reads_per_s(depth, SMALL_BYTES));
    let large_reads_per_s = rates.reads_per_s(LARGE_DEPTH, LARGE_BYTES);
    Measurement { reads_per_s, median: rates.read_latency.mean, large_reads_per_s }
}

#[test]
fn the_fit_of_an_ideal_device_is_the_device() {
    let limits = |operations_per_s, bytes_per_s| RateLimits { operations_per_s, bytes_per_s };
    for (total, latency) in [
        (limits(Some(100), None), 100_000),
        (limits(Some(180), None), 8_000_000),
        (limits(Some(3_000), Some(125 << 20)), 800_000),
        (limits(Some(98_000), Some(534 << 20)), 70_000),
    ] {
        let device = DeviceRates { total, ..DeviceRates::fixed(latency) };
        let fitted = ideal(&device).fit();
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
    let fitted = ideal(&DeviceRates::fixed(10_000_000)).fit();
    assert_eq!((fitted.depth, fitted.total.operations_per_s), (32, None), "{fitted}");
    assert_eq!(fitted.read_latency.mean, 10_000_000);
}

#[test]
fn a_burst_at_the_beginning_and_slices_do_not_change_the_rate() {
    // 100 reads per second, ten at the beginning of each tenth of a second.
    let read = |number: u64| {
        let end = number / 10 * SECOND / 10 + number % 10 * 1_000;
        TimedRead { begin: end, end }
    };
    let mut reads: Vec<TimedRead> = (0..230).map(read).collect();
    let found = rate(&mut reads);
    assert!((98.0..=102.0).contains(&found), "{found}");
    let mut one = [TimedRead { begin: 0, end: SECOND / 2 }];
    assert!((rate(&mut one) - 2.0).abs() < 1e-9);
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
    let time = Duration::from_mins(1);
    let found = measure_within(&file, BYTES_MIN + 100, time, 800, 20).unwrap();
    assert!(found.reads_per_s.iter().all(|rate| rate.is_normal()), "{found:?}");
    assert!(found.median > 0 && found.large_reads_per_s > 0.0, "{found:?}");
    let step = Step { depth: 8, len: LARGE_BYTES, reads_max: 20, time };
    assert_eq!(step.run(&file, BYTES_MIN).unwrap().len(), 20);
    let step = Step { depth: 8, len: SMALL_BYTES, reads_max: 1_000, time: Duration::ZERO };
    assert_eq!(step.run(&file, BYTES_MIN).unwrap().len(), 1);
    let error = measure(&file, BYTES_MIN - 1).unwrap_err().to_string();
    assert!(error.ends_with("the minimum is 16 MiB"), "{error}");
    // A file that is shorter than it was ends the measurement.
    file.set_len(0).unwrap_err();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert!(measure_within(&file, BYTES_MIN, time, 800, 20).is_err());
}
