//! Observation of a machine, from any source.
//!
//! Invariants: `None` means that no source measured a value, 0 that it is zero. Pages have one
//! size. Snapshots are in order of time.

use larder_schema::watch::StackedCache;
use larder_schema::{as_u64, format};

/// State of the machine at one time. Rates are those since the previous snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineSnapshot {
    /// Seconds since the start.
    pub at_s: f64,
    /// Size of the page cache.
    pub cache_bytes: Option<f64>,
    /// Dirty pages and pages under writeback.
    pub dirty_bytes: Option<f64>,
    /// Dirty limit, at which the kernel throttles writers.
    pub dirty_limit_bytes: Option<f64>,
    /// Memory that programs can still allocate.
    pub available_bytes: Option<f64>,
    /// Pages read from disk that a program or the cache had lost before, per second.
    pub paging_per_s: Option<f64>,
    /// Bytes written per second by the disk with the most writes.
    pub written_per_s: Option<f64>,
    /// Utilization of that disk, 0 to 1.
    pub busy_ratio: Option<f64>,
}

/// Accesses to a file or volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileUse {
    /// Name.
    pub file: String,
    /// Pages read; each page counts once per request.
    pub read_pages: u64,
    /// Those pages that were not resident.
    pub miss_pages: u64,
    /// Those pages that read-ahead had made resident, on their first use.
    pub ahead_hit_pages: u64,
    /// Pages of reads that started at the end of the previous one.
    pub sequential_pages: Option<u64>,
}

/// Activity of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Name and process ID.
    pub process: String,
    /// Seconds for which the kernel throttled the process because of dirty pages.
    pub throttled_s: Option<f64>,
    /// Private memory in each snapshot, bytes; empty if not measured.
    pub private_bytes: Vec<f64>,
}

/// Read-ahead of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadAhead {
    /// Pages read ahead.
    pub brought_pages: u64,
    /// Those pages that left the cache unused.
    pub unused_pages: u64,
}

/// Observation of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Duration in seconds.
    pub seconds: f64,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Memory size of the machine.
    pub memory_bytes: Option<f64>,
    /// Snapshots at regular intervals.
    pub moments: Vec<MachineSnapshot>,
    /// Files with known accesses.
    pub files: Vec<FileUse>,
    /// Processes.
    pub processes: Vec<ProcessUse>,
    /// Read-ahead.
    pub read_ahead: Option<ReadAhead>,
    /// File pages that the kernel evicted to free memory.
    pub evicted_pages: Option<u64>,
    /// Evicted pages that were read again.
    pub refault_pages: Option<u64>,
    /// Pages that became dirty.
    pub dirtied_pages: Option<u64>,
    /// Stacked caches; empty if there are none or no source checked.
    pub layers: Vec<StackedCache>,
    /// Inodes that only reads made dirty: access time updates.
    pub access_time_updates: Option<u64>,
}

impl Observation {
    /// Returns the number of pages read, over all files.
    pub(super) fn read_pages(&self) -> u64 {
        self.files.iter().map(|file| file.read_pages).sum()
    }

    /// Returns the number of missed pages, over all files.
    pub(super) fn miss_pages(&self) -> u64 {
        self.files.iter().map(|file| file.miss_pages).sum()
    }

    /// Returns the values of one field in the snapshots that have it.
    pub(super) fn values(&self, field: fn(&MachineSnapshot) -> Option<f64>) -> Vec<f64> {
        self.moments.iter().filter_map(field).collect()
    }

    /// Returns the highest write rate of any interval in bytes per second, or `None` without
    /// writes: a lower bound for the disk's speed.
    pub(super) fn write_speed(&self) -> Option<f64> {
        fastest(self.values(|moment| moment.written_per_s))
    }

    /// Returns the highest write rate of any part of at least [`PART_S`] in which the disk's
    /// utilization was at least `share`, so that the disk was near its limit.
    pub(super) fn write_speed_busy(&self, share: f64) -> Option<f64> {
        let indices = 0..self.moments.len();
        let parts = indices.filter_map(|first| self.part(first)).filter(|part| part.1 >= share);
        fastest(parts.map(|part| part.0).collect())
    }

    /// Returns write rate and utilization from a snapshot on, over a part of at least [`PART_S`];
    /// `None` if the rest is shorter.
    fn part(&self, first: usize) -> Option<(f64, f64)> {
        let (mut seconds, mut written, mut busy) = (0.0, 0.0, 0.0);
        let before = first.checked_sub(1).map_or(0.0, |index| self.moments[index].at_s);
        let mut from = before;
        for moment in &self.moments[first..] {
            let length = moment.at_s - from;
            from = moment.at_s;
            seconds += length;
            written += moment.written_per_s? * length;
            busy += moment.busy_ratio? * length;
            if seconds >= PART_S {
                return Some((written / seconds, busy / seconds));
            }
        }
        None
    }
}

/// Minimum seconds of a part for a measurement of disk speed: a slow disk completes only a few
/// large requests per second, and they count on completion.
const PART_S: f64 = 1.99;

fn fastest(speeds: Vec<f64>) -> Option<f64> {
    speeds.into_iter().max_by(f64::total_cmp).filter(|speed| *speed > 0.0)
}

/// Returns `part` as a share of `whole`; 0 if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    larder_schema::share(part, whole).unwrap_or(0.0)
}

/// Formats bytes.
pub(super) fn bytes(value: f64) -> String {
    format::bytes(as_u64(value))
}
