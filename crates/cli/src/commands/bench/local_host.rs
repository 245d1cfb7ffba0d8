//! The local machine as the environment of a benchmark, from larder-host.

use larder_core::clock::{Clock, Nanos};
use larder_host::activity::Activity;
use larder_host::calibration::CalibrationLoad;
use larder_host::disk::Disk;
use larder_host::residency::prefetch::{Files, SetResidency as Pages};
use larder_host::residency::{self, drop::everything, why_pages_lack, why_pages_stay};
use larder_host::{machine, settings, space};
use larder_io::clock::MonotonicClock;
use larder_lab::bench::{BenchError, CounterReadings, HostEnv, Ranks, WorkloadResidency};
use larder_schema::run::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// This machine.
#[derive(Debug)]
pub(super) struct LocalHost {
    clock: MonotonicClock,
    /// Drop everything that is cached, not only the files of the workload.
    drop_all: bool,
    ranks: Option<Arc<dyn Ranks>>,
    /// `None` if it cannot allocate its memory.
    calibration: Option<CalibrationLoad>,
}

impl LocalHost {
    pub(super) fn new(drop_all: bool) -> Self {
        LocalHost {
            clock: MonotonicClock::new(),
            drop_all,
            ranks: None,
            calibration: CalibrationLoad::new().ok(),
        }
    }

    /// Returns the same machine as one of several ranks.
    pub(super) fn with(self, ranks: Arc<dyn Ranks>) -> Self {
        LocalHost { ranks: Some(ranks), ..self }
    }
}

/// Opens files once for all operations on them: on file systems where an open drops pages (FUSE),
/// further opens would change the result. They are opened again for each start, since a workload
/// may have replaced them.
fn open(paths: &[PathBuf]) -> Result<Files, BenchError> {
    Files::open(paths.to_vec()).map_err(host_error)
}

fn host_error(error: impl Display) -> BenchError {
    BenchError::Failed(error.to_string())
}

/// Converts the result of a check that no page is resident.
fn cold(found: &Pages) -> WorkloadResidency {
    let reason = found.resident.as_ref().map(|(path, one)| why_pages_stay(path, one));
    to_found(found, found.resident.clone().map(|(path, one)| (path, one.resident)), reason)
}

/// Converts the result of a check that every page is resident.
fn warm(found: &Pages) -> WorkloadResidency {
    let reason = found.lacking.as_ref().map(|(path, one)| why_pages_lack(path, one));
    let lacking = found.lacking.clone();
    to_found(found, lacking.map(|(path, one)| (path, one.pages - one.resident)), reason)
}

fn to_found(
    found: &Pages,
    wrong: Option<(PathBuf, u64)>,
    reason: Option<String>,
) -> WorkloadResidency {
    let sum = found.sum;
    let reason = reason.unwrap_or_default();
    WorkloadResidency {
        files: sum.files,
        pages: sum.pages,
        resident: sum.resident,
        wrong,
        why: reason,
    }
}

/// Returns the disks of paths, or of their existing parent directories.
fn disks(paths: &[PathBuf]) -> Vec<Disk> {
    let existing = paths.iter().filter_map(|path| path.ancestors().find(|path| path.exists()));
    let disks: BTreeSet<Disk> = existing.filter_map(|path| Disk::of(path).ok().flatten()).collect();
    disks.into_iter().collect()
}

impl HostEnv for LocalHost {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn clock_resolution(&self) -> Nanos {
        let step = rustix::time::clock_getres(rustix::time::ClockId::Monotonic);
        u64::try_from(step.tv_nsec).unwrap_or(0).max(1)
    }

    fn time_of_day(&self) -> String {
        machine::time_of_day()
    }

    fn machine(&self) -> Machine {
        machine::machine()
    }

    fn settings(&self, paths: &[PathBuf]) -> BTreeMap<String, String> {
        let existing = paths.iter().filter_map(|path| path.ancestors().find(|path| path.exists()));
        let existing: Vec<PathBuf> = existing.map(Path::to_path_buf).collect();
        settings::snapshot(&existing)
    }

    fn count(&self, paths: &[PathBuf]) -> CounterReadings {
        let disks = disks(paths);
        let now = Activity::now(&disks);
        let cpu = (now.cpu.total > 0).then_some((now.cpu.total, now.cpu.steal));
        let disk_bytes = (!disks.is_empty()).then(|| now.disks.bytes());
        CounterReadings { cpu, disk_bytes, own_bytes: now.own.bytes() }
    }

    fn speed(&self) -> Option<f64> {
        self.calibration.as_ref()?.reads_per_second().ok()
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, BenchError> {
        space::free_bytes(path).map_err(|error| {
            BenchError::Failed(format!("find out the free space of {}: {error}", path.display()))
        })
    }

    fn make_cold(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        let files = open(files)?;
        files.drop(keep_going).map_err(host_error)?;
        if self.drop_all {
            everything().map_err(host_error)?;
        }
        files.residency().map(|found| cold(&found)).map_err(host_error)
    }

    fn make_warm(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        open(files)?.fill(|_| keep_going()).map(|found| warm(&found)).map_err(host_error)
    }

    fn find_cached(&self, files: &[PathBuf]) -> Result<WorkloadResidency, BenchError> {
        open(files)?.residency().map(|found| cold(&found)).map_err(host_error)
    }

    fn caches_below(&self, files: &[PathBuf]) -> Vec<String> {
        residency::caches_below(files, self.drop_all)
    }

    fn ranks(&self) -> Option<&dyn Ranks> {
        self.ranks.as_deref()
    }
}
