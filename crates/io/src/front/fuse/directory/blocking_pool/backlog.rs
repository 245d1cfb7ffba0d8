//! Memory of the requests that the blocking workers of a mount have accepted and not completed.
//!
//! Invariant: while these requests take more than [`BACKLOG_BYTES_MAX`], the threads of the mount
//! receive no further requests from the kernel. This cannot deadlock: a blocking worker never waits
//! for a request that the kernel has not delivered yet.

use crate::waker::Waker;
use larder_core::completion::Wake as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Memory of these requests above which no further ones are received.
const BACKLOG_BYTES_MAX: usize = 8 << 20;
/// Bytes that a request takes in addition to its body.
const REQUEST_BYTES: usize = 256;

/// The requests that the blocking workers of a mount have accepted and not completed.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: AtomicUsize,
    /// Wakers of the threads that receive requests from the kernel.
    wakers: OnceLock<Vec<Waker>>,
}

/// A request in the backlog; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct BacklogEntry {
    backlog: Arc<Backlog>,
    bytes: usize,
    since: Instant,
}

impl BacklogEntry {
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Backlog {
    /// Sets the wakers of the threads to wake when there is room again.
    pub(super) fn set_wakers(&self, wakers: &[Waker]) {
        let is_first = self.wakers.set(wakers.to_vec()).is_ok();
        debug_assert!(is_first, "a directory is mounted once");
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Acquire) > BACKLOG_BYTES_MAX
    }

    /// Adds a request with a body of `len` bytes.
    pub(super) fn add(self: &Arc<Self>, len: usize) -> BacklogEntry {
        let bytes = REQUEST_BYTES + len;
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        BacklogEntry { backlog: Arc::clone(self), bytes, since: Instant::now() }
    }
}

impl Drop for BacklogEntry {
    fn drop(&mut self) {
        let before = self.backlog.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if before > BACKLOG_BYTES_MAX && before - self.bytes <= BACKLOG_BYTES_MAX {
            for waker in self.backlog.wakers.get().into_iter().flatten() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_backlog_wakes_the_threads_when_there_is_room_again() {
        let backlog = Arc::new(Backlog::default());
        let waker = Waker::new().unwrap();
        backlog.set_wakers(std::slice::from_ref(&waker));
        let half = || backlog.add(BACKLOG_BYTES_MAX / 2);
        let (first, second) = (half(), half());
        assert!(backlog.is_full(), "each takes more than its body");
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| waker.sleep(None, Some(Duration::from_mins(1))));
            drop(first);
            sleeping.join().unwrap().unwrap();
        });
        assert!(!backlog.is_full());
        drop(second);
        assert_eq!(backlog.bytes.load(Ordering::Acquire), 0);
    }
}
