//! Several ways of doing the same work, played by turns: one trial of each, then one more of each.
//!
//! What changes on the machine while it is measured then changes for all of them, and not for the
//! one that came last. Each way from each start is a run of its own, so that two of them can be
//! compared like any two runs.
//!
//! Invariants: in every other round the ways go in the opposite order, so that none always follows
//! the same; all of them have a run with at least one trial, or there is no result; what the ways
//! made is removed however it ends, the last one first.

use super::error::BenchError;
use super::host_env::HostEnv;
use super::repeat::Plan;
use super::trial_runner::{Progress, Step, TrialRunner, look_at_room};
use super::workload::Workload;
use larder_report::run::Run;
use larder_report::run::trial::Start;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;

/// One way of doing the work.
pub struct TrialVariant<'a> {
    /// The work, done in this way.
    pub workload: &'a mut dyn Workload,
    /// The machine as this way sees it.
    pub surroundings: &'a dyn HostEnv,
}

impl std::fmt::Debug for TrialVariant<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Way").field("workload", &self.workload.name()).finish_non_exhaustive()
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct TurnsProgress {
    /// The way at hand, from 0.
    pub way: usize,
    /// From where its trials start at the moment.
    pub start: Start,
    /// Trials of all ways and starts that are done.
    pub done: u64,
    /// How far the player is with those of this way from this start.
    pub progress: Progress,
}

/// What came out.
#[derive(Debug)]
pub struct AlternatingTrials {
    /// A run for each way from each start: those of the first way first.
    pub runs: Vec<Run>,
    /// Somebody stopped it before it was done.
    pub stopped: bool,
}

/// One way from one start.
struct Cell<'a> {
    way: usize,
    start: Start,
    player: TrialRunner<'a>,
}

/// Plays all ways from all starts by turns. How often, for how long and with which seed the plan
/// says; its own start is passed over. Of the time that may be spent all have what is left.
///
/// # Errors
/// The first error of a way or the machine, or a stop before each had a trial that counts.
///
/// # Panics
/// Without ways or starts.
pub fn play_by_turns(
    ways: &mut [TrialVariant<'_>],
    starts: &[Start],
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(TurnsProgress),
) -> Result<AlternatingTrials, BenchError> {
    assert!(!ways.is_empty() && !starts.is_empty(), "something is measured");
    let plans: Vec<Plan> =
        starts.iter().map(|start| Plan { start: *start, ..plan.clone() }).collect();
    let mut cells = Vec::new();
    for (number, way) in ways.iter().enumerate() {
        look_at_room(way.workload, way.surroundings)?;
        for plan in &plans {
            let player = TrialRunner::new(way.workload, plan, way.surroundings, stop);
            cells.push(Cell { way: number, start: plan.start, player });
        }
    }
    // A panic goes on upwards, but leaves no files behind.
    let ended = catch_unwind(AssertUnwindSafe(|| rounds(&mut cells, ways, starts.len(), watch)));
    report(&cells, 0, watch, Step::CleaningUp);
    let cleaned =
        ways.iter_mut().rev().map(|way| way.workload.clean_up()).fold(Ok(()), Result::and);
    let ended = ended.unwrap_or_else(|panic| resume_unwind(panic));
    let stopped = BenchError::first_of(ended, cleaned)?;
    Ok(AlternatingTrials {
        runs: cells.into_iter().map(|cell| cell.player.finish(stopped)).collect(),
        stopped,
    })
}

/// All rounds; whether it was stopped after each had a trial.
fn rounds(
    cells: &mut [Cell<'_>],
    ways: &mut [TrialVariant<'_>],
    starts: usize,
    watch: &mut dyn FnMut(TurnsProgress),
) -> Result<bool, BenchError> {
    for (number, way) in ways.iter_mut().enumerate() {
        let first = &cells[number * starts];
        let mut shown = |progress| {
            watch(TurnsProgress { way: number, start: first.start, done: 0, progress });
        };
        first.player.prepare(way.workload, &mut shown)?;
    }
    for cell in &mut *cells {
        cell.player.begin();
    }
    let mut order: Vec<usize> = (0..ways.len()).collect();
    loop {
        let mut played = false;
        for &way in &order {
            for number in way * starts..(way + 1) * starts {
                if !cells[number].player.goes_on()? {
                    continue;
                }
                played = true;
                match trial(cells, number, ways, watch) {
                    Ok(()) => {}
                    Err(error) if error.is_stop() => {
                        let all = cells.iter().all(|cell| cell.player.done() > 0);
                        return if all { Ok(true) } else { Err(error) };
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if !played {
            return Ok(false);
        }
        order.reverse();
    }
}

fn trial(
    cells: &mut [Cell<'_>],
    number: usize,
    ways: &mut [TrialVariant<'_>],
    watch: &mut dyn FnMut(TurnsProgress),
) -> Result<(), BenchError> {
    let done = done(cells);
    let Cell { way, start, player } = &mut cells[number];
    let mut shown = |progress| watch(TurnsProgress { way: *way, start: *start, done, progress });
    player.trial(ways[*way].workload, &mut shown)
}

fn done(cells: &[Cell<'_>]) -> u64 {
    cells.iter().map(|cell| cell.player.done() as u64).sum()
}

/// Says what is being done, which has no way of its own.
fn report(cells: &[Cell<'_>], way: usize, watch: &mut dyn FnMut(TurnsProgress), step: Step) {
    let (cell, done) = (&cells[way], done(cells));
    let mut shown =
        |progress| watch(TurnsProgress { way: cell.way, start: cell.start, done, progress });
    cell.player.report(&mut shown, step);
}

#[cfg(test)]
mod tests;
