//! The threads of a trial: all of them go through the same phases, and none begins a phase before
//! all have ended the one before, in this rank and in all others.
//!
//! Invariants: a phase lasts from the time when the first thread begins it to the time when the
//! last one ends it; the first error or panic ends all threads, and no thread waits for one that
//! has ended.

use super::error::BenchError;
use super::workload::TrialContext;
use larder_core::clock::Nanos;
use larder_schema::run::trial::Phase;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The worker and phase of one call of a step.
#[derive(Clone, Copy, Debug)]
pub struct PhaseContext<'a> {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Number of the phase, from 0.
    pub phase: usize,
    /// Time at which this worker began the phase, on the clock of the trial context.
    pub begun_at: Nanos,
    barrier: &'a BreakableBarrier,
}

impl PhaseContext<'_> {
    /// Returns an error if another worker has failed, for workers whose phases take long.
    ///
    /// # Errors
    /// [`BenchError::Stopped`], which does not count as the reason for the end.
    pub fn check_others(&self) -> Result<(), BenchError> {
        self.barrier.check()
    }
}

/// Runs the phases with one thread for each worker, and returns the duration of each phase. Workers
/// keep their other results themselves.
///
/// # Errors
/// The first error of any worker, by number; a panic is an error.
pub fn run<W: Send>(
    context: &TrialContext<'_>,
    phases: &[&str],
    workers: &mut [W],
    step: impl Fn(&mut W, PhaseContext<'_>) -> Result<(), BenchError> + Sync,
) -> Result<Vec<Phase>, BenchError> {
    assert!(!workers.is_empty(), "a pool has workers");
    let barrier = BreakableBarrier::new(workers.len());
    let (barrier, step) = (&barrier, &step);
    let results = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(workers.len());
        for (number, worker) in workers.iter_mut().enumerate() {
            let work = move || {
                let result = run_phases(context, phases, number, worker, barrier, step);
                if result.is_err() {
                    barrier.abort();
                }
                result
            };
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    barrier.abort();
                    return vec![Err(BenchError::io(format!("start thread {number}"))(error))];
                }
            }
        }
        let results = threads.into_iter().map(|thread| thread.join().expect("panics are caught"));
        results.collect::<Vec<_>>()
    });
    let (mut times, mut stopped) = (Vec::with_capacity(results.len()), None);
    for result in results {
        match result {
            Ok(one) => times.push(one),
            // The worker may have ended because another one failed.
            Err(error) if error.is_stop() => stopped = Some(error),
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = stopped {
        return Err(error);
    }
    let phase = |(number, name): (usize, &&str)| {
        let begun = times.iter().map(|times| times[number].0).min();
        let ended = times.iter().map(|times| times[number].1).max();
        let duration_ns = ended.unwrap_or(0).saturating_sub(begun.unwrap_or(0));
        Phase { name: (*name).to_owned(), duration_ns }
    };
    Ok(phases.iter().enumerate().map(phase).collect())
}

/// Runs the phases of one worker. Returns begin and end of each.
fn run_phases<W>(
    context: &TrialContext<'_>,
    phases: &[&str],
    number: usize,
    worker: &mut W,
    barrier: &BreakableBarrier,
    step: &(impl Fn(&mut W, PhaseContext<'_>) -> Result<(), BenchError> + Sync),
) -> Result<Vec<(Nanos, Nanos)>, BenchError> {
    let mut times = Vec::with_capacity(phases.len());
    for (phase, name) in phases.iter().enumerate() {
        barrier.wait()?;
        if context.has_ranks() {
            // One thread waits for the other ranks, and the others of this rank wait for it.
            if number == 0 {
                context.wait_at_barrier(name)?;
            }
            barrier.wait()?;
        }
        let begun_at = context.now();
        let current = PhaseContext { worker: number, phase, begun_at, barrier };
        // The worker is not used again after a panic.
        let result = catch_unwind(AssertUnwindSafe(|| step(worker, current)));
        times.push((begun_at, context.now()));
        let panicked =
            |_| BenchError::Failed(format!("go on: thread {number} panicked in phase \"{name}\""));
        result.map_err(panicked)??;
    }
    Ok(times)
}

/// Releases all threads together, repeatedly, until it is aborted: when one thread fails, the
/// others must not wait for it forever.
#[derive(Debug)]
struct BreakableBarrier {
    threads: usize,
    state: Mutex<BarrierState>,
    opened: Condvar,
    /// Set while the state is locked, so that no waiting thread misses it.
    is_broken: AtomicBool,
}

#[derive(Debug, Default)]
struct BarrierState {
    waiting: usize,
    /// Number of times that it has opened.
    rounds: u64,
}

impl BreakableBarrier {
    fn new(threads: usize) -> Self {
        let (state, opened, is_broken) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        BreakableBarrier { threads, state, opened, is_broken }
    }

    fn lock(&self) -> MutexGuard<'_, BarrierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error if the barrier is aborted and the threads must end.
    fn check(&self) -> Result<(), BenchError> {
        if self.is_broken.load(Ordering::Relaxed) { Err(BenchError::Stopped) } else { Ok(()) }
    }

    /// Waits for all threads, or until the barrier is aborted, which is an error.
    fn wait(&self) -> Result<(), BenchError> {
        let mut state = self.lock();
        state.waiting += 1;
        if state.waiting == self.threads {
            state.waiting = 0;
            state.rounds += 1;
            self.opened.notify_all();
            return self.check();
        }
        let round = state.rounds;
        while state.rounds == round {
            self.check()?;
            state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.check()
    }

    fn abort(&self) {
        let _locked = self.lock();
        self.is_broken.store(true, Ordering::Relaxed);
        self.opened.notify_all();
    }
}
