//! Fault domains: the parts of the process that a panic ends.
//!
//! Each thread is started by [`spawn`]. A panic that leaves the state shared by volumes intact ends
//! the domain of its thread: a connection, a mount, a volume, or one function of the process, which
//! [`failed_parts`] lists from then on. Any other panic ends the process (`end_process`), since a
//! wrong write is worse than none. Debug builds have points at which a test makes a thread panic
//! ([`point`]).

use crate::frames::{ArenaCache, ArenaVolume};
use larder_core::units::BLOCK_BYTES_U64;
use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{Builder, JoinHandle};

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of ranges of a volume that a message lists; it counts the others.
const RANGES_MAX: usize = 16;

/// A caught panic, with its message.
#[derive(Debug)]
pub struct CaughtPanic {
    message: String,
}

impl fmt::Display for CaughtPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "internal error: {}", self.message)
    }
}

impl CaughtPanic {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        CaughtPanic { message: text.unwrap_or_else(|| "a panic without a message".to_owned()) }
    }

    /// Ends the process if the panic has left shared state of the cache inconsistent, or a frame
    /// locked forever.
    pub fn end_if_damaging(&self, cache: &ArenaCache) {
        if larder_core::damage_seen() || larder_mem::lost_write_pin_in_panic() {
            end_process(cache, self);
        }
    }

    /// Logs the panic with its `effect`, unless it ends the process as a damaging one.
    pub fn report(&self, cache: &ArenaCache, effect: &str) {
        self.end_if_damaging(cache);
        tracing::error!("{effect}: {self}");
    }
}

/// Runs `work` and returns its result.
///
/// # Errors
/// The panic of `work`, if it panicked.
pub fn confine<T>(work: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| CaughtPanic::new(&*payload))
}

/// Runs a future as [`confine`] runs a function.
///
/// # Errors
/// As [`confine`].
pub async fn confine_future<T>(work: impl Future<Output = T>) -> Result<T, CaughtPanic> {
    let mut work = pin!(work);
    poll_fn(|context| match confine(|| work.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// A thread that [`spawn`] has started.
#[derive(Debug)]
pub struct Thread<T = ()>(JoinHandle<T>);

impl<T> Thread<T> {
    /// Waits for the end of the thread, and returns its result.
    #[expect(clippy::must_use_candidate, reason = "most threads return nothing")]
    pub fn join(self) -> T {
        self.0.join().expect("no panic leaves the thread")
    }

    /// Returns true if the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Returns the handle that wakes the thread if it is parked.
    #[must_use]
    pub fn thread(&self) -> &std::thread::Thread {
        self.0.thread()
    }
}

/// Starts a thread that runs `work`.
///
/// A panic of `work` ends the process if it has damaged `cache`, the cache that the thread uses, if
/// any. Otherwise `failed` ends the domain of the thread, so that no request waits for a thread
/// that is gone, and returns the result of the thread. A panic of `failed` ends the process.
///
/// # Errors
/// Fails if the kernel has no thread left.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    cache: Option<&Arc<ArenaCache>>,
    work: impl FnOnce() -> T + Send + 'static,
    failed: impl FnOnce(&dyn fmt::Display) -> T + Send + 'static,
) -> io::Result<Thread<T>> {
    spawn_fallible(name, cache, || Ok::<T, Infallible>(work()), failed)
}

/// As [`spawn`], for work that may also end with an error, which `failed` handles like a panic.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_fallible<T: Send + 'static, E: fmt::Display>(
    name: impl Into<String>,
    cache: Option<&Arc<ArenaCache>>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
    failed: impl FnOnce(&dyn fmt::Display) -> T + Send + 'static,
) -> io::Result<Thread<T>> {
    let cache = cache.map(Arc::clone);
    let cache_at_panic = cache.clone();
    let fail = move |error: &dyn fmt::Display| {
        confine(|| failed(error)).unwrap_or_else(|panic| match &cache {
            Some(cache) => end_process(cache, &panic),
            None => std::process::abort(),
        })
    };
    let run = move || match confine(work) {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => fail(&error),
        Err(panic) => {
            if let Some(cache) = &cache_at_panic {
                panic.end_if_damaging(cache);
            }
            fail(&panic)
        }
    };
    Builder::new().name(name.into()).spawn(run).map(Thread)
}

/// Sentences about parts of this process that an error has ended.
static FAILED_PARTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn all_failed_parts() -> MutexGuard<'static, Vec<String>> {
    FAILED_PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a sentence for each part of this process that an error has ended, and that only a
/// restart restores.
#[must_use]
pub fn failed_parts() -> Vec<String> {
    all_failed_parts().clone()
}

/// Logs that an error has ended a part of this process, and lists it in [`failed_parts`]. `effect`
/// names the part and the visible effect; the error follows it.
pub fn report_failed_part(effect: &str, error: &dyn fmt::Display) {
    tracing::error!("{effect}: {error}");
    all_failed_parts().push(format!("{effect}: {error}"));
}

/// Ends the process immediately, as a power failure would, after logging the unwritten ranges of
/// each volume. Nothing more is written: the page state of the cache may be wrong.
pub(crate) fn end_process(cache: &ArenaCache, panic: &dyn fmt::Display) -> ! {
    tracing::error!("the cache is damaged ({panic}): the process ends without further writes");
    // The search for unwritten ranges may itself panic on inconsistent state.
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
                UnwrittenRanges { bytes, ranges: &remains.ranges }
            );
        }
    }
    std::process::abort();
}

/// Unwritten ranges of a volume, for messages.
struct UnwrittenRanges<'a> {
    bytes: u64,
    ranges: &'a [Range<u64>],
}

impl fmt::Display for UnwrittenRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.bytes >> 10)?;
        for (index, range) in self.ranges.iter().take(RANGES_MAX).enumerate() {
            let separator = if index == 0 { ": bytes " } else { ", " };
            write!(f, "{separator}{} to {}", range.start, range.end)?;
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
    format!("not written: {}", UnwrittenRanges { bytes, ranges: &risk.failing })
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
