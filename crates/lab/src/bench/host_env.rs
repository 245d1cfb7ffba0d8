//! Operations on the machine that a run needs.

use super::error::BenchError;
use super::ranks::Ranks;
use larder_core::clock::Nanos;
use larder_schema::run::Machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Residency of the files of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadResidency {
    /// Files that were examined.
    pub files: u64,
    /// Their pages.
    pub pages: u64,
    /// Pages that are resident.
    pub resident: u64,
    /// The first file that is not in the required state, and its number of wrong pages.
    pub wrong: Option<(PathBuf, u64)>,
    /// The reason for that, as a part of a sentence.
    pub why: String,
}

/// Readings of the machine's counters; two readings give the activity between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReadings {
    /// Processor time of the machine, and the part of it that the hypervisor gave to other guests,
    /// in the same unit; `None` if the machine does not report it.
    pub cpu: Option<(u64, u64)>,
    /// Bytes that the disks of the workload moved; `None` if there are no disks.
    pub disk_bytes: Option<u64>,
    /// Bytes of disk I/O that this process requested.
    pub own_bytes: u64,
}

/// The machine of a run. Nothing here is called during a trial, except [`HostEnv::now`] and,
/// between phases, [`HostEnv::ranks`].
pub trait HostEnv: Sync {
    /// Returns nanoseconds of a monotonic clock.
    fn now(&self) -> Nanos;

    /// Returns the resolution of that clock in nanoseconds.
    fn clock_resolution(&self) -> Nanos;

    /// Returns the time of day, RFC 3339.
    fn time_of_day(&self) -> String;

    /// Returns the description of the machine.
    fn machine(&self) -> Machine;

    /// Returns the settings that matter for work on these paths, by name.
    fn settings(&self, paths: &[PathBuf]) -> BTreeMap<String, String>;

    /// Reads the counters, with those of the disks of these paths.
    fn count(&self, paths: &[PathBuf]) -> CounterReadings;

    /// Returns the current speed of the machine in any unit, where higher is faster; `None` if it
    /// cannot be measured. Takes a few milliseconds at most.
    fn speed(&self) -> Option<f64>;

    /// Returns the bytes that may still be written below an existing path.
    ///
    /// # Errors
    /// The path does not exist, or the system does not report its free space.
    fn free_bytes(&self, path: &Path) -> Result<u64, BenchError>;

    /// Writes out and drops the pages of these files, and what else this host is configured to
    /// drop. Returns the residency afterwards. `keep_going` returns false if the run is to stop.
    ///
    /// # Errors
    /// A file cannot be written out or examined. Pages that stay are not an error here.
    fn make_cold(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError>;

    /// Reads these files into memory. Returns the residency afterwards. `keep_going` returns false
    /// if the run is to stop.
    ///
    /// # Errors
    /// A file cannot be read or examined. Pages that are missing are not an error here.
    fn make_warm(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError>;

    /// Returns the residency of these files, without changing it.
    ///
    /// # Errors
    /// The kernel does not report it.
    fn find_cached(&self, files: &[PathBuf]) -> Result<WorkloadResidency, BenchError>;

    /// Returns a sentence for each cache below the page cache that may keep data of these files
    /// without reporting it, such as the cache of a FUSE daemon.
    fn caches_below(&self, files: &[PathBuf]) -> Vec<String>;

    /// Returns the other processes of a run with several ranks; `None` for a single process.
    fn ranks(&self) -> Option<&dyn Ranks> {
        None
    }
}
