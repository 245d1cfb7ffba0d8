//! The thread that drives a volume's store: it takes operations from the cache, submits them to the
//! store, and returns their completions to the cache.
//!
//! A panic of the store ends only its volume: its operations in flight, and all later ones,
//! complete with an error. A panic of the cache ends the process.

mod failures;
mod stall_detection;

use super::{ArenaCache, ArenaVolume};
use crate::fault::{self, CaughtPanic, Thread, confine};
use crate::frames::ArenaFrames;
use crate::store::{EngineStore, PeerControl};
use crate::waker::Waker;
use failures::{WriteFailures, WriteState};
use larder_core::clock::{Clock, Nanos, SECOND};
use larder_core::completion::Wake;
use larder_core::counters::Recorder;
use larder_core::store::{StoreCompletion, StoreError, StoreErrorKind, StoreOp, StoreOpKind};
use stall_detection::{STALL, StallDetector};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of operations in flight at a store.
const DEPTH: usize = 128;
/// Maximum time that a thread waits at its end for operations in flight.
const LAST_WAIT: Nanos = 10 * SECOND;

pub(super) struct Driver {
    pub(super) volume: Arc<ArenaVolume>,
    quit: Arc<AtomicBool>,
    given_up: Arc<AtomicBool>,
    waker: Waker,
    control: Option<Arc<PeerControl>>,
    thread: Option<Thread>,
}

impl Driver {
    pub(super) fn start(
        cache: Arc<ArenaCache>,
        volume: Arc<ArenaVolume>,
        clock: Arc<dyn Clock>,
        waker: Waker,
        store: Box<dyn EngineStore>,
    ) -> io::Result<Self> {
        let control = store.peer_control();
        let driver = DriverThread {
            cache: Arc::clone(&cache),
            volume: Arc::clone(&volume),
            clock,
            waker: waker.clone(),
            quit: Arc::default(),
            given_up: Arc::default(),
            store: Some(store),
            panicked: None,
            in_flight: Vec::new(),
            stall_detector: StallDetector::default(),
            failures: WriteFailures::default(),
        };
        let (quit, given_up) = (Arc::clone(&driver.quit), Arc::clone(&driver.given_up));
        let name = format!("store {}", volume.name());
        let work = || {
            crate::reclaim::reserve_stack();
            crate::time_slice::shorten();
            driver.run();
        };
        // Panics of the store are handled inside. After a panic of the cache, its inconsistent
        // state must not reach a store, and clients would wait for this thread forever.
        let thread =
            fault::spawn::<()>(name, None, work, move |panic| fault::end_process(&cache, panic))?;
        Ok(Driver { volume, quit, given_up, waker, control, thread: Some(thread) })
    }

    /// Makes the thread discard the cache's writes from now on, instead of passing them to the
    /// store, and ends its waits for a server.
    pub(super) fn give_up(&self) {
        // The control ends first, so that a thread that discards writes also ends operations in
        // flight.
        if let Some(control) = &self.control {
            control.end();
        }
        self.given_up.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns true if all data of the volume is stable on a server, as far as its replies say: a
    /// stop need not flush it again.
    pub(super) fn is_stable_on_server(&self) -> bool {
        self.control
            .as_ref()
            .is_some_and(|control| self.volume.unclean_bytes() == 0 && !control.has_unflushed())
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Ends the thread; unwritten data is lost. It waits for a server only if the server has
    /// unflushed changes.
    pub(super) fn quit(&mut self) {
        self.quit.store(true, Ordering::Release);
        if let Some(control) = &self.control
            && !control.has_unflushed()
        {
            control.end();
        }
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
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

/// Returns an operation without its memory, to complete it if the store never does; the memory then
/// stays with the store forever.
fn without_memory(op: &StoreOp<ArenaFrames>) -> StoreOp<ArenaFrames> {
    let StoreOp { tag, kind, offset, len, queued_at, .. } = *op;
    StoreOp { tag, kind, offset, len, segments: Vec::new(), queued_at }
}

struct DriverThread {
    cache: Arc<ArenaCache>,
    volume: Arc<ArenaVolume>,
    clock: Arc<dyn Clock>,
    waker: Waker,
    quit: Arc<AtomicBool>,
    given_up: Arc<AtomicBool>,
    /// None after the store has panicked.
    store: Option<Box<dyn EngineStore>>,
    /// A panic of the store during the last wait.
    panicked: Option<CaughtPanic>,
    /// The operations in flight at the store, without their memory.
    in_flight: Vec<StoreOp<ArenaFrames>>,
    stall_detector: StallDetector,
    failures: WriteFailures,
}

impl DriverThread {
    fn run(mut self) {
        let recorder = self.cache.recorder(&self.volume);
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        while !self.quit.load(Ordering::Acquire) {
            let now = self.clock.now();
            let next = self.cache.poll(&self.volume, &recorder, now, DEPTH, &mut ops);
            let panicked = self.exchange(now, &mut ops, &mut done);
            let answered = !done.is_empty();
            if let Some(silent) =
                self.stall_detector.note_progress(now, self.in_flight.len(), answered)
            {
                let seconds = silent / SECOND;
                tracing::warn!(volume = self.volume.name(), seconds, "the store does not answer");
            }
            if answered {
                let now = self.clock.now();
                for done in done.drain(..) {
                    self.cache.complete(&self.volume, &recorder, now, done);
                }
            }
            self.log_failures(now);
            if let Err(panic) = panicked {
                let unwritten = fault::unwritten(&self.cache, &self.volume);
                tracing::error!(
                    volume = self.volume.name(),
                    "{panic}: the volume has failed: every request to it gets EIO; {unwritten}"
                );
                continue;
            }
            if answered {
                continue;
            }
            let stall_check = (!self.in_flight.is_empty()).then_some(STALL);
            let next = [next, self.failures.due(), stall_check.map(|check| now + check)];
            let next = next.into_iter().flatten().min();
            self.wait(next.map(|at| Duration::from_nanos(at.saturating_sub(now))));
        }
        self.end(&recorder);
    }

    /// Logs when writes to the store begin or cease to fail, and when clients' writes begin to
    /// fail.
    fn log_failures(&mut self, now: Nanos) {
        let volume = &self.volume;
        // The log already has the panic of a broken volume's store, and the data that was given up.
        if volume.broken().is_some() || self.given_up.load(Ordering::Acquire) {
            return;
        }
        let state = match volume.failure() {
            None => WriteState::Working,
            Some(error) if volume.is_refusing_writes() => WriteState::Refusing(error),
            Some(error) => WriteState::Failing(error),
        };
        if !self.failures.note_write_state(now, &state) {
            return;
        }
        let (volume, unwritten_bytes) = (volume.name(), volume.unclean_bytes());
        match state {
            WriteState::Working => {
                tracing::warn!(volume, "the store can be written to again");
            }
            WriteState::Failing(error) => tracing::warn!(
                volume,
                unwritten_bytes,
                "cannot {error}; the data stays in memory, and writing is tried again"
            ),
            WriteState::Refusing(error) => tracing::warn!(
                volume,
                unwritten_bytes,
                "the dirty limit is reached, and new writes fail until data can be written: \
                 cannot {error}"
            ),
        }
    }

    /// Submits the cache's operations to the store, and collects completions. Operations complete
    /// immediately if the store is gone or the volume is given up. Returns the panic of the store,
    /// if it panicked.
    fn exchange(
        &mut self,
        now: Nanos,
        ops: &mut Vec<StoreOp<ArenaFrames>>,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) -> Result<(), CaughtPanic> {
        // The loop removes one operation at a time, so that after a panic the remaining ones keep
        // their memory.
        ops.reverse();
        let is_given_up = self.given_up.load(Ordering::Acquire);
        let (in_flight, clock, frames) = (&mut self.in_flight, &*self.clock, self.cache.frames());
        let panicked_in_wait = self.panicked.take().map_or(Ok(()), Err);
        let exchanged = panicked_in_wait.and_then(|()| {
            let Some(store) = &mut self.store else { return Ok(()) };
            confine(|| {
                while !is_given_up && let Some(op) = ops.pop() {
                    in_flight.push(without_memory(&op));
                    fault::point("store", self.volume.name());
                    store.submit(now, frames, op);
                }
                store.reap(clock.now(), frames, done);
            })
        });
        for done in &*done {
            let in_flight =
                self.in_flight.iter().position(|in_flight| in_flight.tag == done.op.tag);
            self.in_flight.swap_remove(in_flight.expect("the store does what it was given"));
        }
        if let Err(panic) = &exchanged {
            self.lose_store(panic, now, done);
        }
        while let Some(op) = ops.pop() {
            let result = self.result_without_store(op.kind, is_given_up);
            done.push(StoreCompletion { op, result, started_at: now, finished_at: now });
        }
        exchanged
    }

    fn result_without_store(&self, kind: StoreOpKind, is_given_up: bool) -> Result<(), StoreError> {
        if is_given_up && kind != StoreOpKind::Read {
            return Ok(());
        }
        Err(self.volume.broken().cloned().unwrap_or_else(|| {
            let message = format!("use {}: its data was given up", self.volume.name());
            StoreError::new(StoreErrorKind::Gone, message)
        }))
    }

    /// Handles a panic of the store: it gets no more operations, and those in flight fail.
    fn lose_store(
        &mut self,
        panic: &CaughtPanic,
        now: Nanos,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) {
        let message = format!("use {}: {panic}", self.volume.name());
        let error = StoreError::new(StoreErrorKind::Gone, message);
        // The kernel may still access the frames; they must stay in place.
        std::mem::forget(self.store.take());
        self.cache.break_volume(&self.volume, error.clone());
        done.extend(self.in_flight.drain(..).map(|op| {
            let result = Err(error.clone());
            StoreCompletion { op, result, started_at: now, finished_at: now }
        }));
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        let waited = match &mut self.store {
            None => Ok(self.waker.sleep(None, timeout)),
            Some(store) => confine(|| store.wait(&self.waker, timeout)),
        };
        match waited {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(volume = self.volume.name(), %error, "cannot wait for the store");
                std::thread::sleep(Duration::from_millis(10));
            }
            // The next exchange handles the panic.
            Err(panic) => self.panicked = Some(panic),
        }
    }

    /// Lets the store finish the operations in flight, and abandons all other data.
    fn end(mut self, recorder: &Recorder) {
        let deadline = self.clock.now() + LAST_WAIT;
        let mut done = Vec::new();
        while !self.in_flight.is_empty() && self.clock.now() < deadline {
            let exchanged = self.exchange(self.clock.now(), &mut Vec::new(), &mut done);
            for done in done.drain(..) {
                self.cache.complete(&self.volume, recorder, self.clock.now(), done);
            }
            if exchanged.is_ok() && !self.in_flight.is_empty() {
                self.wait(Some(Duration::from_millis(100)));
            }
        }
        self.cache.abandon(&self.volume);
        if !self.in_flight.is_empty() {
            tracing::error!(volume = self.volume.name(), "the store did not finish");
            // The kernel may still access its frames; they must stay in place.
            std::mem::forget(self.store);
        }
    }
}

#[cfg(test)]
mod tests;
