//! `larder serve --warm-list`: lists of cached pages in files, which are read back at the next
//! start.
//!
//! One thread reads the lists of new volumes and saves them periodically; they are saved for the
//! last time when the stores are no longer used. Invariants: neither a start nor a client waits for
//! a list; a list that is still being read back is not overwritten, so that a start that is soon
//! followed by a stop loses nothing of it; an error of a list is reported, and its volume is served
//! regardless; the memory of lists is bounded by the amount reserved for them.

use crate::lock;
use crate::runtime_directory::of_service;
use crate::settings::ServerSettings;
use anyhow::{Context, Result, anyhow};
use larder_core::counters::{Counter, Gauge};
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::fault::{self, Thread, report_failed_part};
use larder_io::warm_list::{self, StoreIdentity, StoreKind};
use larder_schema::format;
use rustix::fs::Access;
use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum memory per page while a list is created: 20 bytes for its page, and its range.
const BYTES_PER_PAGE: u64 = 40;
/// Memory for lists in addition to the reserved part of `--memory`.
const BYTES_MIN: u64 = 4 << 20;

/// Returns the directory for lists; `None` if they are off. By default it is the state directory of
/// a service manager.
pub(super) fn directory(settings: &ServerSettings) -> Option<PathBuf> {
    match &settings.warm_list {
        Some(list) => list.path().cloned(),
        None => of_service("STATE_DIRECTORY"),
    }
}

pub(super) fn list(directory: &Path, volume: &str) -> PathBuf {
    directory.join(format!("{volume}.warm"))
}

/// Starts the lists, if they are on.
pub(super) fn start(settings: &ServerSettings, engine: &Arc<Engine>) -> Result<Option<WarmLists>> {
    let Some(directory) = directory(settings) else { return Ok(None) };
    let interval = settings.warm_list_interval;
    WarmLists::start(directory, interval, settings.memory_bytes, engine).map(Some)
}

/// Returns the bytes of `--memory` that are reserved for creating and reading lists.
pub(super) fn reserved_bytes(memory_bytes: u64) -> u64 {
    memory_bytes / 128
}

/// A volume and its store.
struct ListedVolume {
    volume: Arc<ArenaVolume>,
    /// Its identity when it was opened.
    store: StoreIdentity,
    /// True once its list was loaded, or found missing.
    is_read: bool,
    /// True if its list must not be overwritten: the volume is about to stop and was not read back
    /// yet.
    keeps_file: bool,
    /// Number of requests when the list was saved or read.
    requests: u64,
}

impl ListedVolume {
    fn requests_now(&self) -> u64 {
        let totals = self.volume.totals();
        totals.get(Counter::ReadRequests) + totals.get(Counter::WriteRequests)
    }
}

/// State shared by the thread and the callers that add and remove volumes.
struct Shared {
    engine: Arc<Engine>,
    directory: PathBuf,
    /// `None` if lists are saved only at the end.
    every: Option<Duration>,
    /// Maximum number of pages in a list; the hottest pages are listed.
    pages_max: usize,
    listed: Mutex<Vec<ListedVolume>>,
    is_ending: AtomicBool,
}

/// The lists of a service, and the thread that reads and saves them.
pub(super) struct WarmLists {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

/// A list that is saved once its store is no longer used.
pub(super) struct PendingList {
    path: PathBuf,
    store: StoreIdentity,
    ranges: Vec<Range<u64>>,
}

impl WarmLists {
    /// Starts the thread for lists in an existing directory.
    fn start(
        directory: PathBuf,
        interval: Option<Duration>,
        memory_bytes: u64,
        engine: &Arc<Engine>,
    ) -> Result<Self> {
        let context = || format!("keep warm lists in {}", directory.display());
        let found = std::fs::metadata(&directory).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("there is no such directory; create it first"),
            _ => error.into(),
        });
        anyhow::ensure!(
            found.with_context(context)?.is_dir(),
            "{}: it is not a directory",
            context()
        );
        rustix::fs::access(&directory, Access::WRITE_OK | Access::EXEC_OK).with_context(context)?;
        let pages_max = (reserved_bytes(memory_bytes) + BYTES_MIN) / BYTES_PER_PAGE;
        let shared = Arc::new(Shared {
            engine: Arc::clone(engine),
            directory,
            every: interval,
            pages_max: usize::try_from(pages_max).unwrap_or(usize::MAX),
            listed: Mutex::new(Vec::new()),
            is_ending: AtomicBool::new(false),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            let failed = |error: &dyn fmt::Display| {
                report_failed_part("warm lists are neither read nor saved before the end", error);
            };
            fault::spawn("warm lists", Some(engine.cache()), move || shared.run(), failed)
        };
        let thread = thread.context("start the thread of the warm lists")?;
        Ok(WarmLists { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Adds a volume: its list is read back, and saved from then on.
    pub(super) fn add(&self, volume: &Arc<ArenaVolume>, store: StoreIdentity) {
        let volume = Arc::clone(volume);
        let listed = ListedVolume { volume, store, is_read: false, keeps_file: false, requests: 0 };
        lock(&self.shared.listed).push(listed);
        if let Some(thread) = &*lock(&self.thread) {
            thread.thread().unpark();
        }
    }

    /// Ends the thread. The caller calls it before it stops the volumes, which ends reading back.
    pub(super) fn before_stop(&self) {
        self.end();
        for listed in &mut *lock(&self.shared.listed) {
            listed.keeps_file = self.shared.must_keep_file(listed);
        }
    }

    /// Returns the list that is saved after the removal of a volume. The caller calls it before the
    /// removal, which ends reading back, and then [`WarmLists::forget`], or [`WarmLists::resume`]
    /// if the volume stays.
    pub(super) fn before_removal(&self, volume: &Arc<ArenaVolume>) -> Option<PendingList> {
        let mut listed = lock(&self.shared.listed);
        let listed = listed.iter_mut().find(|listed| Arc::ptr_eq(&listed.volume, volume))?;
        let pending = self.shared.collect(listed);
        listed.keeps_file = true;
        pending
    }

    /// Removes the entry of a volume.
    pub(super) fn forget(&self, volume: &Arc<ArenaVolume>) {
        let mut listed = lock(&self.shared.listed);
        listed.retain(|listed| !Arc::ptr_eq(&listed.volume, volume));
    }

    /// Resumes saving the list of a volume whose removal failed.
    pub(super) fn resume(&self, volume: &Arc<ArenaVolume>) {
        let mut listed = lock(&self.shared.listed);
        let same = listed.iter_mut().find(|listed| Arc::ptr_eq(&listed.volume, volume));
        if let Some(listed) = same {
            listed.keeps_file = false;
        }
    }

    /// Returns the lists that are saved once the stores are no longer used.
    pub(super) fn collect(&self) -> Vec<PendingList> {
        let listed = lock(&self.shared.listed);
        listed.iter().filter_map(|listed| self.shared.collect(listed)).collect()
    }

    fn end(&self) {
        self.shared.is_ending.store(true, Ordering::Release);
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        thread.thread().unpark();
        thread.join();
    }
}

impl Drop for WarmLists {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn path(&self, volume: &ArenaVolume) -> PathBuf {
        list(&self.directory, volume.name())
    }

    /// Reads the lists of new volumes and saves those that are due, until the end.
    fn run(&self) {
        let mut last = Instant::now();
        while !self.is_ending.load(Ordering::Acquire) {
            fault::point("warm-lists", "lists");
            while self.read_one() {}
            match self.every.map(|every| every.saturating_sub(last.elapsed())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => {
                    self.save_all();
                    last = Instant::now();
                }
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }

    /// Reads the list of the next new volume; returns false if there is none.
    fn read_one(&self) -> bool {
        let mut all = lock(&self.listed);
        let cache = self.engine.cache();
        let warming: u64 =
            all.iter().map(|listed| cache.gauge(&listed.volume, Gauge::Warming)).sum();
        let Some(listed) = all.iter_mut().find(|listed| !listed.is_read) else { return false };
        listed.is_read = true;
        let (volume, path) = (&listed.volume, self.path(&listed.volume));
        let in_use = usize::try_from(warming / BLOCK_BYTES_U64).unwrap_or(usize::MAX);
        let ranges_max = self.pages_max.saturating_sub(in_use);
        let ranges = match warm_list::load(&path, &listed.store, ranges_max) {
            Ok(Some(ranges)) => ranges,
            Ok(None) => return true,
            Err(error) => {
                eprintln!("larder: note: {} starts cold: cannot {error}", volume.name());
                return true;
            }
        };
        // This server changes the store from now on, so changes do not make the list stale until
        // the end.
        if !volume.geometry().read_only {
            save(&path, &listed.store.in_use(), &ranges);
        }
        let blocks: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let size = format::bytes(blocks * BLOCK_BYTES_U64);
        tracing::info!(volume = volume.name(), size, "what was cached is being read back");
        cache.warm(volume, ranges);
        true
    }

    /// Returns true if the list of a volume must not be overwritten.
    fn must_keep_file(&self, listed: &ListedVolume) -> bool {
        !listed.is_read || listed.keeps_file || self.engine.cache().is_warming(&listed.volume)
    }

    fn residents(&self, listed: &ListedVolume) -> Vec<Range<u64>> {
        self.engine.cache().residents(&listed.volume, self.engine.now(), self.pages_max)
    }

    /// Saves the list of each volume with requests since the last save.
    fn save_all(&self) {
        for listed in &mut *lock(&self.listed) {
            let requests = listed.requests_now();
            if requests == listed.requests || self.must_keep_file(listed) {
                continue;
            }
            let read_only = listed.volume.geometry().read_only;
            let store = if read_only { listed.store.clone() } else { listed.store.in_use() };
            if save(&self.path(&listed.volume), &store, &self.residents(listed)) {
                listed.requests = requests;
            }
        }
    }

    /// Returns the list of a volume that had requests and gets no more.
    fn collect(&self, listed: &ListedVolume) -> Option<PendingList> {
        if self.must_keep_file(listed) || listed.requests_now() == 0 {
            return None;
        }
        let path = self.path(&listed.volume);
        Some(PendingList { path, store: listed.store.clone(), ranges: self.residents(listed) })
    }
}

/// Saves a list; reports an error, and returns false.
fn save(path: &Path, store: &StoreIdentity, ranges: &[Range<u64>]) -> bool {
    let saved = warm_list::save(path, store, ranges);
    if let Err(error) = &saved {
        eprintln!("larder: note: cannot {error}; the next start may be colder");
    }
    saved.is_ok()
}

impl PendingList {
    /// Saves the list. The server no longer writes to the store, so a later change is by another
    /// program.
    pub(super) fn save(&self) {
        let now = match self.store.kind {
            StoreKind::File => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&self.store.place));
                StoreIdentity::of_path(path, self.store.length)
            }
            StoreKind::Device | StoreKind::Export => Ok(self.store.clone()),
        };
        // A file that was replaced meanwhile does not match the list.
        match now.map(|now| (self.store.in_use().check(&now), now)) {
            Ok((Ok(()), now)) => save(&self.path, &now, &self.ranges),
            _ => save(&self.path, &self.store.in_use(), &self.ranges),
        };
    }
}

#[cfg(test)]
mod tests;
