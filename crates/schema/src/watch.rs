//! Page cache activity of a host: `larder-watch`, version 1, the result of `larder watch`.
//!
//! Invariants: the watcher fills in the data; a ratio is always computed from sums of pages, never
//! from other ratios, so it is weighted by requests. Numbers have the unit in their names; pages
//! are those of the machine, `page_bytes` each. `missing` lists unavailable information, for which
//! there are no substitute values.

mod counts;
mod rows;

pub use counts::Counts;
pub use rows::{WatchColumn, rows};

use crate::host_counters::HostCounters;
use serde::{Deserialize, Serialize};

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-watch";
/// Scope of a watch without restrictions.
pub const WHOLE: &str = "the whole machine";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Accesses of a process to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Path of the file, or its device and inode number if the path is unknown.
    pub file: String,
    /// Device number, as the kernel encodes it: major and minor.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Process name.
    pub process: String,
    /// Process ID; 0 for kernel threads that are counted as one.
    pub pid: u32,
    /// Counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Memory use at one time, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident file pages.
    pub resident_bytes: u64,
    /// Dirty pages.
    pub dirty_bytes: u64,
    /// Pages under writeback.
    pub write_back_bytes: u64,
    /// Memory that programs can still allocate.
    pub available_bytes: u64,
    /// Total memory.
    pub total_bytes: u64,
    /// Threshold above which the kernel writes dirty pages back regardless of their age.
    pub background_threshold_bytes: u64,
    /// Threshold above which the kernel throttles writers.
    pub dirty_threshold_bytes: u64,
    /// Share of the time since the previous reading in which at least one task waited for memory, 0
    /// to 1; `None` if the kernel does not report it.
    pub memory_pressure: Option<f64>,
    /// The same share for I/O.
    pub io_pressure: Option<f64>,
    /// Evicted file pages that were read again since the previous reading.
    pub refault_pages: u64,
    /// File pages evicted by reclaim since the previous reading.
    pub reclaimed_pages: u64,
}

/// Private memory of a process at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Process name.
    pub process: String,
    /// Process ID.
    pub pid: u32,
    /// Anonymous memory: neither file pages nor shared memory.
    pub private_bytes: u64,
}

/// Data in two caches: files of a loop device, and the image behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackedCache {
    /// The cache closer to the program.
    pub upper: String,
    /// Bytes added during the watch and still cached.
    pub upper_bytes: u64,
    /// The underlying image.
    pub lower: String,
    /// Its resident bytes.
    pub lower_bytes: u64,
}

/// Physical I/O without a known file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnattributedIo {
    /// Bytes marked as metadata by the file system.
    pub metadata_bytes: u64,
    /// Other bytes read.
    pub read_bytes: u64,
    /// Other bytes written: unmarked journal writes, and writes of unknown origin.
    pub write_bytes: u64,
}

/// One interval of the watch, or the total.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Start, relative to the start of the watch.
    pub begin_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// Sum over all watched files and processes.
    pub sum: Counts,
    /// Counts by file and process, the most active first.
    pub rows: Vec<Row>,
    /// Number of rows before truncation.
    pub rows_all: u64,
    /// Active disks.
    pub disks: Vec<Disk>,
    /// Disks whose requests the kernel did not count, since `queue/iostats` was 0: their activity
    /// is unknown, and they are not among `disks`.
    #[serde(default)]
    pub uncounted: Vec<String>,
    /// Memory at the end.
    pub memory: Memory,
    /// Processes with the most private memory at the end.
    #[serde(default)]
    pub processes: Vec<ProcessMemory>,
    /// Physical I/O without a file, of the whole machine.
    pub unattributed: UnattributedIo,
    /// Events that the kernel dropped.
    pub lost_events: u64,
}

/// Result of a watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Scope: `the whole machine`, or a path, a process, a cgroup.
    pub scope: String,
    /// Kernel release.
    pub kernel: String,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Unavailable information, one sentence each, with the way to obtain it.
    pub missing: Vec<String>,
    /// Number of events processed.
    pub events: u64,
    /// Processor time used by the watcher, nanoseconds.
    pub own_cpu_ns: u64,
    /// Peak memory use of the watcher, bytes.
    pub own_memory_bytes: u64,
    /// Intervals in order.
    pub intervals: Vec<Interval>,
    /// Total of the watch.
    pub total: Interval,
    /// Stacked caches.
    #[serde(default)]
    pub layers: Vec<StackedCache>,
    /// Source of lookups, in a few words; empty without one.
    #[serde(default)]
    pub means: String,
    /// Findings of the rules.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Counters of the whole host.
    #[serde(default)]
    pub host: Option<HostCounters>,
}

/// An error reading a result. The message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The text is not JSON of this form.
    #[error("read a result of larder watch: {0}")]
    NotOne(#[from] serde_json::Error),
    /// The result has another schema or version.
    #[error("read a result of larder watch: it is {schema} {version}, not {SCHEMA} {VERSION}")]
    Other {
        /// Its schema.
        schema: String,
        /// Its version.
        version: u32,
    },
}

impl Watch {
    /// Returns JSON, ending with a line break.
    #[must_use]
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("numbers, texts and lists");
        text + "\n"
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// The text is not JSON of this schema and version.
    pub fn from_json(text: &str) -> Result<Watch, WatchError> {
        let found: Watch = serde_json::from_str(text)?;
        if found.schema == SCHEMA && found.version == VERSION {
            return Ok(found);
        }
        Err(WatchError::Other { schema: found.schema, version: found.version })
    }
}

/// Bytes of a sector in /proc/diskstats, whatever the disk's sector size.
const SECTOR_BYTES: u64 = 512;

/// Activity of a disk during an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Name, such as `sda`.
    pub name: String,
    /// Completed reads.
    pub reads: u64,
    /// Read requests that the kernel merged with others.
    pub read_merges: u64,
    /// Sectors of 512 bytes read.
    pub read_sectors: u64,
    /// Sum of the read latencies, milliseconds.
    pub read_ms: u64,
    /// Completed writes.
    pub writes: u64,
    /// Write requests that the kernel merged with others.
    pub write_merges: u64,
    /// Sectors of 512 bytes written.
    pub write_sectors: u64,
    /// Sum of the write latencies, milliseconds.
    pub write_ms: u64,
    /// Time with at least one request in flight, milliseconds.
    pub busy_ms: u64,
    /// Sum over all requests of the time in flight, milliseconds.
    pub queue_ms: u64,
    /// Requests that the kernel split because of their length.
    pub splits: u64,
}

impl Disk {
    /// Returns the bytes read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_sectors * SECTOR_BYTES
    }

    /// Returns the bytes written.
    #[must_use]
    pub fn write_bytes(&self) -> u64 {
        self.write_sectors * SECTOR_BYTES
    }
}

/// Confidence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The numbers fit, but other causes are possible.
    Perhaps,
    /// Another cause is improbable.
    Likely,
    /// The result is an exact count.
    Certain,
}

impl Confidence {
    /// Returns the confidence as a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Confidence::Perhaps => "perhaps",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of its rule.
    pub rule: String,
    /// Observation, with numbers.
    pub seen: String,
    /// Relevance.
    pub why: String,
    /// Remedies: larder commands; words in capitals are placeholders.
    pub attempt: Vec<String>,
    /// Confidence.
    pub sure: Confidence,
}

#[cfg(test)]
mod tests;
