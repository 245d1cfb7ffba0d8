//! The threads of a trial: all of them go through the same phases, and none begins a phase before
//! all have ended the one before, in this rank and in all others.
//!
//! Invariants: a phase lasts from the time when the first thread begins it to the time when the
//! last one ends it; the first error or panic ends all threads, and no thread waits for one that
//! has ended.

use super::barrier::BreakableBarrier;
use super::error::BenchError;
use super::workload::TrialContext;
use larder_core::clock::Nanos;
use larder_schema::run::trial::Phase;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The worker and phase of one call of a step.
#[derive(Clone, Copy, Debug)]
pub struct PhaseContext<'a> {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Number of the phase, from 0.
    pub phase: usize,
    /// Name of the phase.
    pub name: &'a str,
    /// Time at which this worker began the phase, on the clock of the trial context.
    pub begun_at: Nanos,
}

/// Result of a worker: begin and end of each phase, and its error if it ended early. A worker that
/// ended because of another one has no error of its own.
struct WorkerResult {
    times: Vec<(Nanos, Nanos)>,
    error: Option<BenchError>,
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
    assert!(!workers.is_empty(), "a crew has workers");
    let barrier = BreakableBarrier::new(workers.len());
    let (barrier, step) = (&barrier, &step);
    let result: Vec<WorkerResult> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(number, worker)| {
                scope.spawn(move || run_phases(context, phases, number, worker, barrier, step))
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("panics are caught"));
        results.collect()
    });
    let mut times = Vec::with_capacity(result.len());
    for one in result {
        if let Some(error) = one.error {
            return Err(error);
        }
        times.push(one.times);
    }
    let phase = |(number, name): (usize, &&str)| {
        let begun = times.iter().filter_map(|times| Some(times.get(number)?.0)).min();
        let ended = times.iter().filter_map(|times| Some(times.get(number)?.1)).max();
        let duration_ns = ended.unwrap_or(0).saturating_sub(begun.unwrap_or(0));
        Phase { name: (*name).to_owned(), duration_ns }
    };
    Ok(phases.iter().enumerate().map(phase).collect())
}

fn run_phases<W>(
    context: &TrialContext<'_>,
    phases: &[&str],
    number: usize,
    worker: &mut W,
    barrier: &BreakableBarrier,
    step: &(impl Fn(&mut W, PhaseContext<'_>) -> Result<(), BenchError> + Sync),
) -> WorkerResult {
    let mut result = WorkerResult { times: Vec::with_capacity(phases.len()), error: None };
    for (phase, name) in phases.iter().enumerate() {
        if !barrier.wait() {
            return result;
        }
        if context.has_ranks() {
            // One thread waits for the other ranks, and the others of this rank wait for it.
            if number == 0
                && let Err(error) = context.wait_at_barrier(name)
            {
                result.error = Some(error);
                barrier.abort();
                return result;
            }
            if !barrier.wait() {
                return result;
            }
        }
        let begun_at = context.now();
        let current = PhaseContext { worker: number, phase, name, begun_at };
        // The worker is not used again after a panic.
        let step_result = catch_unwind(AssertUnwindSafe(|| step(worker, current)));
        result.times.push((begun_at, context.now()));
        let error = match step_result {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => BenchError::Panicked { worker: number, phase: (*name).to_owned() },
        };
        result.error = Some(error);
        barrier.abort();
        return result;
    }
    result
}
