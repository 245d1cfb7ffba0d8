//! The thread that drives a volume's store: it asks the cache what to do, gives that to the store,
//! and brings back what is done.
//!
//! A panic of the store ends only its volume: its operations in flight, and all later ones,
//! complete with an error. A panic of the cache ends the process.

mod failures;
mod stall_detection;

use super::{ArenaCache, ArenaVolume};
use crate::fault::{self, Panicked, Thread, confine};
use crate::frames::ArenaFrames;
use crate::store::{EngineStore, PeerControl};
use crate::waker::Waker;
use failures::{WriteFailures, WriteState};
use larder_core::clock::{Clock, Nanos, SECOND};
use larder_core::completion::Notify;
use larder_core::counters::Recorder;
use larder_core::store::{StoreDone, StoreError, StoreErrorKind, StoreOp, StoreOpKind};
use stall_detection::{STALL, Silence};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Operations that a store has at a time.
const DEPTH: usize = 128;
/// How long the end of a thread waits for what its store is doing.
const LAST_WAIT: Nanos = 10 * SECOND;

/// A running thread for one volume.
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
        let run = Run::new(Arc::clone(&cache), Arc::clone(&volume), clock, waker.clone(), store);
        let (quit, given_up) = (Arc::clone(&run.quit), Arc::clone(&run.given_up));
        let name = format!("store {}", volume.name());
        let work = || {
            crate::reclaim::reserve_stack();
            crate::time_slice::shorten();
            run.run();
        };
        // Panics of the store are handled inside. After a panic of the cache, its half-changed
        // state must not reach a store, and clients would wait for ever for this thread.
        let thread =
            fault::spawn::<()>(name, None, work, move |panic| fault::end_process(&cache, panic))?;
        Ok(Driver { volume, quit, given_up, waker, control, thread: Some(thread) })
    }

    /// Makes the thread discard the cache's writes from now on, instead of passing them to the
    /// store, and ends its waits for a server.
    pub(super) fn give_up(&self) {
        // First, so that a thread that discards writes also ends what is in flight.
        if let Some(control) = &self.control {
            control.end();
        }
        self.given_up.store(true, Ordering::Release);
        self.waker.notify();
    }

    /// Returns whether all of the volume is stable on a server, as far as its answers say: a stop
    /// need not ask it again.
    pub(super) fn is_stable_on_server(&self) -> bool {
        self.control
            .as_ref()
            .is_some_and(|control| self.volume.unclean_bytes() == 0 && !control.has_unflushed())
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Ends the thread; what is not written is lost. It waits for a server only for changes.
    pub(super) fn quit(&mut self) {
        self.quit.store(true, Ordering::Release);
        if let Some(control) = &self.control
            && !control.has_unflushed()
        {
            control.end();
        }
        self.waker.notify();
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

/// An operation in flight at the store, kept to complete it if the store never does.
#[derive(Clone, Copy, Debug)]
struct Taken {
    tag: u64,
    kind: StoreOpKind,
    offset: u64,
    len: u64,
    queued_at: Nanos,
}

impl Taken {
    fn of(op: &StoreOp<ArenaFrames>) -> Self {
        let StoreOp { tag, kind, offset, len, queued_at, .. } = *op;
        Taken { tag, kind, offset, len, queued_at }
    }

    /// Returns the operation without its memory, which stays with the store for ever.
    fn without_memory(self) -> StoreOp<ArenaFrames> {
        let Taken { tag, kind, offset, len, queued_at } = self;
        StoreOp { tag, kind, offset, len, segments: Vec::new(), queued_at }
    }
}

struct Run {
    cache: Arc<ArenaCache>,
    volume: Arc<ArenaVolume>,
    clock: Arc<dyn Clock>,
    waker: Waker,
    quit: Arc<AtomicBool>,
    given_up: Arc<AtomicBool>,
    /// None after the store has panicked.
    store: Option<Box<dyn EngineStore>>,
    /// A panic of the store during the last wait.
    panicked: Option<Panicked>,
    taken: Vec<Taken>,
    silence: Silence,
    failures: WriteFailures,
}

impl Run {
    fn new(
        cache: Arc<ArenaCache>,
        volume: Arc<ArenaVolume>,
        clock: Arc<dyn Clock>,
        waker: Waker,
        store: Box<dyn EngineStore>,
    ) -> Self {
        Run {
            cache,
            volume,
            clock,
            waker,
            quit: Arc::default(),
            given_up: Arc::default(),
            store: Some(store),
            panicked: None,
            taken: Vec::new(),
            silence: Silence::default(),
            failures: WriteFailures::default(),
        }
    }

    fn run(mut self) {
        let recorder = self.cache.recorder(&self.volume);
        let (mut ops, mut done) = (Vec::new(), Vec::new());
        while !self.quit.load(Ordering::Acquire) {
            let now = self.clock.now();
            let next = self.cache.poll(&self.volume, &recorder, now, DEPTH, &mut ops);
            let panicked = self.exchange(now, &mut ops, &mut done);
            let answered = !done.is_empty();
            if let Some(silent) = self.silence.note_progress(now, self.taken.len(), answered) {
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
            let stall_check = (!self.taken.is_empty()).then_some(STALL);
            let next = next.into_iter().chain(self.failures.due()).min();
            let timeout = match (next.map(|at| at.saturating_sub(now)), stall_check) {
                (Some(next), Some(check)) => Some(next.min(check)),
                (one, other) => one.or(other),
            };
            self.wait(timeout.map(Duration::from_nanos));
        }
        self.end(&recorder);
    }

    /// Logs that writes to the store begin or cease to fail, and that clients' writes begin to.
    fn log_failures(&mut self, now: Nanos) {
        let volume = &self.volume;
        // The log has the panic of the store of a broken volume, and what was given up.
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
                "failed to {error}; the data stays in memory, and writing is tried again"
            ),
            WriteState::Refusing(error) => tracing::warn!(
                volume,
                unwritten_bytes,
                "the dirty limit is reached, and new writes fail until data can be written: \
                 failed to {error}"
            ),
        }
    }

    /// Submits the cache's operations to the store, and collects completions. Operations complete
    /// at once if the store is gone, or if the volume is given up and nothing is to be written.
    /// Returns the panic of the store, if there was one.
    fn exchange(
        &mut self,
        now: Nanos,
        ops: &mut Vec<StoreOp<ArenaFrames>>,
        done: &mut Vec<StoreDone<ArenaFrames>>,
    ) -> Result<(), Panicked> {
        // Taken one by one from the end, so that after a panic the remaining ones keep their
        // memory.
        ops.reverse();
        let is_given_up = self.given_up.load(Ordering::Acquire);
        let (taken, clock, frames) = (&mut self.taken, &*self.clock, self.cache.frames());
        let waited = self.panicked.take().map_or(Ok(()), Err);
        let exchanged = waited.and_then(|()| {
            let Some(store) = &mut self.store else { return Ok(()) };
            confine(|| {
                while !is_given_up && let Some(op) = ops.pop() {
                    taken.push(Taken::of(&op));
                    fault::point("store", self.volume.name());
                    store.submit(now, frames, op);
                }
                store.reap(clock.now(), frames, done);
            })
        });
        for done in &*done {
            let taken = self.taken.iter().position(|taken| taken.tag == done.op.tag);
            self.taken.swap_remove(taken.expect("the store does what it was given"));
        }
        if let Err(panic) = &exchanged {
            self.lose_store(panic, now, done);
        }
        while let Some(op) = ops.pop() {
            let result = self.without_store(op.kind, is_given_up);
            done.push(StoreDone { op, result, started_at: now, finished_at: now });
        }
        exchanged
    }

    /// Returns the result of an operation that is not passed to a store.
    fn without_store(&self, kind: StoreOpKind, is_given_up: bool) -> Result<(), StoreError> {
        if is_given_up && kind != StoreOpKind::Read {
            return Ok(());
        }
        Err(self.volume.broken().cloned().unwrap_or_else(|| {
            let message = format!("use {}: its data was given up", self.volume.name());
            StoreError::new(StoreErrorKind::Gone, message)
        }))
    }

    /// Handles a panic of the store: it gets no more operations, and those in flight fail.
    fn lose_store(&mut self, panic: &Panicked, now: Nanos, done: &mut Vec<StoreDone<ArenaFrames>>) {
        let message = format!("use {}: {panic}", self.volume.name());
        let error = StoreError::new(StoreErrorKind::Gone, message);
        // The kernel may still access the frames; they must stay in place.
        std::mem::forget(self.store.take());
        self.cache.break_volume(&self.volume, error.clone());
        for taken in self.taken.drain(..) {
            let (op, result) = (taken.without_memory(), Err(error.clone()));
            done.push(StoreDone { op, result, started_at: now, finished_at: now });
        }
    }

    /// Sleeps until there is work.
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
            // Handled at the next exchange.
            Err(panic) => self.panicked = Some(panic),
        }
    }

    /// Lets the store finish what it has begun, and gives up the rest.
    fn end(mut self, recorder: &Recorder) {
        let deadline = self.clock.now() + LAST_WAIT;
        let mut done = Vec::new();
        while !self.taken.is_empty() && self.clock.now() < deadline {
            let exchanged = self.exchange(self.clock.now(), &mut Vec::new(), &mut done);
            for done in done.drain(..) {
                self.cache.complete(&self.volume, recorder, self.clock.now(), done);
            }
            if exchanged.is_ok() && !self.taken.is_empty() {
                self.wait(Some(Duration::from_millis(100)));
            }
        }
        self.cache.abandon(&self.volume);
        if !self.taken.is_empty() {
            tracing::error!(volume = self.volume.name(), "the store did not finish");
            // Its frames are in the kernel's hands; they must stay where they are.
            std::mem::forget(self.store);
        }
    }
}

#[cfg(test)]
mod tests;
