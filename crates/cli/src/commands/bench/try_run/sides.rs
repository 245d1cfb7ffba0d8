//! Both sides of `larder try` as environments of a benchmark: the machine without larder and with
//! it, and the workload with the counters of larder.
//!
//! Invariants: the cache runs only during trials of its side, so that it neither writes nor holds
//! memory during native trials; on larder's side no page is resident in the kernel: cold is a newly
//! mounted cache in front of files whose pages were dropped as on the native side, and warm is the
//! same after all files were read through it. Both are verified: the resident pages of the files
//! below, and the resident bytes that the cache reports.

use crate::commands::bench::local_host::LocalHost;
use crate::commands::temporary_cache::Cache;
use larder_core::clock::Nanos;
use larder_host::residency::page_bytes;
use larder_lab::bench::{
    BenchError, CounterReadings, Direction, HostEnv, Outcome, Series, Space, StartState,
    TrialContext, WorkPart, Workload, WorkloadResidency,
};
use larder_report::try_verdict;
use larder_schema::control::{Stats, VolumeStats};
use larder_schema::run::Machine;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size of a read that fills the cache.
const READ_BYTES: usize = 1 << 20;

/// The machine as the environment of one side.
pub(super) struct SideHost<'a> {
    host: LocalHost,
    cache: &'a Mutex<Cache>,
    /// Only larder's side: the mount point, and the directory with the files.
    paths: Option<[PathBuf; 2]>,
    /// The directory whose disk is measured.
    files: PathBuf,
}

fn lock_cache(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

fn host_error(error: &anyhow::Error) -> BenchError {
    BenchError::Failed(format!("{error:#}"))
}

impl<'a> SideHost<'a> {
    /// Returns the native side.
    pub(super) fn native(cache: &'a Mutex<Cache>, files: &Path) -> Self {
        SideHost { host: LocalHost::new(false), cache, paths: None, files: files.to_owned() }
    }

    /// Returns the side with the cache.
    pub(super) fn through(cache: &'a Mutex<Cache>, files: &Path, mount: &Path) -> Self {
        let paths = Some([mount.to_owned(), files.to_owned()]);
        SideHost { paths, ..SideHost::native(cache, files) }
    }

    /// Converts paths in the mount to those of the underlying files.
    fn below_cache(&self, paths_in_mount: &[PathBuf]) -> Vec<PathBuf> {
        let Some([mount, files]) = &self.paths else { return paths_in_mount.to_vec() };
        let below = |path: &PathBuf| match path.strip_prefix(mount) {
            Ok(inside) => files.join(inside),
            Err(_) => path.clone(),
        };
        paths_in_mount.iter().map(below).collect()
    }

    /// Drops files from memory, and on larder's side mounts a new cache in front of them; returns
    /// the resident pages.
    fn make_cold_with_new_cache(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        let mut cache = lock_cache(self.cache);
        cache.stop().map_err(|error| host_error(&error))?;
        let found = self.host.make_cold(&self.below_cache(files), keep_going)?;
        // Resident pages in the kernel would replace disk accesses.
        if self.paths.is_none() || found.resident > 0 {
            return Ok(found);
        }
        cache.start().map_err(|error| host_error(&error))?;
        with_cached_pages(&cache, found)
    }
}

/// Replaces the resident pages by those in the cache.
fn with_cached_pages(
    cache: &Cache,
    found: WorkloadResidency,
) -> Result<WorkloadResidency, BenchError> {
    let bytes = cache.resident_bytes().map_err(|error| host_error(&error))?;
    Ok(WorkloadResidency { resident: bytes.div_ceil(page_bytes()), ..found })
}

/// Reads files through the cache.
fn fill(files: &[PathBuf], keep_going: &mut dyn FnMut() -> bool) -> Result<(), BenchError> {
    let mut buffer = vec![0; READ_BYTES];
    for path in files {
        let failed =
            |error| BenchError::Failed(format!("read {} through it: {error}", path.display()));
        let mut file = File::open(path).map_err(failed)?;
        while keep_going() && file.read(&mut buffer).map_err(failed)? > 0 {}
    }
    Ok(())
}

impl HostEnv for SideHost<'_> {
    fn now(&self) -> Nanos {
        self.host.now()
    }

    fn clock_resolution(&self) -> Nanos {
        self.host.clock_resolution()
    }

    fn time_of_day(&self) -> String {
        self.host.time_of_day()
    }

    fn machine(&self) -> Machine {
        self.host.machine()
    }

    fn settings(&self, _: &[PathBuf]) -> BTreeMap<String, String> {
        self.host.settings(std::slice::from_ref(&self.files))
    }

    fn count(&self, _: &[PathBuf]) -> CounterReadings {
        let mut counted = self.host.count(std::slice::from_ref(&self.files));
        // The I/O of the cache counts as that of this process.
        counted.own_bytes += lock_cache(self.cache).disk_bytes();
        counted
    }

    /// Returns `None`: alternation distributes variations in the machine's speed over both sides,
    /// and a calibration right after a trial would share the processors with the cache.
    fn speed(&self) -> Option<f64> {
        None
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, BenchError> {
        self.host.free_bytes(path)
    }

    fn make_cold(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        self.make_cold_with_new_cache(files, keep_going)
    }

    fn make_warm(
        &self,
        files: &[PathBuf],
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<WorkloadResidency, BenchError> {
        let found = self.make_cold_with_new_cache(files, keep_going)?;
        if self.paths.is_none() {
            return self.host.make_warm(files, keep_going);
        }
        if found.resident > 0 {
            return Err(BenchError::Failed("begin with nothing in the cache".to_owned()));
        }
        fill(files, keep_going)?;
        let found = with_cached_pages(&lock_cache(self.cache), found)?;
        let first = files.first().filter(|_| found.resident < found.pages);
        let wrong = first.map(|path| (path.clone(), found.pages - found.resident));
        let reason = "the cache did not keep what was read: it is too small for them".to_owned();
        // Rounding up to whole pages may exceed the total.
        Ok(WorkloadResidency {
            resident: found.resident.min(found.pages),
            wrong,
            why: reason,
            ..found
        })
    }

    fn find_cached(&self, files: &[PathBuf]) -> Result<WorkloadResidency, BenchError> {
        let found = self.host.find_cached(&self.below_cache(files))?;
        if self.paths.is_some() {
            with_cached_pages(&lock_cache(self.cache), found)
        } else {
            Ok(found)
        }
    }

    fn caches_below(&self, files: &[PathBuf]) -> Vec<String> {
        self.host.caches_below(&self.below_cache(files))
    }
}

/// A workload through the cache, with the counters of the cache.
pub(super) struct CachedWorkload<'a> {
    workload: &'a mut dyn Workload,
    cache: &'a Mutex<Cache>,
    /// True if the workload writes.
    writes: bool,
}

impl<'a> CachedWorkload<'a> {
    pub(super) fn new(
        workload: &'a mut dyn Workload,
        cache: &'a Mutex<Cache>,
        writes: bool,
    ) -> Self {
        CachedWorkload { workload, cache, writes }
    }

    fn stats(&self) -> Result<Stats, BenchError> {
        lock_cache(self.cache).stats().map_err(|error| host_error(&error))
    }
}

/// Returns the counters of a trial, by the names of their series.
fn values(stats: &VolumeStats, writes: bool) -> BTreeMap<String, f64> {
    let count = |name: &str| stats.counters.get(name).copied().unwrap_or(0);
    let written = stats
        .counters
        .iter()
        .filter(|(name, _)| name.starts_with("write_") && name.ends_with("_pages"));
    let written: u64 = written.map(|(_, count)| count).sum();
    #[expect(clippy::cast_precision_loss, reason = "pages of a trial stay below 2^53")]
    let number = |count: u64| count as f64;
    let (read, hit) = (number(stats.read_pages), number(stats.read_hits));
    let mut values = vec![
        (try_verdict::HITS, 100.0 * hit / read.max(1.0)),
        (try_verdict::READ_PAGES, read),
        (try_verdict::HIT_PAGES, hit),
        (try_verdict::AHEAD_PAGES, number(count("read_ahead_hit_pages"))),
    ];
    if writes {
        let disk_writes = number(count("store_writes"));
        values.extend([
            (try_verdict::GATHERED, number(written) / disk_writes.max(1.0)),
            (try_verdict::WRITTEN_PAGES, number(written)),
            (try_verdict::DISK_WRITES, disk_writes),
        ]);
    }
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl Workload for CachedWorkload<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn parts(&self) -> Vec<WorkPart> {
        self.workload.parts()
    }

    fn select_part(&mut self, number: usize) -> Result<(), BenchError> {
        self.workload.select_part(number)
    }

    fn description(&self) -> String {
        self.workload.description()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.workload.settings()
    }

    fn series(&self) -> Vec<Series> {
        let mut series = self.workload.series();
        let higher = Some(Direction::Higher);
        series.extend([
            Series::new(try_verdict::HITS, "%", higher),
            Series::new(try_verdict::READ_PAGES, "pages", None),
            Series::new(try_verdict::HIT_PAGES, "pages", None),
            Series::new(try_verdict::AHEAD_PAGES, "pages", None),
        ]);
        if self.writes {
            series.extend([
                Series::new(try_verdict::GATHERED, "pages", higher),
                Series::new(try_verdict::WRITTEN_PAGES, "pages", None),
                Series::new(try_verdict::DISK_WRITES, "writes", None),
            ]);
        }
        series
    }

    fn space(&self) -> Vec<Space> {
        self.workload.space()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.workload.paths()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        self.workload.prepare(context)
    }

    fn start_state(&mut self) -> StartState<'_> {
        self.workload.start_state()
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let before = self.stats()?;
        let outcome = self.workload.trial(context);
        if let Some(reason) = lock_cache(self.cache).exit_description() {
            return Err(BenchError::Failed(format!("go on: {reason}")));
        }
        let mut outcome = outcome?;
        // The number of disk writes is complete only after a flush.
        lock_cache(self.cache).flush().map_err(|error| host_error(&error))?;
        let (difference, _) = self.stats()?.since(&before);
        let volume = difference.volumes.into_iter().next().unwrap_or_default();
        outcome.values.extend(values(&volume, self.writes));
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let cleanup = self.workload.clean_up();
        let stopped = lock_cache(self.cache).stop().map_err(|error| host_error(&error));
        cleanup.and(stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_becomes_series_without_dividing_by_nothing() {
        let counters = [
            ("read_ahead_hit_pages", 30),
            ("write_absorbed_pages", 60),
            ("write_new_dirty_pages", 20),
            ("write_total", 7),
            ("store_writes", 4),
        ];
        let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
        let stats =
            VolumeStats { read_pages: 80, read_hits: 60, counters, ..VolumeStats::default() };
        let series = values(&stats, true);
        let value_of = |name: &str| series[name];
        assert!((value_of(try_verdict::HITS) - 75.0).abs() < 1e-9, "{series:?}");
        assert!((value_of(try_verdict::GATHERED) - 20.0).abs() < 1e-9, "{series:?}");
        assert!((value_of(try_verdict::WRITTEN_PAGES) - 80.0).abs() < 1e-9, "{series:?}");
        let nothing = values(&VolumeStats::default(), true);
        assert!(nothing.values().all(|value| value.abs() < 1e-9), "{nothing:?}");
        assert!(!values(&stats, false).contains_key(try_verdict::GATHERED));
    }
}
