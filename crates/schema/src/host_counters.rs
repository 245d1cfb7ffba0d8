//! Counters of a host during some time, in the measures of Perfmon, from any source.
//!
//! Invariants: `None` means that the source does not count a value, 0 that it was zero. Rates are
//! per second, times seconds, sizes bytes, shares from 0 to 1. A value per request is the mean over
//! all requests, not the mean of the samples.

use serde::{Deserialize, Serialize};

/// Counters of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCounters {
    /// Source: `/proc`, `larder watch`, `Perfmon`, `iostat`, `sar`.
    pub source: String,
    /// Name of the host; empty if unknown.
    pub host: String,
    /// Duration.
    pub seconds: Option<f64>,
    /// Number of samples.
    pub samples: u64,
    /// Number of processors.
    pub processors: Option<u32>,
    /// Processors.
    pub cpu: HostCpu,
    /// Whole disks that served requests, the busiest first.
    pub disks: Vec<HostDisk>,
    /// Disks whose requests the kernel does not count.
    pub uncounted_disks: Vec<String>,
    /// Memory and cache.
    pub memory: HostMemory,
    /// Caches of metadata with lookups.
    #[serde(default)]
    pub metadata: Vec<MetadataCache>,
    /// Processes, those with the most I/O first.
    pub processes: Vec<HostProcess>,
    /// Notes for the user on the interpretation.
    pub notes: Vec<String>,
}

/// Use of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCpu {
    /// Share of the time in which they ran programs or the kernel, or the hypervisor ran other
    /// guests while a task was ready.
    pub busy: Option<f64>,
    /// Share of the time in which a processor was idle and one of its tasks waited for I/O.
    pub io_wait: Option<f64>,
    /// Share of the time in which the hypervisor ran other guests while a task was ready; a part of
    /// `busy`.
    pub steal: Option<f64>,
}

/// Activity of a disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostDisk {
    /// Name.
    pub disk: String,
    /// True for a mechanical disk, as the kernel reports it.
    pub is_rotational: Option<bool>,
    /// Names of the devices below it, which serve its requests again.
    pub below: Vec<String>,
    /// Completed reads.
    pub reads_per_s: Option<f64>,
    /// Completed writes.
    pub writes_per_s: Option<f64>,
    /// Completed requests, if the source does not separate reads and writes.
    pub transfers_per_s: Option<f64>,
    /// Bytes read.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written.
    pub write_bytes_per_s: Option<f64>,
    /// Bytes written that the page cache wrote later.
    pub lazy_bytes_per_s: Option<f64>,
    /// Latency of a read.
    pub seconds_per_read: Option<f64>,
    /// Latency of a write.
    pub seconds_per_write: Option<f64>,
    /// Latency of a request, if the source does not separate reads and writes.
    pub seconds_per_transfer: Option<f64>,
    /// Sum of the latencies of reads, as a share of the time; above 1 with several in flight.
    pub read_time: Option<f64>,
    /// Sum of the latencies of writes, as a share of the time.
    pub write_time: Option<f64>,
    /// Share of the time with at least one request in flight.
    pub busy: Option<f64>,
    /// Maximum of a sample.
    pub busy_max: Option<f64>,
    /// Mean number of requests in flight or queued.
    pub queue: Option<f64>,
    /// Maximum of a sample.
    pub queue_max: Option<f64>,
    /// Requests that were split because of their length or the layout of the disk.
    pub splits_per_s: Option<f64>,
}

/// Memory and cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostMemory {
    /// Minimum of the memory that programs can still allocate.
    pub available_min_bytes: Option<f64>,
    /// Size of the cache in the first sample.
    pub cache_first_bytes: Option<f64>,
    /// Size of the cache in the last sample.
    pub cache_last_bytes: Option<f64>,
    /// Maximum size of the cache.
    pub cache_max_bytes: Option<f64>,
    /// Used share of the swap space or paging files.
    pub paging_file_use: Option<f64>,
    /// Maximum of it.
    pub paging_file_use_max: Option<f64>,
    /// Pages read from and written to swap space or, on Windows, because of page faults.
    pub pages_per_s: Option<f64>,
    /// Writes of the cache by itself.
    pub lazy_flushes_per_s: Option<f64>,
    /// Pages that they wrote.
    pub lazy_pages_per_s: Option<f64>,
    /// Size of these pages.
    pub page_bytes: Option<f64>,
    /// Bytes read from disks that the cache had held before.
    pub reread_bytes_per_s: Option<f64>,
    /// Share of the reads that the cache answered.
    pub hit_ratio: Option<f64>,
    /// Reads of the cache that waited for a disk.
    pub misses_per_s: Option<f64>,
    /// Share of the time in which at least one task waited for I/O.
    pub io_pressure: Option<f64>,
    /// Share of the time in which at least one task waited for memory.
    pub memory_pressure: Option<f64>,
}

/// A cache of the metadata of a file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataCache {
    /// Device of the file system.
    pub device: String,
    /// Type of the file system.
    pub file_system: String,
    /// Its content: `inodes`, `buffers`, `extents`.
    pub cache: String,
    /// Lookups.
    pub lookups_per_s: f64,
    /// Share of the lookups that found their object.
    pub hit_ratio: f64,
}

impl MetadataCache {
    /// Returns the lookups per second that did not find their object.
    #[must_use]
    pub fn misses_per_s(&self) -> f64 {
        self.lookups_per_s * (1.0 - self.hit_ratio)
    }
}

/// Activity of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostProcess {
    /// Name.
    pub process: String,
    /// Process ID.
    pub pid: Option<u32>,
    /// Processors in use, 1 for one that is always busy.
    pub cpu: Option<f64>,
    /// Read operations.
    pub reads_per_s: Option<f64>,
    /// Write operations.
    pub writes_per_s: Option<f64>,
    /// Operations that are neither.
    pub others_per_s: Option<f64>,
    /// Bytes of the read operations, from the cache or a disk.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes of the write operations.
    pub write_bytes_per_s: Option<f64>,
    /// Bytes read from disks.
    pub disk_read_bytes_per_s: Option<f64>,
    /// Bytes that were made dirty in the cache or written to disks directly.
    pub disk_write_bytes_per_s: Option<f64>,
    /// Whole disks on which it has files open; `None` if unknown.
    pub disks: Option<Vec<String>>,
    /// Private memory in the last sample.
    pub private_bytes: Option<f64>,
    /// Its growth since the first sample.
    pub private_growth_bytes: Option<f64>,
}

impl HostDisk {
    /// Returns the reads and writes per second.
    #[must_use]
    pub fn requests_per_s(&self) -> Option<f64> {
        sum(self.reads_per_s, self.writes_per_s).or(self.transfers_per_s)
    }

    /// Returns the sum of the latencies as a share of the time.
    #[must_use]
    pub fn disk_time(&self) -> Option<f64> {
        let transfers = || Some(self.transfers_per_s? * self.seconds_per_transfer?);
        sum(self.read_time, self.write_time).or_else(transfers)
    }

    /// Returns the mean latency of all requests.
    #[must_use]
    pub fn seconds_per_request(&self) -> Option<f64> {
        let part = |rate: Option<f64>, seconds: Option<f64>| {
            if rate == Some(0.0) { Some(0.0) } else { Some(rate? * seconds?) }
        };
        let reads = part(self.reads_per_s, self.seconds_per_read);
        let writes = part(self.writes_per_s, self.seconds_per_write);
        match sum(reads, writes) {
            None => self.seconds_per_transfer,
            Some(time) => Some(time / self.requests_per_s().filter(|rate| *rate > 0.0)?),
        }
    }

    /// Returns the mean bytes of a read.
    #[must_use]
    pub fn bytes_per_read(&self) -> Option<f64> {
        ratio(self.read_bytes_per_s, self.reads_per_s)
    }

    /// Returns the mean bytes of a write.
    #[must_use]
    pub fn bytes_per_write(&self) -> Option<f64> {
        ratio(self.write_bytes_per_s, self.writes_per_s)
    }

    /// Returns the mean bytes of a request.
    #[must_use]
    pub fn bytes_per_request(&self) -> Option<f64> {
        ratio(sum(self.read_bytes_per_s, self.write_bytes_per_s), self.requests_per_s())
    }
}

impl HostProcess {
    /// Returns the read and write operations per second.
    #[must_use]
    pub fn data_per_s(&self) -> Option<f64> {
        sum(self.reads_per_s, self.writes_per_s)
    }

    /// Returns the bytes of the read and write operations per second.
    #[must_use]
    pub fn data_bytes_per_s(&self) -> Option<f64> {
        sum(self.read_bytes_per_s, self.write_bytes_per_s)
    }

    /// Returns the name with the process ID.
    #[must_use]
    pub fn label(&self) -> String {
        self.pid.map_or_else(|| self.process.clone(), |pid| format!("{} ({pid})", self.process))
    }
}

/// Returns the sum of the known values; `None` if none is known.
fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (known, None) | (None, known) => known,
    }
}

fn ratio(sum: Option<f64>, count: Option<f64>) -> Option<f64> {
    Some(sum? / count.filter(|count| *count > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_mean_of_all_requests() {
        let disk = HostDisk {
            reads_per_s: Some(30.0),
            seconds_per_read: Some(0.01),
            writes_per_s: Some(10.0),
            seconds_per_write: Some(0.05),
            ..HostDisk::default()
        };
        assert_eq!(disk.seconds_per_request(), Some(0.02));
        let idle = HostDisk { writes_per_s: Some(0.0), seconds_per_write: None, ..disk.clone() };
        assert_eq!(idle.seconds_per_request(), Some(0.01));
        assert_eq!(HostDisk::default().seconds_per_request(), None);
        let transfers = HostDisk {
            transfers_per_s: Some(20.0),
            seconds_per_transfer: Some(0.01),
            read_bytes_per_s: Some(40960.0),
            ..HostDisk::default()
        };
        assert_eq!(transfers.seconds_per_request(), Some(0.01));
        assert_eq!(
            (transfers.disk_time(), transfers.bytes_per_request()),
            (Some(0.2), Some(2048.0))
        );
        assert_eq!(transfers.bytes_per_read(), None);
    }
}
