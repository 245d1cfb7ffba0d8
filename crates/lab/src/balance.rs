//! Placement of files on disks: the fewest and smallest moves that minimize the highest
//! utilization.
//!
//! A disk has limits: linear costs of requests and bytes. Its utilization is the highest sum of the
//! costs of its requests over its limits, 1 for a disk that is always busy. A file system spreads
//! its requests over its disks in constant shares. [`plan`] searches by steps, swaps and restarts
//! from a constant seed, so that the same problem has the same plan, and then returns files to
//! their places as long as the result stays within [`PEAK_SLACK`] of the best one that it found.
//!
//! Rates are per second, sizes are bytes, times are seconds.

mod limits;
mod placement;
mod reduction;
mod search;
#[cfg(test)]
mod tests;

use std::ops::AddAssign;

pub use limits::{MeasuredDisk, busy_share, limits_of_model};
pub use search::plan;

/// Relative slack of the highest utilization for fewer and smaller moves.
pub const PEAK_SLACK: f64 = 0.03;
/// Relative slack of the mean response time for fewer and smaller moves.
pub const RESPONSE_SLACK: f64 = 0.1;
/// Utilization above which a response time is that of this utilization: a queue without a limit
/// would grow without one.
pub const UTILIZATION_MAX: f64 = 0.99;

/// Requests and bytes per second; or the cost of each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskLoad {
    /// Reads.
    pub reads: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes written.
    pub write_bytes: f64,
}

impl DiskLoad {
    /// Returns the reads and writes.
    #[must_use]
    pub fn requests(&self) -> f64 {
        self.reads + self.writes
    }

    /// Returns the load with reads and writes multiplied by their factors.
    #[must_use]
    pub fn scaled(&self, read: f64, write: f64) -> DiskLoad {
        DiskLoad {
            reads: self.reads * read,
            read_bytes: self.read_bytes * read,
            writes: self.writes * write,
            write_bytes: self.write_bytes * write,
        }
    }

    /// Returns the sum of the costs of a load.
    #[must_use]
    pub fn cost_of(&self, load: &DiskLoad) -> f64 {
        self.reads * load.reads
            + self.read_bytes * load.read_bytes
            + self.writes * load.writes
            + self.write_bytes * load.write_bytes
    }
}

impl AddAssign for DiskLoad {
    fn add_assign(&mut self, other: DiskLoad) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
    }
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalancedDisk {
    /// The cost of each request and byte, for each limit: the share of a second.
    pub limits: Vec<DiskLoad>,
    /// Load that no file has: it stays on the disk.
    pub fixed: DiskLoad,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileSystemPlace {
    /// Bytes that may be added.
    pub free_bytes: u64,
    /// True if files may move here.
    pub is_target: bool,
    /// The disks by number, with their requests for each read and for each write.
    pub shares: Vec<(usize, f64, f64)>,
}

/// A file or a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedItem {
    /// Size.
    pub bytes: u64,
    /// Load.
    pub load: DiskLoad,
    /// Number of its file system.
    pub place: usize,
    /// False if it has to stay.
    pub is_movable: bool,
}

/// Disks, file systems and files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalanceProblem {
    /// The disks.
    pub disks: Vec<BalancedDisk>,
    /// The file systems.
    pub places: Vec<FileSystemPlace>,
    /// The files and directories.
    pub items: Vec<PlacedItem>,
}

/// Use of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskUse {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Share of the time in which the disk is busy; above 1 if it cannot serve the load.
    pub utilization: f64,
    /// Mean response time of a request, seconds: of a queue with random arrivals and service times
    /// (M/M/1); 0 without requests.
    pub response_s: f64,
}

/// A move of an item to a file system, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The item.
    pub item: usize,
    /// Its new place.
    pub place: usize,
}

/// The result of [`plan`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MovePlan {
    /// The moves, in descending order of their gain.
    pub moves: Vec<PlannedMove>,
    /// Use of the disks before the moves.
    pub before: Vec<DiskUse>,
    /// Use of the disks after the moves.
    pub after: Vec<DiskUse>,
}

/// Returns the highest utilization.
#[must_use]
pub fn peak(uses: &[DiskUse]) -> f64 {
    uses.iter().map(|it| it.utilization).fold(0.0, f64::max)
}

/// Returns the mean response time of all requests, seconds; 0 without requests.
#[must_use]
pub fn mean_response(uses: &[DiskUse]) -> f64 {
    let requests: f64 = uses.iter().map(|it| it.requests_per_s).sum();
    let sum: f64 = uses.iter().map(|it| it.requests_per_s * it.response_s).sum();
    if requests > 0.0 { sum / requests } else { 0.0 }
}
