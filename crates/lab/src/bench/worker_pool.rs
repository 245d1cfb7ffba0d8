//! The threads of a trial: all of them go through the same phases, and none begins a phase before
//! all have ended the one before, in this rank and in all others.
//!
//! Invariants: a phase takes from the moment when the first thread begins it to the one when the
//! last is done with it; the first error, or a panic, ends the crew, and no thread waits for one
//! that is gone.

use super::barrier::BreakableBarrier;
use super::error::BenchError;
use super::workload::TrialContext;
use larder_core::clock::Nanos;
use larder_report::run::trial::Phase;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a worker is told about where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Number of the phase, from 0.
    pub phase: usize,
    /// Its name.
    pub name: &'a str,
    /// When this worker began the phase, nanoseconds of the stage's clock.
    pub begun_at: Nanos,
}

/// What a worker did: when each of its phases began and ended, or why it ended early. A worker that
/// ended because another one did has no error of its own.
struct Done {
    times: Vec<(Nanos, Nanos)>,
    failed: Option<BenchError>,
}

/// Runs the phases with one thread for each worker; what each phase took. What a worker learns it
/// keeps for itself.
///
/// # Errors
/// The first error of any worker, by its number; a panic is one.
pub fn run<W: Send>(
    stage: &TrialContext<'_>,
    phases: &[&str],
    workers: &mut [W],
    step: impl Fn(&mut W, Place<'_>) -> Result<(), BenchError> + Sync,
) -> Result<Vec<Phase>, BenchError> {
    assert!(!workers.is_empty(), "a crew has workers");
    let gate = BreakableBarrier::new(workers.len());
    let (gate, step) = (&gate, &step);
    let done: Vec<Done> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(number, worker)| {
                scope.spawn(move || run_phases(stage, phases, number, worker, gate, step))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("panics are caught"));
        joined.collect()
    });
    let mut times = Vec::with_capacity(done.len());
    for one in done {
        if let Some(error) = one.failed {
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
    stage: &TrialContext<'_>,
    phases: &[&str],
    number: usize,
    worker: &mut W,
    gate: &BreakableBarrier,
    step: &(impl Fn(&mut W, Place<'_>) -> Result<(), BenchError> + Sync),
) -> Done {
    let mut done = Done { times: Vec::with_capacity(phases.len()), failed: None };
    for (phase, name) in phases.iter().enumerate() {
        if !gate.wait() {
            return done;
        }
        if stage.is_in_company() {
            // One goes to meet the other ranks, and the rest of this one waits for it.
            if number == 0
                && let Err(error) = stage.wait_at_barrier(name)
            {
                done.failed = Some(error);
                gate.break_up();
                return done;
            }
            if !gate.wait() {
                return done;
            }
        }
        let begun_at = stage.now();
        let place = Place { worker: number, phase, name, begun_at };
        // The worker is not looked at again after a panic.
        let result = catch_unwind(AssertUnwindSafe(|| step(worker, place)));
        done.times.push((begun_at, stage.now()));
        let failed = match result {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => BenchError::Panicked { worker: number, phase: (*name).to_owned() },
        };
        done.failed = Some(failed);
        gate.break_up();
        return done;
    }
    done
}
