//! Fault domains: the parts of the process that a panic ends.
//!
//! Each thread runs under [`confine`]. A panic that leaves the state shared by volumes intact ends
//! the domain of its thread: a connection, a mount, or a volume. Any other panic ends the process
//! (`end_process`), since a wrong write is worse than none. Debug builds have points at which a
//! test makes a thread panic ([`point`]).

use crate::engine::{ArenaCache, ArenaVolume};
use larder_core::units::BLOCK_BYTES_U64;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(debug_assertions)]
use std::sync::{Mutex, PoisonError};

/// Maximum number of ranges of a volume that a message lists; it counts the others.
const RANGES_MAX: usize = 16;

/// A caught panic, with its message.
#[derive(Debug)]
pub struct Panicked {
    message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "internal error: {}", self.message)
    }
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Panicked { message: text.unwrap_or_else(|| "a panic without a message".to_owned()) }
    }

    /// Ends the process if the panic has left shared state of the cache half-changed, or a frame
    /// locked for ever.
    pub fn end_if_damaging(&self, cache: &ArenaCache) {
        if larder_core::damage_seen() || larder_mem::lost_own_in_panic() {
            end_process(cache, self);
        }
    }
}

/// Runs `work` and returns its result.
///
/// # Errors
/// The panic of `work`, if it panicked.
pub fn confine<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked::new(&*payload))
}

/// Runs the work of a thread whose panics end only the thread and the object it serves. `what`
/// names it in the log.
pub(crate) fn confine_thread(cache: &ArenaCache, what: &str, work: impl FnOnce()) {
    if let Err(panic) = confine(work) {
        panic.end_if_damaging(cache);
        tracing::error!("{what} has ended: {panic}");
    }
}

/// Ends the process at once, as a power failure would, after logging the unwritten ranges of each
/// volume. Nothing more is written: the page state of the cache may be wrong.
pub(crate) fn end_process(cache: &ArenaCache, panic: &Panicked) -> ! {
    tracing::error!("the cache is damaged ({panic}): the process ends without further writes");
    // The search for unwritten ranges may itself panic on half-changed state.
    let remains = confine(|| cache.remains()).unwrap_or_default();
    for (volume, remains) in remains.iter().filter(|(volume, _)| !volume.is_removed()) {
        let (name, unread) = (volume.name(), remains.unread_shards);
        if remains.ranges.is_empty() && unread == 0 {
            tracing::error!("{name}: everything was written");
        } else {
            let bytes = remains.ranges.iter().map(|range| range.end - range.start).sum();
            tracing::error!(
                unread_shards = unread,
                "{name}: not written: {}",
                Unwritten { bytes, ranges: &remains.ranges }
            );
        }
    }
    std::process::abort();
}

/// Unwritten ranges of a volume, for messages.
struct Unwritten<'a> {
    bytes: u64,
    ranges: &'a [Range<u64>],
}

impl fmt::Display for Unwritten<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.bytes >> 10)?;
        for (index, range) in self.ranges.iter().take(RANGES_MAX).enumerate() {
            let before = if index == 0 { ": bytes " } else { ", " };
            write!(f, "{before}{} to {}", range.start, range.end)?;
        }
        match self.ranges.len().saturating_sub(RANGES_MAX) {
            0 => Ok(()),
            more => write!(f, ", and {more} more ranges"),
        }
    }
}

/// Describes the unwritten ranges of a broken volume, for messages.
pub(crate) fn unwritten(cache: &ArenaCache, volume: &ArenaVolume) -> String {
    let risk = cache.at_risk(volume, RANGES_MAX);
    let bytes = risk.blocks * BLOCK_BYTES_U64;
    if bytes == 0 {
        return "everything was written".to_owned();
    }
    format!("not written: {}", Unwritten { bytes, ranges: &risk.failing })
}

/// Armed fault points: kind of thread, and the name of the object it serves.
#[cfg(debug_assertions)]
static POINTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
#[cfg(debug_assertions)]
static POINTS_ARMED: AtomicUsize = AtomicUsize::new(0);

/// Arms the point that the variable `LARDER_FAULT` names as `KIND=NAME`, if it is set: the next
/// thread of that kind that works for `NAME` panics, once. For tests of whole processes; no effect
/// in builds without debug assertions.
#[doc(hidden)]
pub fn arm_from_environment() {
    #[cfg(debug_assertions)]
    if let Ok(named) = std::env::var("LARDER_FAULT")
        && let Some((kind, name)) = named.split_once('=')
    {
        let mut points = POINTS.lock().unwrap_or_else(PoisonError::into_inner);
        points.push((kind.to_owned(), name.to_owned()));
        POINTS_ARMED.store(points.len(), Ordering::Release);
    }
}

/// Panics if a test has armed this point.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[inline]
pub fn point(kind: &str, name: &str) {
    if POINTS_ARMED.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut points = POINTS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = points.iter().position(|point| point.0 == kind && point.1 == name);
    if let Some(found) = found {
        points.swap_remove(found);
        POINTS_ARMED.store(points.len(), Ordering::Release);
        drop(points);
        panic!("a test has asked for this panic of {kind} at {name}");
    }
}

/// Does nothing: builds without debug assertions have no points.
#[cfg(not(debug_assertions))]
#[doc(hidden)]
#[inline]
pub fn point(_kind: &str, _name: &str) {}
