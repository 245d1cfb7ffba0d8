//! Alternating trials of several variants of the same work: one trial of each, then one more of
//! each.
//!
//! A change of the machine during the measurement then affects all variants, and not only the last
//! one. Each variant from each start is a run of its own, so that two of them can be compared like
//! any two runs.
//!
//! Invariants: every other round runs the variants in the opposite order, so that none always
//! follows the same one; all of them have a run with at least one trial, or there is no result;
//! however it ends, what the variants made is removed, that of the last one first.

use super::error::BenchError;
use super::host_env::HostEnv;
use super::repeat::Plan;
use super::trial_runner::{Progress, Step, TrialRunner, check_space};
use super::workload::Workload;
use larder_schema::run::Run;
use larder_schema::run::trial::Start;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;

/// A variant of the work.
pub struct TrialVariant<'a> {
    /// The work, done in this variant.
    pub workload: &'a mut dyn Workload,
    /// The machine as this variant sees it.
    pub surroundings: &'a dyn HostEnv,
}

impl std::fmt::Debug for TrialVariant<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Way").field("workload", &self.workload.name()).finish_non_exhaustive()
    }
}

/// Progress of alternating trials.
#[derive(Clone, Copy, Debug)]
pub struct TurnsProgress {
    /// The current variant, from 0.
    pub way: usize,
    /// The start of its current trials.
    pub start: Start,
    /// Trials of all variants and starts that are done.
    pub done: u64,
    /// Progress of this variant from this start.
    pub progress: Progress,
}

/// Result of alternating trials.
#[derive(Debug)]
pub struct AlternatingTrials {
    /// A run for each variant from each start: those of the first variant first.
    pub runs: Vec<Run>,
    /// True if a stop request ended the trials before all were done.
    pub stopped: bool,
}

/// One variant from one start.
struct Cell<'a> {
    variant: usize,
    start: Start,
    runner: TrialRunner<'a>,
}

/// Runs alternating trials of all variants from all starts. `plan` gives their number, time and
/// seed; its own start is not used. All runs share the time of the plan.
///
/// # Errors
/// The first error of a variant or the machine, or a stop before each had a trial that counts.
///
/// # Panics
/// Without variants or starts.
pub fn play_by_turns(
    variants: &mut [TrialVariant<'_>],
    starts: &[Start],
    plan: &Plan,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(TurnsProgress),
) -> Result<AlternatingTrials, BenchError> {
    assert!(!variants.is_empty() && !starts.is_empty(), "something is measured");
    let plans: Vec<Plan> =
        starts.iter().map(|start| Plan { start: *start, ..plan.clone() }).collect();
    let mut cells = Vec::new();
    for (number, variant) in variants.iter().enumerate() {
        check_space(variant.workload, variant.surroundings)?;
        for plan in &plans {
            let runner = TrialRunner::new(variant.workload, plan, variant.surroundings, stop);
            cells.push(Cell { variant: number, start: plan.start, runner });
        }
    }
    // A panic propagates, but leaves no files behind.
    let result = catch_unwind(AssertUnwindSafe(|| {
        run_rounds(&mut cells, variants, starts.len(), on_progress)
    }));
    report(&cells, 0, on_progress, Step::CleaningUp);
    let cleaned = variants
        .iter_mut()
        .rev()
        .map(|variant| variant.workload.clean_up())
        .fold(Ok(()), Result::and);
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    let stopped = BenchError::first_of(result, cleaned)?;
    Ok(AlternatingTrials {
        runs: cells.into_iter().map(|cell| cell.runner.finish(stopped)).collect(),
        stopped,
    })
}

/// Runs all rounds. Returns true if a stop ended them after each cell had a trial.
fn run_rounds(
    cells: &mut [Cell<'_>],
    variants: &mut [TrialVariant<'_>],
    starts: usize,
    on_progress: &mut dyn FnMut(TurnsProgress),
) -> Result<bool, BenchError> {
    for (number, variant) in variants.iter_mut().enumerate() {
        let first = &cells[number * starts];
        let mut report_step = |progress| {
            on_progress(TurnsProgress { way: number, start: first.start, done: 0, progress });
        };
        first.runner.prepare(variant.workload, &mut report_step)?;
    }
    for cell in &mut *cells {
        cell.runner.begin();
    }
    let mut order: Vec<usize> = (0..variants.len()).collect();
    loop {
        let mut ran_trial = false;
        for &variant in &order {
            for number in variant * starts..(variant + 1) * starts {
                if !cells[number].runner.needs_trial()? {
                    continue;
                }
                ran_trial = true;
                match trial(cells, number, variants, on_progress) {
                    Ok(()) => {}
                    Err(error) if error.is_stop() => {
                        let all = cells.iter().all(|cell| cell.runner.done() > 0);
                        return if all { Ok(true) } else { Err(error) };
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if !ran_trial {
            return Ok(false);
        }
        order.reverse();
    }
}

fn trial(
    cells: &mut [Cell<'_>],
    number: usize,
    variants: &mut [TrialVariant<'_>],
    on_progress: &mut dyn FnMut(TurnsProgress),
) -> Result<(), BenchError> {
    let done = done(cells);
    let Cell { variant, start, runner } = &mut cells[number];
    let mut report_step =
        |progress| on_progress(TurnsProgress { way: *variant, start: *start, done, progress });
    runner.trial(variants[*variant].workload, &mut report_step)
}

fn done(cells: &[Cell<'_>]) -> u64 {
    cells.iter().map(|cell| cell.runner.done() as u64).sum()
}

/// Reports a step that belongs to no single variant.
fn report(
    cells: &[Cell<'_>],
    variant: usize,
    on_progress: &mut dyn FnMut(TurnsProgress),
    step: Step,
) {
    let (cell, done) = (&cells[variant], done(cells));
    let mut report_step = |progress| {
        on_progress(TurnsProgress { way: cell.variant, start: cell.start, done, progress });
    };
    cell.runner.report(&mut report_step, step);
}

#[cfg(test)]
mod tests;
