//! `larder serve --warm-list`: what is cached is listed in files, and read back at the next start.
//!
//! One thread reads the lists of volumes that have come and saves them now and then; the last time
//! they are saved is when nobody uses the stores any more. Invariants: neither a start nor a client
//! waits for a list; a list that is still being read back is kept as it is, so that a start that is
//! soon followed by an end loses nothing of it; what goes wrong with a list is said, and its volume
//! is served all the same; the memory that lists take is bounded by what was set aside for them.

use super::Arguments;
use super::plan::Plan;
use crate::args::PathOrNone;
use anyhow::{Context, Result};
use larder_core::counters::{Counter, Gauge};
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::fault::{self, Thread, report_failed_part};
use larder_io::warm_list::{self, StoreIdentity, StoreKind};
use larder_report::format;
use rustix::fs::Access;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a list of one page takes at most while it is made: 20 bytes for its page, and its range.
const BYTES_PER_PAGE: u64 = 40;
/// Taken in any case, beside `--memory`.
const BYTES_MIN: u64 = 4 << 20;

/// Where lists are kept; none for nowhere. A service manager that gives the server a directory for its
/// state wants it to be used.
pub(super) fn directory(arguments: &Arguments) -> Option<PathBuf> {
    match &arguments.warm_list {
        Some(PathOrNone::None) => None,
        Some(PathOrNone::Path(path)) => Some(path.clone()),
        None => state_directory(std::env::var_os("STATE_DIRECTORY")?.as_bytes()),
    }
}

/// Returns the path of the list of a volume.
pub(super) fn list(directory: &Path, volume: &str) -> PathBuf {
    directory.join(format!("{volume}.warm"))
}

/// The first of the directories that systemd.exec(5) names, which are separated by colons.
fn state_directory(directories: &[u8]) -> Option<PathBuf> {
    let first = directories.split(|&byte| byte == b':').next()?;
    (!first.is_empty()).then(|| std::ffi::OsStr::from_bytes(first).into())
}

/// The lists that the arguments ask for.
pub(super) fn start(
    arguments: &Arguments,
    plan: &Plan,
    engine: &Arc<Engine>,
) -> Result<Option<WarmLists>> {
    let Some(directory) = directory(arguments) else { return Ok(None) };
    let every_ns = arguments.warm_list_every;
    WarmLists::start(directory, every_ns, plan.memory_bytes, engine).map(Some)
}

/// Bytes of `--memory` that are set aside for making and reading lists.
pub(super) fn bytes_beside(memory_bytes: u64) -> u64 {
    memory_bytes / 128
}

/// A volume and the store that it lies on.
struct Listed {
    volume: Arc<ArenaVolume>,
    /// As it was when it was opened.
    store: StoreIdentity,
    /// Whether its list has been looked for.
    is_read: bool,
    /// Whether its list stays as it is: the volume is about to stop and was not read back yet.
    is_kept: bool,
    /// Requests when the list was saved or read.
    requests: u64,
}

impl Listed {
    fn requests_now(&self) -> u64 {
        let totals = self.volume.totals();
        totals.get(Counter::ReadRequests) + totals.get(Counter::WriteRequests)
    }
}

/// What the thread shares with those who add and remove volumes.
struct Shared {
    engine: Arc<Engine>,
    directory: PathBuf,
    /// None if lists are saved at the end only.
    every: Option<Duration>,
    /// The hottest pages of a volume are listed, up to so many.
    pages_max: usize,
    listed: Mutex<Vec<Listed>>,
    ending: AtomicBool,
}

/// The lists of a service, and the thread that keeps them.
pub(super) struct WarmLists {
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

/// A list that is saved when the store is at rest.
pub(super) struct Gathered {
    path: PathBuf,
    store: StoreIdentity,
    ranges: Vec<Range<u64>>,
}

impl WarmLists {
    /// Keeps lists in a directory that is there.
    fn start(
        directory: PathBuf,
        every_ns: u64,
        memory_bytes: u64,
        engine: &Arc<Engine>,
    ) -> Result<Self> {
        let what = || format!("keep lists of what is cached in {}", directory.display());
        anyhow::ensure!(
            std::fs::metadata(&directory).with_context(what)?.is_dir(),
            "{}: it is not a directory",
            what()
        );
        rustix::fs::access(&directory, Access::WRITE_OK | Access::EXEC_OK).with_context(what)?;
        let pages_max = (bytes_beside(memory_bytes) + BYTES_MIN) / BYTES_PER_PAGE;
        let shared = Arc::new(Shared {
            engine: Arc::clone(engine),
            directory,
            every: (every_ns > 0).then(|| Duration::from_nanos(every_ns)),
            pages_max: usize::try_from(pages_max).unwrap_or(usize::MAX),
            listed: Mutex::new(Vec::new()),
            ending: AtomicBool::new(false),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            let failed = |error: &dyn fmt::Display| {
                report_failed_part("warm lists are neither read nor saved before the end", error);
            };
            fault::spawn("warm lists", Some(engine.cache()), move || shared.keep(), failed)
        };
        let thread = thread.context("start a thread for lists of what is cached")?;
        Ok(WarmLists { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Has a volume's list read back, and saved from then on.
    pub(super) fn add(&self, volume: &Arc<ArenaVolume>, store: StoreIdentity) {
        let volume = Arc::clone(volume);
        let listed = Listed { volume, store, is_read: false, is_kept: false, requests: 0 };
        self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner).push(listed);
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.thread().unpark();
        }
    }

    /// To be called before the volumes are stopped, which ends reading back.
    pub(super) fn before_stop(&self) {
        self.end();
        for listed in &mut *self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner) {
            listed.is_kept = self.shared.is_to_be_kept(listed);
        }
    }

    /// To be called before a volume is removed, which ends reading it back: what is to be saved
    /// when it is gone. Then follows [`WarmLists::forget`], or [`WarmLists::go_on`] if it stays.
    pub(super) fn before_removal(&self, volume: &Arc<ArenaVolume>) -> Option<Gathered> {
        let mut listed = self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = listed.iter_mut().find(|listed| Arc::ptr_eq(&listed.volume, volume))?;
        let gathered = self.shared.gather(listed);
        listed.is_kept = true;
        gathered
    }

    /// Forgets a volume that is gone.
    pub(super) fn forget(&self, volume: &Arc<ArenaVolume>) {
        let mut listed = self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|listed| !Arc::ptr_eq(&listed.volume, volume));
    }

    /// Goes on with a volume that was to be removed and is still there.
    pub(super) fn go_on(&self, volume: &Arc<ArenaVolume>) {
        let mut listed = self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let same = listed.iter_mut().find(|listed| Arc::ptr_eq(&listed.volume, volume));
        if let Some(listed) = same {
            listed.is_kept = false;
        }
    }

    /// What is to be saved when the stores are at rest.
    pub(super) fn gather(&self) -> Vec<Gathered> {
        let listed = self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.iter().filter_map(|listed| self.shared.gather(listed)).collect()
    }

    fn end(&self) {
        self.shared.ending.store(true, Ordering::Release);
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else {
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

    /// Reads what is new and saves what is due, until the end.
    fn keep(&self) {
        let mut last = Instant::now();
        while !self.ending.load(Ordering::Acquire) {
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

    /// Reads the next list that was not looked for; false if there is none.
    fn read_one(&self) -> bool {
        let mut all = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = self.engine.cache();
        let warming: u64 =
            all.iter().map(|listed| cache.gauge(&listed.volume, Gauge::Warming)).sum();
        let Some(listed) = all.iter_mut().find(|listed| !listed.is_read) else { return false };
        listed.is_read = true;
        let (volume, path) = (&listed.volume, self.path(&listed.volume));
        let taken = usize::try_from(warming / BLOCK_BYTES_U64).unwrap_or(usize::MAX);
        let ranges_max = self.pages_max.saturating_sub(taken);
        let ranges = match warm_list::load(&path, &listed.store, ranges_max) {
            Ok(Some(ranges)) => ranges,
            Ok(None) => return true,
            Err(error) => {
                eprintln!("larder: note: {} starts cold: failed to {error}", volume.name());
                return true;
            }
        };
        // From now on the store is changed by us, so that says nothing until the end.
        if !volume.geometry().read_only {
            save(&path, &listed.store.in_use(), &ranges);
        }
        let blocks: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let size = format::bytes(blocks * BLOCK_BYTES_U64);
        tracing::info!(volume = volume.name(), size, "what was cached is being read back");
        cache.warm(volume, ranges);
        true
    }

    /// Whether a volume has not been read back yet.
    fn is_to_be_kept(&self, listed: &Listed) -> bool {
        !listed.is_read || listed.is_kept || self.engine.cache().is_warming(&listed.volume)
    }

    fn residents(&self, listed: &Listed) -> Vec<Range<u64>> {
        self.engine.cache().residents(&listed.volume, self.engine.now(), self.pages_max)
    }

    /// Saves the list of each volume that was used since.
    fn save_all(&self) {
        for listed in &mut *self.listed.lock().unwrap_or_else(PoisonError::into_inner) {
            let requests = listed.requests_now();
            if requests == listed.requests || self.is_to_be_kept(listed) {
                continue;
            }
            let read_only = listed.volume.geometry().read_only;
            let store = if read_only { listed.store.clone() } else { listed.store.in_use() };
            if save(&self.path(&listed.volume), &store, &self.residents(listed)) {
                listed.requests = requests;
            }
        }
    }

    /// The list of a volume that was used, and that will not be used any more.
    fn gather(&self, listed: &Listed) -> Option<Gathered> {
        if self.is_to_be_kept(listed) || listed.requests_now() == 0 {
            return None;
        }
        let path = self.path(&listed.volume);
        Some(Gathered { path, store: listed.store.clone(), ranges: self.residents(listed) })
    }
}

/// Saves a list, or says why not; whether it did.
fn save(path: &Path, store: &StoreIdentity, ranges: &[Range<u64>]) -> bool {
    let saved = warm_list::save(path, store, ranges);
    if let Err(error) = &saved {
        eprintln!("larder: note: failed to {error}; the next start may be colder");
    }
    saved.is_ok()
}

impl Gathered {
    /// Saves it. Nobody writes to the store any more, so a later change is one by others.
    pub(super) fn save(&self) {
        let now = match self.store.kind {
            StoreKind::File => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&self.store.place));
                StoreIdentity::of_path(path, self.store.length)
            }
            StoreKind::Device | StoreKind::Export => Ok(self.store.clone()),
        };
        // A file that was replaced meanwhile is not the one that this list is about.
        match now.map(|now| (self.store.in_use().check(&now), now)) {
            Ok((Ok(()), now)) => save(&self.path, &now, &self.ranges),
            _ => save(&self.path, &self.store.in_use(), &self.ranges),
        };
    }
}

#[cfg(test)]
mod tests;
