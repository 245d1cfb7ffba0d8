//! What the player must know of the machine, and the few things it must be able to do to it.

use super::error::HostError;
use super::ranks::Ranks;
use larder_core::clock::Nanos;
use larder_report::run::Machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Pages of the files of a workload, as read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Files that were looked at.
    pub files: u64,
    /// Their pages.
    pub pages: u64,
    /// Those that are resident.
    pub resident: u64,
    /// The first file that is not as it should be, and by how many pages.
    pub wrong: Option<(PathBuf, u64)>,
    /// Why it is not; a part of a sentence.
    pub why: String,
}

/// Counters of the machine; what happened is the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Processor time of the machine and the part of it that the hypervisor gave to others, in the
    /// same unit; none where it does not tell.
    pub cpu: Option<(u64, u64)>,
    /// Bytes that the disks of the workload moved; none where there are no disks.
    pub disk_bytes: Option<u64>,
    /// Bytes that this process asked disks to move.
    pub own_bytes: u64,
}

/// The machine as the player sees it. Nothing here is called while a trial runs, except for
/// [`HostEnv::now`] and, between phases, [`HostEnv::ranks`].
pub trait HostEnv: Sync {
    /// Nanoseconds of a clock that never goes back.
    fn now(&self) -> Nanos;

    /// The smallest difference between two readings of that clock, in nanoseconds.
    fn clock_resolution(&self) -> Nanos;

    /// The time of day, RFC 3339.
    fn time_of_day(&self) -> String;

    /// What the machine is.
    fn machine(&self) -> Machine;

    /// The settings that matter for work on these paths, by name.
    fn settings(&self, paths: &[PathBuf]) -> BTreeMap<String, String>;

    /// What the counters say, with the disks of these paths.
    fn count(&self, paths: &[PathBuf]) -> Counted;

    /// How fast the machine is right now, in any unit, the higher the faster; none where that
    /// cannot be told. Takes a few milliseconds at most.
    fn speed(&self) -> Option<f64>;

    /// Bytes that may still be written below a path that is there.
    ///
    /// # Errors
    /// The path is not there, or nobody tells.
    fn free_bytes(&self, path: &Path) -> Result<u64, HostError>;

    /// Writes out and drops the pages of these files, and whatever else the surroundings are set up
    /// to drop; then what is resident. `more` is asked whether to go on.
    ///
    /// # Errors
    /// A file cannot be written out or looked at. Pages that stay are no error here.
    fn make_cold(
        &self,
        files: &[PathBuf],
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Found, HostError>;

    /// Reads these files in; then what is resident. `more` is asked whether to go on.
    ///
    /// # Errors
    /// A file cannot be read or looked at. Pages that are missing are no error here.
    fn make_warm(
        &self,
        files: &[PathBuf],
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Found, HostError>;

    /// What is resident of these files, without changing it.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn find_cached(&self, files: &[PathBuf]) -> Result<Found, HostError>;

    /// What lies below the page cache of these files and may keep data that nobody can look at, as
    /// sentences: a FUSE daemon's own cache, for one.
    fn caches_below(&self, files: &[PathBuf]) -> Vec<String>;

    /// Other processes that do the same together; none, if this one is alone.
    fn ranks(&self) -> Option<&dyn Ranks> {
        None
    }
}
