//! Advice on storage: `larder-advice`, version 1, the result of `larder advise`.

use serde::Serialize;

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-advice";
/// Candidates whose rates differ by at most this share count as equally fast.
pub const TIE: f64 = 0.05;
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Advice on the storage for some traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StorageAdvice {
    /// The traffic as the user named it.
    pub subject: String,
    /// The requests that reach the storage.
    pub traffic: TrafficSummary,
    /// The cache in front of the storage, if there is one.
    pub cache: Option<CacheEffect>,
    /// The model of the disks.
    pub disk: String,
    /// Their number.
    pub disks: u32,
    /// Failed disks that the array must survive.
    pub failures: u32,
    /// Bytes that the array must have.
    pub needed_bytes: u64,
    /// Requests in flight.
    pub depth: usize,
    /// Requests that were run on each candidate.
    pub sampled_requests: u64,
    /// The candidates, the fastest first.
    pub arrays: Vec<ArrayRow>,
    /// Index of the advised one; `None` if no candidate suffices.
    pub advised_array: Option<usize>,
    /// The place of the log, if there is one beside random data.
    pub log: Option<LogAdvice>,
    /// The reads of the clients, and the effect of read-ahead.
    pub read_ahead: ReadAheadEffect,
    /// The rules of the published guide that apply.
    pub rules: Vec<PublishedRule>,
    /// The allocation units on the advised array; empty without one.
    pub units: Vec<UnitRow>,
    /// Index of the advised one.
    pub advised_unit: usize,
}

/// Requests to storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TrafficSummary {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes of all reads.
    pub read_bytes: u64,
    /// Bytes of all writes.
    pub write_bytes: u64,
    /// Share of the requests that begin where one of the last ones ended, 0 to 1.
    pub sequential_share: f64,
    /// Bytes of all volumes.
    pub bytes: u64,
    /// Requests per second of the recording; `None` if its times are not known.
    pub recorded_per_s: Option<f64>,
}

impl TrafficSummary {
    /// Returns the share of writes among the requests, 0 to 1.
    #[must_use]
    pub fn write_share(&self) -> f64 {
        let all = self.reads + self.writes;
        if all == 0 { 0.0 } else { crate::as_f64(self.writes) / crate::as_f64(all) }
    }
}

/// The effect of a cache on the requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheEffect {
    /// Memory of the cache, bytes.
    pub memory_bytes: u64,
    /// Reads and writes of the clients.
    pub requests: u64,
    /// Those behind the cache.
    pub behind: u64,
    /// Those behind a cache of twice the memory.
    pub behind_twice: u64,
}

/// A candidate, and its figures for the traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrayRow {
    /// The model, as `larder sim --store` accepts it.
    pub model: String,
    /// The level.
    pub level: &'static str,
    /// Number of disks.
    pub disks: u32,
    /// Bytes of a chunk, if the level has chunks.
    pub chunk_bytes: Option<u64>,
    /// Bytes for data; `None` if the model of the disk has no capacity.
    pub usable_bytes: Option<u64>,
    /// Any failed disks that it survives.
    pub failures_survived: u32,
    /// True if it has enough space and survives enough failures.
    pub suffices: bool,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Mean response time, nanoseconds.
    pub mean_ns: f64,
    /// Operations of the disks for each request.
    pub operations_per_request: f64,
    /// Price of the disks for each request per second, in the unit of the given price.
    pub price_per_request_per_s: Option<f64>,
}

/// A rule of the published guide.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedRule {
    /// Its condition and its choice.
    pub rule: String,
    /// True if the advice follows it.
    pub follows: bool,
    /// The reason of the model if not, without a period; else empty.
    pub reason: String,
}

/// An allocation unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UnitRow {
    /// Bytes of the unit.
    pub unit_bytes: u64,
    /// Mean bytes of an extent of the data on an aged file system.
    pub extent_bytes: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests to the array for each request.
    pub parts_per_request: f64,
    /// Share of the used space that files leave unused at their ends, 0 to 1.
    pub unused_share: f64,
}

/// Share of the rate that a log on disks of its own, or read-ahead, must gain to be advised.
pub const GAIN: f64 = 0.05;

/// The place of a log: on the array of all data, or on disks of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogAdvice {
    /// Name of the volume, or its number.
    pub volume: String,
    /// Share of writes among its requests, 0 to 1.
    pub write_share: f64,
    /// Share of those in order among its writes, 0 to 1.
    pub in_order_share: f64,
    /// The fastest array that suffices for all data.
    pub together: ArrayRow,
    /// The model of the disks of the log.
    pub log_model: String,
    /// The fastest array of the other disks that suffices for the rest, with the figures of all
    /// requests; `None` if none suffices.
    pub apart: Option<ArrayRow>,
}

impl LogAdvice {
    /// Returns the array of the rest if the log is advised on disks of its own.
    #[must_use]
    pub fn advised_apart(&self) -> Option<&ArrayRow> {
        let least = self.together.requests_per_s * (1.0 + GAIN);
        self.apart.as_ref().filter(|apart| apart.requests_per_s >= least)
    }
}

/// Reads in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReadOrder {
    /// Share of the reads that begin where one of the last ones ended, 0 to 1.
    pub in_order_share: f64,
    /// Mean number of reads of a run of at least two; 0 without one.
    pub run_reads: f64,
}

/// The reads of the clients, and the effect of read-ahead on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReadAheadEffect {
    /// Their order.
    pub order: ReadOrder,
    /// Requests per second of the clients with read-ahead of the default size; `None` without a
    /// simulated cache, or if less than [`GAIN`] of the reads are in order.
    pub with_per_s: Option<f64>,
    /// Those without read-ahead.
    pub without_per_s: Option<f64>,
}

impl StorageAdvice {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }

    /// Returns the advised candidate.
    #[must_use]
    pub fn advised(&self) -> Option<&ArrayRow> {
        self.arrays.get(self.advised_array?)
    }
}
