//! The thread that drives a volume's store: it asks the cache what to do, gives that to the store,
//! and brings back what is done.

use super::{ArenaCache, ArenaVolume};
use crate::store::EngineStore;
use crate::wake::Waker;
use larder_core::clock::{Clock, Nanos, SECOND};
use larder_core::counters::Recorder;
use larder_core::lane::Notify;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Operations that a store has at a time.
const DEPTH: usize = 128;
/// A store that has not finished anything for this long is mentioned in the log.
const STALL: Nanos = 30 * SECOND;
/// How long the end of a thread waits for what its store is doing.
const LAST_WAIT: Nanos = 10 * SECOND;

/// A running thread for one volume.
pub(super) struct Driver {
    pub(super) volume: Arc<ArenaVolume>,
    quit: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(super) fn start(
        cache: Arc<ArenaCache>,
        volume: Arc<ArenaVolume>,
        clock: Arc<dyn Clock>,
        waker: Waker,
        store: Box<dyn EngineStore>,
    ) -> io::Result<Self> {
        let quit = Arc::new(AtomicBool::new(false));
        let run = Run {
            cache,
            volume: Arc::clone(&volume),
            clock,
            waker: waker.clone(),
            quit: Arc::clone(&quit),
            store,
        };
        let name = format!("store {}", volume.name());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            crate::reclaim::reserve_stack();
            // Half-changed state must not reach a store, and clients that wait for a thread that is
            // gone would wait for ever: end as kill -9 does, which loses nothing promised.
            if catch_unwind(AssertUnwindSafe(|| run.run())).is_err() {
                tracing::error!("a broken invariant; ending at once, as after a power failure");
                std::process::abort();
            }
        })?;
        Ok(Driver { volume, quit, waker, thread: Some(thread) })
    }

    /// Ends the thread; what is not written is lost.
    pub(super) fn quit(&mut self) {
        self.quit.store(true, Ordering::Release);
        self.waker.notify();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread of a store does not panic");
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.quit();
        }
    }
}

struct Run {
    cache: Arc<ArenaCache>,
    volume: Arc<ArenaVolume>,
    clock: Arc<dyn Clock>,
    waker: Waker,
    quit: Arc<AtomicBool>,
    store: Box<dyn EngineStore>,
}

impl Run {
    fn run(mut self) {
        let recorder = self.cache.recorder(&self.volume);
        let cache = Arc::clone(&self.cache);
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        let mut last_progress = self.clock.now();
        while !self.quit.load(Ordering::Acquire) {
            let now = self.clock.now();
            let next = self.cache.poll(&self.volume, &recorder, now, DEPTH, &mut ops);
            for op in ops.drain(..) {
                self.store.submit(now, cache.frames(), op);
            }
            self.store.reap(self.clock.now(), cache.frames(), &mut done);
            if !done.is_empty() {
                let now = self.clock.now();
                last_progress = now;
                for done in done.drain(..) {
                    self.cache.complete(&self.volume, &recorder, now, done);
                }
                continue;
            }
            if self.store.in_flight() == 0 {
                last_progress = now;
            } else if now > last_progress + STALL {
                let seconds = (now - last_progress) / SECOND;
                tracing::warn!(volume = self.volume.name(), seconds, "the store does not answer");
                last_progress = now;
            }
            let stall_check = (self.store.in_flight() > 0).then_some(STALL);
            let timeout = match (next.map(|at| at.saturating_sub(now)), stall_check) {
                (Some(next), Some(check)) => Some(next.min(check)),
                (one, other) => one.or(other),
            };
            if let Err(error) = self.store.wait(&self.waker, timeout.map(Duration::from_nanos)) {
                tracing::error!(volume = self.volume.name(), %error, "cannot wait for the store");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.end(&recorder);
    }

    /// Lets the store finish what it has begun, and gives up the rest.
    fn end(mut self, recorder: &Recorder) {
        let deadline = self.clock.now() + LAST_WAIT;
        let mut done = Vec::new();
        while self.store.in_flight() > 0 && self.clock.now() < deadline {
            self.store.reap(self.clock.now(), self.cache.frames(), &mut done);
            for done in done.drain(..) {
                self.cache.complete(&self.volume, recorder, self.clock.now(), done);
            }
            if let Err(error) = self.store.wait(&self.waker, Some(Duration::from_millis(100))) {
                tracing::error!(volume = self.volume.name(), %error, "cannot wait for the store");
                break;
            }
        }
        self.cache.abandon(&self.volume);
        if self.store.in_flight() > 0 {
            tracing::error!(volume = self.volume.name(), "the store did not finish");
            // Its frames are in the kernel's hands; they must stay where they are.
            std::mem::forget(self.store);
        }
    }
}
