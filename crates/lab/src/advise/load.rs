//! Traffic with the rates and lengths of counters, which have no positions.

use super::traffic::{DeviceRequest, Traffic, TrafficError};
use crate::random::Random;
use larder_core::store::StoreOpKind;
use larder_core::units::as_f64;

/// Unit of positions and lengths.
const SECTOR: u64 = 512;
/// Maximum length of a request to a disk, as for traces.
const LEN_MAX: u64 = 1 << 20;
/// Number of requests.
const REQUESTS: u64 = 20_000;

/// Load of a disk: means of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanLoad {
    /// Reads per second.
    pub reads_per_s: f64,
    /// Bytes of a read.
    pub bytes_per_read: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Bytes of a write.
    pub bytes_per_write: f64,
}

impl Traffic {
    /// Returns requests with the rates and mean lengths of a load, at random positions of storage
    /// of `bytes` bytes.
    ///
    /// # Errors
    /// The load has no requests.
    pub fn of_load(load: &MeanLoad, bytes: u64, seed: u64) -> Result<Traffic, TrafficError> {
        let rate = load.reads_per_s + load.writes_per_s;
        if rate.is_nan() || rate <= 0.0 {
            return Err(TrafficError::Empty);
        }
        let mut random = Random::from_seed(seed);
        let lens = [load.bytes_per_read, load.bytes_per_write].map(|bytes| len(bytes, LEN_MAX));
        let request = |number: u64| {
            let is_read = random.unit() * rate < load.reads_per_s;
            let len = lens[usize::from(!is_read)];
            // Aligned like the blocks of a program with requests of this length.
            let places = (bytes / len).max(1);
            let kind = if is_read { StoreOpKind::Read } else { StoreOpKind::Write { fua: false } };
            let at = larder_schema::as_u64(as_f64(number) / rate * 1e9);
            DeviceRequest { at, kind, offset: random.below(places) * len, len }
        };
        let requests = (0..REQUESTS).map(request).collect();
        Ok(Traffic::new(requests, &[bytes.max(LEN_MAX)]))
    }
}

/// Returns a length in sectors.
fn len(bytes: f64, max: u64) -> u64 {
    larder_schema::as_u64(bytes).next_multiple_of(SECTOR).clamp(SECTOR, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_has_the_rates_and_lengths_of_the_load() {
        let load = MeanLoad {
            reads_per_s: 75.0,
            bytes_per_read: 8000.0,
            writes_per_s: 25.0,
            bytes_per_write: 5e6,
        };
        let summary = Traffic::of_load(&load, 1 << 30, 1).unwrap().summary();
        assert!((summary.write_share() - 0.25).abs() < 0.02, "{summary:?}");
        assert_eq!(summary.read_bytes, 8192 * summary.reads);
        assert_eq!(summary.write_bytes, summary.writes << 20, "as long as the kernel lets it be");
        assert!((summary.recorded_per_s.unwrap() - 100.0).abs() < 0.1, "{summary:?}");
        assert!(summary.sequential_share < 0.01);
        let none = Traffic::of_load(&MeanLoad::default(), 1 << 30, 1);
        assert!(matches!(none, Err(TrafficError::Empty)));
    }
}
