//! Page cache activity of a host: the result of `larder watch`, and its renderings: JSON (this
//! structure as it is) and text.
//!
//! Invariants: the watcher fills in the data; a ratio is always computed from sums of pages, never
//! from other ratios, so it is weighted by requests. Numbers have the unit in their names; pages
//! are those of the machine, `page_bytes` each. `missing` lists unavailable information, for which
//! there are no substitute values.

mod disks;
mod observation;
mod rows;
mod text;

pub use disks::Disk;
pub use rows::rows;

use crate::findings::Finding;
use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, Sub};

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-watch";
/// Scope of a watch without restrictions.
pub const WHOLE: &str = "the whole machine";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Defines the structure of counts, with sums and differences over all of its fields.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Accesses to one or several files by one or several processes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }

        impl Sub for Counts {
            type Output = Counts;

            /// Returns the counts since `before`. A page may later move from one count to another,
            /// which would make the difference negative; it is 0 then.
            fn sub(self, before: Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Read requests through the cache, regardless of size; access through mappings is separate.
    read_requests,
    /// Pages of these requests.
    read_pages,
    /// Pages that were resident and had been read or written before.
    hit_pages,
    /// Pages that read-ahead had made resident, on their first look-up.
    read_ahead_hit_pages,
    /// Pages that were not resident at the start of the request.
    miss_pages,
    /// Pages of requests that started at the end of the thread's previous request.
    in_order_pages,
    /// First accesses through a mapping: the kernel maps up to 16 surrounding pages at once, and
    /// does not report accesses to mapped pages.
    map_touches,
    /// Such accesses whose page was not resident.
    map_misses,
    /// Pages added to the cache.
    added_pages,
    /// Added pages that reclaim had evicted during the watch.
    refault_pages,
    /// Write requests, on file systems that report each one (ext4, XFS).
    write_requests,
    /// Bytes of these requests.
    write_bytes,
    /// Pages of these requests; each page counts once per request.
    write_pages,
    /// Pages of these requests that were not resident before.
    write_new_pages,
    /// Clean or absent pages that became dirty, through system calls and mappings.
    dirtied_pages,
    /// Pages of reported write requests that became dirty through them.
    write_dirtied_pages,
    /// Number of times that the kernel throttled a writer because of dirty pages.
    throttles,
    /// Time for which it did, in milliseconds.
    throttled_ms,
    /// Files written back by kernel flushers; each writeback of a file counts.
    lazy_flushes,
    /// Pages written back because dirty memory exceeded the background threshold.
    lazy_background_pages,
    /// Pages written back because of their age.
    lazy_periodic_pages,
    /// Pages written back for sync(2) or syncfs(2).
    lazy_sync_pages,
    /// Pages written back for memory reclaim.
    lazy_reclaim_pages,
    /// Pages written back for other reasons.
    lazy_other_pages,
    /// Pages evicted by reclaim, for the thread that ran it.
    evicted_pages,
    /// Pages removed by truncation, deletion, invalidation or on request.
    dropped_pages,
    /// Read-ahead pages that left the cache before a look-up.
    read_ahead_unused_pages,
    /// Number of times that reads alone made the inode dirty: access time updates (reported by
    /// ext4).
    access_time_updates,
    /// Bytes read from disks.
    disk_read_bytes,
    /// Bytes that the process itself wrote to disks: fsync(2), direct I/O.
    disk_write_bytes,
    /// Bytes dirtied by the process and written back by kernel flushers.
    disk_lazy_write_bytes,
}

impl Counts {
    /// Returns the share of the pages read that were resident, 0 to 1, or `None` without reads.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.hit_pages + self.read_ahead_hit_pages, self.read_pages)
    }

    /// Returns the number of pages overwritten while dirty: writes without disk I/O.
    #[must_use]
    pub fn overwritten_pages(&self) -> u64 {
        self.write_pages.saturating_sub(self.write_dirtied_pages)
    }

    /// Returns the number of pages written back by kernel flushers, for any reason.
    #[must_use]
    pub fn lazy_pages(&self) -> u64 {
        self.lazy_background_pages
            + self.lazy_periodic_pages
            + self.lazy_sync_pages
            + self.lazy_reclaim_pages
            + self.lazy_other_pages
    }

    /// Returns the bytes transferred from and to disks.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_read_bytes + self.disk_write_bytes + self.disk_lazy_write_bytes
    }

    /// Returns true if all counts are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Counts::default()
    }
}

/// Returns a share of whole numbers.
fn share(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let share = part as f64 / whole as f64;
    (whole > 0).then_some(share)
}

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
pub struct Unattributed {
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
    /// Memory at the end.
    pub memory: Memory,
    /// Processes with the most private memory at the end.
    #[serde(default)]
    pub processes: Vec<ProcessMemory>,
    /// Physical I/O without a file, of the whole machine.
    pub unattributed: Unattributed,
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
    /// Source of look-ups, in a few words; empty without one.
    #[serde(default)]
    pub means: String,
    /// Findings of the rules.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// An error reading a result. The message can follow "failed to".
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

#[cfg(test)]
mod tests;
