//! Summary of a log of Perfmon: `larder-perfmon`, version 1. Ratios are from 0 to 1, times seconds,
//! sizes bytes; values that the log lacks are `None`.

use crate::watch::Finding;
use serde::Serialize;

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-perfmon";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Reads through one of the cache interfaces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interface {
    /// Name: `copy`, `data map`, `pin`, `mdl`.
    pub interface: &'static str,
    /// Calls per second; `None` if the log lacks the counter.
    pub calls_per_s: Option<f64>,
    /// Hit ratio of all calls; `None` without calls or their counter.
    pub hit_ratio: Option<f64>,
    /// Unweighted mean of the samples, as monitors show it.
    pub averaged_hit_ratio: Option<f64>,
    /// Calls per second that waited for a disk.
    pub misses_per_s: Option<f64>,
}

/// Writes in bursts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bursts {
    /// `lazy write`, or `data flush`, which also includes flushes and the mapped page writer.
    pub what: &'static str,
    /// Bursts per second.
    pub bursts_per_s: f64,
    /// Pages per second.
    pub pages_per_s: f64,
    /// Mean pages per burst: total pages over total bursts.
    pub pages_per_burst: Option<f64>,
    /// Maximum pages per second of one sample.
    pub pages_per_s_max: f64,
}

/// Activity of one disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disk {
    /// `LogicalDisk` or `PhysicalDisk`.
    pub object: &'static str,
    /// Instance name.
    pub disk: String,
    /// Reads per second.
    pub reads_per_s: Option<f64>,
    /// Writes per second.
    pub writes_per_s: Option<f64>,
    /// Seconds per read, over all reads; the unweighted mean if the log lacks reads per second.
    pub seconds_per_read: Option<f64>,
    /// Unweighted mean of the samples, as monitors show it.
    pub averaged_seconds_per_read: Option<f64>,
    /// Seconds per write, as for reads.
    pub seconds_per_write: Option<f64>,
    /// Unweighted mean of the samples.
    pub averaged_seconds_per_write: Option<f64>,
    /// Bytes per read, over all reads.
    pub bytes_per_read: Option<f64>,
    /// Bytes per write, over all writes.
    pub bytes_per_write: Option<f64>,
    /// Share of the time with a read in flight; above 1 with several at once.
    pub read_time: Option<f64>,
    /// Share of the time with a write in flight.
    pub write_time: Option<f64>,
    /// Requests queued or in flight.
    pub queue: Option<f64>,
    /// Maximum of one sample.
    pub queue_max: Option<f64>,
    /// Reads queued or in flight.
    pub read_queue: Option<f64>,
    /// Writes queued or in flight.
    pub write_queue: Option<f64>,
    /// Reads and writes per second; their sum if the log lacks the counter.
    pub transfers_per_s: Option<f64>,
    /// Seconds per read or write, over all transfers. If the log lacks the counter, it follows from
    /// those of reads and writes.
    pub seconds_per_transfer: Option<f64>,
    /// `% Disk Time`: the sum of `read_time` and `write_time`; above 1 with several requests at
    /// once.
    pub disk_time: Option<f64>,
    /// Maximum of one sample.
    pub disk_time_max: Option<f64>,
    /// Share of the time with at least one request in flight, 0 to 1; `None` if the log lacks `%
    /// Idle Time`.
    pub busy: Option<f64>,
    /// Maximum of one sample.
    pub busy_max: Option<f64>,
    /// Split requests per second.
    pub splits_per_s: Option<f64>,
}

/// Memory use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Minimum available memory, bytes.
    pub available_min_bytes: Option<f64>,
    /// Mean available memory, bytes.
    pub available_mean_bytes: Option<f64>,
    /// Pages read from and written to disk because of page faults, per second.
    pub pages_per_s: Option<f64>,
    /// Maximum of one sample.
    pub pages_per_s_max: Option<f64>,
    /// Pages read from disk because of page faults, per second.
    pub pages_input_per_s: Option<f64>,
    /// Read operations because of page faults, per second.
    pub page_reads_per_s: Option<f64>,
    /// Page faults of the cache per second, with and without a disk read.
    pub cache_faults_per_s: Option<f64>,
    /// Cache size at the start, bytes.
    pub cache_first_bytes: Option<f64>,
    /// Minimum cache size.
    pub cache_min_bytes: Option<f64>,
    /// Maximum cache size.
    pub cache_max_bytes: Option<f64>,
    /// Cache size at the end.
    pub cache_last_bytes: Option<f64>,
}

/// Use of a paging file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PagingFile {
    /// Instance name: the path of the file, or `_Total`.
    pub file: String,
    /// Used share, 0 to 1.
    pub usage: Option<f64>,
    /// Maximum of one sample.
    pub usage_max: Option<f64>,
    /// Maximum since the start of Windows.
    pub usage_peak: Option<f64>,
}

/// Use of the processors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Processor {
    /// Busy share of all processors, 0 to 1.
    pub time: Option<f64>,
    /// Maximum of one sample.
    pub time_max: Option<f64>,
    /// Threads that are ready and wait for a processor.
    pub queue: Option<f64>,
    /// Maximum of one sample.
    pub queue_max: Option<f64>,
}

/// Activity of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Process name.
    pub process: String,
    /// Bytes read per second, from the cache or from a disk.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written per second.
    pub write_bytes_per_s: Option<f64>,
    /// Bytes read and written per second; the sum of both if the log lacks the counter.
    pub data_bytes_per_s: Option<f64>,
    /// Bytes of other operations per second, such as those of device controls.
    pub other_bytes_per_s: Option<f64>,
    /// Read operations per second.
    pub reads_per_s: Option<f64>,
    /// Write operations per second.
    pub writes_per_s: Option<f64>,
    /// Read and write operations per second; the sum of both if the log lacks the counter.
    pub data_operations_per_s: Option<f64>,
    /// Other operations per second.
    pub other_operations_per_s: Option<f64>,
    /// Processor time per second of the log, in seconds; above 1 with several threads at once.
    pub processor_time: Option<f64>,
    /// Private memory in its first sample, bytes.
    pub private_first_bytes: Option<f64>,
    /// Private memory in its last sample.
    pub private_last_bytes: Option<f64>,
    /// Private memory at the points of lines over time; empty if it did not run all the time.
    pub private_bytes: Vec<f64>,
}

/// A value over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name.
    pub name: &'static str,
    /// Unit: `ratio`, `misses per second`, `per second`, `bytes`.
    pub unit: &'static str,
    /// Seconds since the start, and the value; each point may combine several samples.
    pub points: Vec<(f64, f64)>,
}

/// Summary of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// Machine name; empty if the log lacks it.
    pub host: String,
    /// Language of the counter names.
    pub language: String,
    /// Time of the first sample, on the clock of the log.
    pub begin: String,
    /// Time of the last sample.
    pub end: String,
    /// Number of samples.
    pub samples: u64,
    /// Median interval in seconds; `None` with a single sample.
    pub interval_s: Option<f64>,
    /// Cache interfaces with data in the log.
    pub interfaces: Vec<Interface>,
    /// Fast reads of the copy interface, per second.
    pub fast_reads_per_s: Option<f64>,
    /// Read-ahead operations per second.
    pub read_aheads_per_s: Option<f64>,
    /// Pins of mapped data, per second.
    pub data_map_pins_per_s: Option<f64>,
    /// Lazy writes, and all writes of the cache.
    pub bursts: Vec<Bursts>,
    /// Disks.
    pub disks: Vec<Disk>,
    /// Memory, if the log has data on it.
    pub memory: Option<Memory>,
    /// Processors, if the log has data on them.
    pub processor: Option<Processor>,
    /// Paging files; the total comes last.
    pub paging_files: Vec<PagingFile>,
    /// Processes, those with the most I/O first.
    pub processes: Vec<Process>,
    /// Values over time.
    pub lines: Vec<Line>,
    /// Problems that the log shows.
    pub findings: Vec<Finding>,
    /// Missing counters of objects that are in the log.
    pub missing: Vec<&'static str>,
    /// Objects without data in the log.
    pub absent: Vec<&'static str>,
    /// Headings of unknown counters of these objects.
    pub unknown: Vec<String>,
    /// Notes for the user on the interpretation of the log.
    pub notes: Vec<String>,
}

impl Summary {
    /// Returns the JSON object.
    ///
    /// # Panics
    /// If a number is infinite or not a number, which the parser prevents.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("plain numbers and words")
    }
}
