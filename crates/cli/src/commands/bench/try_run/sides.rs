//! Both sides of `larder try` as the player sees them: the machine past larder and through it, and
//! the work with what larder counted of it.
//!
//! Invariants: the cache runs on its own side only, so neither side works while the other one still
//! writes or holds memory; on larder's side nothing is resident in the kernel, so cold is a cache
//! that was mounted anew over files whose pages were dropped as on the native side, and warm is the
//! same after all of them were read through it. Both are read back: the pages of the files below,
//! and what the cache says it holds.

use super::cache::Cache;
use crate::commands::bench::local_host::LocalHost;
use larder_core::clock::Nanos;
use larder_host::residency::page_bytes;
use larder_lab::bench::{
    BenchError, Counted, Direction, Found, HostEnv, HostError, Outcome, Series, Space, StartState,
    TrialContext, Workload,
};
use larder_report::control::{Stats, VolumeStats};
use larder_report::run::Machine;
use larder_report::try_verdict;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are read at a time to fill the cache.
const PIECE_BYTES: usize = 1 << 20;

/// The machine as one side sees it.
pub(super) struct Side<'a> {
    here: LocalHost,
    cache: &'a Mutex<Cache>,
    /// Of larder's side: where files are seen, and where they are.
    through: Option<[PathBuf; 2]>,
    /// Whose disk matters.
    files: PathBuf,
}

fn locked(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

fn trouble(error: &anyhow::Error) -> HostError {
    HostError(format!("{error:#}"))
}

impl<'a> Side<'a> {
    /// Past larder.
    pub(super) fn native(cache: &'a Mutex<Cache>, files: &Path) -> Self {
        Side { here: LocalHost::new(false), cache, through: None, files: files.to_owned() }
    }

    /// Through it.
    pub(super) fn through(cache: &'a Mutex<Cache>, files: &Path, mount: &Path) -> Self {
        let through = Some([mount.to_owned(), files.to_owned()]);
        Side { through, ..Side::native(cache, files) }
    }

    /// Where files that are seen through the cache are.
    fn below_cache(&self, seen: &[PathBuf]) -> Vec<PathBuf> {
        let Some([mount, files]) = &self.through else { return seen.to_vec() };
        let below = |path: &PathBuf| match path.strip_prefix(mount) {
            Ok(inside) => files.join(inside),
            Err(_) => path.clone(),
        };
        seen.iter().map(below).collect()
    }

    /// Files out of memory, with a new cache in front of them on larder's side; what is found.
    fn find_again(
        &self,
        seen: &[PathBuf],
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Found, HostError> {
        let mut cache = locked(self.cache);
        cache.stop().map_err(|error| trouble(&error))?;
        let found = self.here.make_cold(&self.below_cache(seen), more)?;
        // What the kernel still has of them would answer for the disk.
        if self.through.is_none() || found.resident > 0 {
            return Ok(found);
        }
        cache.start().map_err(|error| trouble(&error))?;
        held(&cache, found)
    }
}

/// What a cache holds of files that have so many pages.
fn held(cache: &Cache, found: Found) -> Result<Found, HostError> {
    let bytes = cache.resident_bytes().map_err(|error| trouble(&error))?;
    Ok(Found { resident: bytes.div_ceil(page_bytes()), ..found })
}

/// Reads files, as they are seen through the cache.
fn fill(seen: &[PathBuf], more: &mut dyn FnMut() -> bool) -> Result<(), HostError> {
    let mut piece = vec![0; PIECE_BYTES];
    for path in seen {
        let failed = |error| HostError(format!("read {} through it: {error}", path.display()));
        let mut file = File::open(path).map_err(failed)?;
        while more() && file.read(&mut piece).map_err(failed)? > 0 {}
    }
    Ok(())
}

impl HostEnv for Side<'_> {
    fn now(&self) -> Nanos {
        self.here.now()
    }

    fn clock_resolution(&self) -> Nanos {
        self.here.clock_resolution()
    }

    fn time_of_day(&self) -> String {
        self.here.time_of_day()
    }

    fn machine(&self) -> Machine {
        self.here.machine()
    }

    fn settings(&self, _: &[PathBuf]) -> BTreeMap<String, String> {
        self.here.settings(std::slice::from_ref(&self.files))
    }

    fn count(&self, _: &[PathBuf]) -> Counted {
        let mut counted = self.here.count(std::slice::from_ref(&self.files));
        // What the cache does on its side is done for us.
        counted.own_bytes += locked(self.cache).disk_bytes();
        counted
    }

    /// Turns see to it that both sides have their share of the machine's moods, and what is timed
    /// right after a trial shares the processors with the cache that was at work.
    fn speed(&self) -> Option<f64> {
        None
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, HostError> {
        self.here.free_bytes(path)
    }

    fn make_cold(
        &self,
        files: &[PathBuf],
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Found, HostError> {
        self.find_again(files, more)
    }

    fn make_warm(
        &self,
        files: &[PathBuf],
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Found, HostError> {
        let found = self.find_again(files, more)?;
        if self.through.is_none() {
            return self.here.make_warm(files, more);
        }
        if found.resident > 0 {
            return Err(HostError("begin with nothing in the cache".to_owned()));
        }
        fill(files, more)?;
        let found = held(&locked(self.cache), found)?;
        let first = files.first().filter(|_| found.resident < found.pages);
        let wrong = first.map(|path| (path.clone(), found.pages - found.resident));
        let why = "the cache did not keep what was read: it is too small for them".to_owned();
        // What is rounded up to whole pages is not more than all.
        Ok(Found { resident: found.resident.min(found.pages), wrong, why, ..found })
    }

    fn find_cached(&self, files: &[PathBuf]) -> Result<Found, HostError> {
        let found = self.here.find_cached(&self.below_cache(files))?;
        if self.through.is_some() { held(&locked(self.cache), found) } else { Ok(found) }
    }

    fn caches_below(&self, files: &[PathBuf]) -> Vec<String> {
        self.here.caches_below(&self.below_cache(files))
    }
}

/// Work through the cache, with what that counted.
pub(super) struct Through<'a> {
    work: &'a mut dyn Workload,
    cache: &'a Mutex<Cache>,
    /// Whether the work writes.
    writes: bool,
}

impl<'a> Through<'a> {
    pub(super) fn new(work: &'a mut dyn Workload, cache: &'a Mutex<Cache>, writes: bool) -> Self {
        Through { work, cache, writes }
    }

    fn stats(&self) -> Result<Stats, BenchError> {
        locked(self.cache).stats().map_err(|error| trouble(&error).into())
    }
}

/// What larder counted in a trial, by the names of its series.
fn values(counted: &VolumeStats, writes: bool) -> BTreeMap<String, f64> {
    let count = |name: &str| counted.counters.get(name).copied().unwrap_or(0);
    let written = counted
        .counters
        .iter()
        .filter(|(name, _)| name.starts_with("write_") && name.ends_with("_pages"));
    let written: u64 = written.map(|(_, count)| count).sum();
    #[expect(clippy::cast_precision_loss, reason = "pages of a trial stay below 2^53")]
    let number = |count: u64| count as f64;
    let (read, hit) = (number(counted.read_pages), number(counted.read_hits));
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

impl Workload for Through<'_> {
    fn name(&self) -> &str {
        self.work.name()
    }

    fn description(&self) -> String {
        self.work.description()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.work.settings()
    }

    fn series(&self) -> Vec<Series> {
        let mut series = self.work.series();
        let better = Some(Direction::Higher);
        series.extend([
            Series::new(try_verdict::HITS, "%", better),
            Series::new(try_verdict::READ_PAGES, "pages", None),
            Series::new(try_verdict::HIT_PAGES, "pages", None),
            Series::new(try_verdict::AHEAD_PAGES, "pages", None),
        ]);
        if self.writes {
            series.extend([
                Series::new(try_verdict::GATHERED, "pages", better),
                Series::new(try_verdict::WRITTEN_PAGES, "pages", None),
                Series::new(try_verdict::DISK_WRITES, "writes", None),
            ]);
        }
        series
    }

    fn space(&self) -> Vec<Space> {
        self.work.space()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.work.paths()
    }

    fn prepare(&mut self, stage: &TrialContext<'_>) -> Result<(), BenchError> {
        self.work.prepare(stage)
    }

    fn start_state(&mut self) -> StartState<'_> {
        self.work.start_state()
    }

    fn trial(&mut self, stage: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let before = self.stats()?;
        let outcome = self.work.trial(stage);
        if let Some(why) = locked(self.cache).ended() {
            return Err(BenchError::Workload(format!("go on: {why}")));
        }
        let mut outcome = outcome?;
        // What it gathered shows when everything is written.
        locked(self.cache).flush().map_err(|error| trouble(&error))?;
        let (counted, _) = self.stats()?.since(&before);
        let volume = counted.volumes.into_iter().next().unwrap_or_default();
        outcome.values.extend(values(&volume, self.writes));
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        let cleaned = self.work.clean_up();
        let stopped = locked(self.cache).stop().map_err(|error| trouble(&error).into());
        cleaned.and(stopped)
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
        let counted =
            VolumeStats { read_pages: 80, read_hits: 60, counters, ..VolumeStats::default() };
        let shown = values(&counted, true);
        let of = |name: &str| shown[name];
        assert!((of(try_verdict::HITS) - 75.0).abs() < 1e-9, "{shown:?}");
        assert!((of(try_verdict::GATHERED) - 20.0).abs() < 1e-9, "{shown:?}");
        assert!((of(try_verdict::WRITTEN_PAGES) - 80.0).abs() < 1e-9, "{shown:?}");
        let nothing = values(&VolumeStats::default(), true);
        assert!(nothing.values().all(|value| value.abs() < 1e-9), "{nothing:?}");
        assert!(!values(&counted, false).contains_key(try_verdict::GATHERED));
    }
}
