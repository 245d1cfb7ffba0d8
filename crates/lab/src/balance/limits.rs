//! The limits of a disk: from the model of a device, or from measured busy time.

use super::DiskLoad;
use crate::model::measure::{Pattern, limits_of, predict};
use crate::model::{DeviceModel, DeviceRates, RateLimits, StoreModel};
use larder_core::clock::SECOND;
use larder_core::units::as_f64;
use std::time::Duration;

const KIB: u64 = 1 << 10;
/// Length of a small and of a large operation, of which the linear cost of a model is made.
const SMALL: u64 = 4 * KIB;
const LARGE: u64 = 256 * KIB;
/// Modeled time of a pattern.
const PATTERN_TIME: Duration = Duration::from_secs(20);
/// Minimum number of requests of which a service time is made.
const REQUESTS_MIN: u64 = 50;

/// Returns the share of the time for which a load keeps a disk with these limits busy, or the
/// seconds of one request.
#[must_use]
pub fn busy_share(limits: &[DiskLoad], load: &DiskLoad) -> f64 {
    limits.iter().map(|limit| limit.cost_of(load)).fold(0.0, f64::max)
}

/// Returns the limits of a model of a device of `bytes` bytes.
///
/// A device with rates has a limit for each rate, and one for the operations in service. Any other
/// model has one limit, of the times of single random operations of 4 KiB and 256 KiB.
#[must_use]
pub fn limits_of_model(model: &StoreModel, bytes: u64) -> Vec<DiskLoad> {
    match model {
        StoreModel::Instant => Vec::new(),
        StoreModel::Device(DeviceModel::Rated(rates)) => limits_of_rates(rates),
        _ => vec![single_operations(model, bytes.max(1 << 30))],
    }
}

fn limits_of_rates(rates: &DeviceRates) -> Vec<DiskLoad> {
    let per = |rate: Option<u64>| rate.map_or(0.0, |it| 1.0 / as_f64(it));
    let operations = |it: RateLimits| per(it.operations_per_s);
    let bytes = |it: RateLimits| per(it.bytes_per_s);
    let none = DiskLoad::default();
    let total = operations(rates.total);
    let credit = per(rates.credit.map(|it| it.operations_per_s));
    let total_bytes = bytes(rates.total);
    let transfer = per(rates.transfer_bytes_per_s);
    // An operation in service takes one of the places of the device.
    let place = |latency: u64| as_f64(latency) / as_f64(SECOND) / f64::from(rates.depth);
    let limits = [
        DiskLoad { reads: total, writes: total, ..none },
        DiskLoad { reads: credit, writes: credit, ..none },
        DiskLoad { read_bytes: total_bytes, write_bytes: total_bytes, ..none },
        DiskLoad { reads: operations(rates.read), ..none },
        DiskLoad { writes: operations(rates.write), ..none },
        DiskLoad { read_bytes: bytes(rates.read), ..none },
        DiskLoad { write_bytes: bytes(rates.write), ..none },
        DiskLoad { read_bytes: transfer, write_bytes: transfer, ..none },
        DiskLoad {
            reads: place(rates.read_latency.mean),
            writes: place(rates.write_latency.mean),
            ..none
        },
    ];
    limits.into_iter().filter(|limit| *limit != none).collect()
}

/// Returns the linear costs of random operations, one at a time.
fn single_operations(model: &StoreModel, bytes: u64) -> DiskLoad {
    let seconds = |is_write, len| {
        let pattern = Pattern { is_write, is_random: true, len, depth: 1 };
        let result = predict(model, bytes, &pattern, limits_of(&pattern, PATTERN_TIME));
        1.0 / result.operations_per_s.max(1e-9)
    };
    let line = |is_write| {
        let (small, large) = (seconds(is_write, SMALL), seconds(is_write, LARGE));
        let per_byte = ((large - small) / as_f64(LARGE - SMALL)).max(0.0);
        (small - per_byte * as_f64(SMALL), per_byte)
    };
    let ((reads, read_bytes), (writes, write_bytes)) = (line(false), line(true));
    DiskLoad { reads, read_bytes, writes, write_bytes }
}

/// Counters of a disk during a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredDisk {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Sum of the latencies of reads, milliseconds.
    pub read_ms: u64,
    /// Sum of the latencies of writes, milliseconds.
    pub write_ms: u64,
    /// Time with at least one request in flight, milliseconds.
    pub busy_ms: u64,
}

impl MeasuredDisk {
    /// Returns the limit that the counters show: the busy time is divided among reads and writes in
    /// proportion to their latencies. `None` if the disk served fewer than 50 requests.
    #[must_use]
    pub fn limit(&self) -> Option<DiskLoad> {
        if self.reads + self.writes < REQUESTS_MIN || self.busy_ms == 0 {
            return None;
        }
        let latencies = self.read_ms + self.write_ms;
        let requests = as_f64(self.reads + self.writes);
        let mean = as_f64(self.busy_ms) / 1000.0 / requests;
        let each = |ms: u64, count: u64| match (latencies, count) {
            (0, _) | (_, 0) => mean,
            _ => as_f64(self.busy_ms) / 1000.0 * as_f64(ms) / as_f64(latencies) / as_f64(count),
        };
        Some(DiskLoad {
            reads: each(self.read_ms, self.reads),
            writes: each(self.write_ms, self.writes),
            ..DiskLoad::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rate_is_a_limit_of_its_own() {
        let mut rates = DeviceRates::fixed(0);
        rates.read.operations_per_s = Some(100);
        rates.total.bytes_per_s = Some(1000);
        let limits = limits_of_model(&StoreModel::rated(rates), 0);
        let bytes = DiskLoad { read_bytes: 0.001, write_bytes: 0.001, ..DiskLoad::default() };
        assert_eq!(limits, [bytes, DiskLoad { reads: 0.01, ..DiskLoad::default() }]);
        assert_eq!(limits_of_model(&StoreModel::Instant, 0), []);
        let fixed = limits_of_model(&StoreModel::rated(DeviceRates::fixed(1_024_000)), 0);
        assert_eq!(fixed, [DiskLoad { reads: 1e-6, writes: 1e-6, ..DiskLoad::default() }]);
    }

    #[test]
    fn a_mechanical_disk_takes_milliseconds_for_a_request_and_nanoseconds_for_a_byte() {
        let limits = limits_of_model(&StoreModel::DISK, 100 << 30);
        let [limit] = limits[..] else { panic!("{limits:?}") };
        assert!((0.005..0.03).contains(&limit.reads), "{limit:?}");
        assert!((1e-9..1e-7).contains(&limit.read_bytes), "{limit:?}");
    }

    #[test]
    fn busy_time_is_divided_by_latency() {
        let counters =
            MeasuredDisk { reads: 100, writes: 100, read_ms: 3000, write_ms: 1000, busy_ms: 2000 };
        let expected = DiskLoad { reads: 0.015, writes: 0.005, ..DiskLoad::default() };
        assert_eq!(counters.limit(), Some(expected));
        let reads = MeasuredDisk { writes: 0, write_ms: 0, ..counters };
        let mean = DiskLoad { reads: 0.02, writes: 0.02, ..DiskLoad::default() };
        assert_eq!(reads.limit(), Some(mean), "a write costs as much as a read");
        assert_eq!(MeasuredDisk { reads: 20, writes: 20, ..counters }.limit(), None);
    }
}
