//! A run: the parts of a workload one after the other, and in each part the trials of all variants
//! and starts, alternating.
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
use super::trial_runner::{OnStep, Progress, Step, TrialRunner};
use super::workload::Workload;
use larder_schema::format;
use larder_schema::run::Run;
use larder_schema::run::trial::Start;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;

/// A variant of the work.
#[expect(missing_debug_implementations, reason = "a workload has none")]
pub struct Variant<'a> {
    /// The work, done in this variant.
    pub workload: &'a mut dyn Workload,
    /// The machine as this variant sees it.
    pub host: &'a dyn HostEnv,
}

/// A run that has ended with a result.
#[derive(Debug)]
pub struct RunResult {
    /// The run, with at least one trial.
    pub run: Run,
    /// True if a stop request ended the run before all trials were done.
    pub stopped: bool,
}

/// Result of alternating trials.
#[derive(Debug)]
pub struct AlternatingTrials {
    /// A run for each variant from each start: those of the first variant first.
    pub runs: Vec<Run>,
    /// True if a stop request ended the trials before all were done.
    pub stopped: bool,
}

/// Runs a workload. Checks `stop` continuously, and reports to `on_progress`. If there are other
/// ranks, all of them begin each trial and each phase at the same time, and the sums over all ranks
/// decide the number of trials. Parts share the time of the plan equally.
///
/// # Errors
/// There is no result: the first error of the workload or the machine, a start that cannot be
/// reached, or a stop before the first trial was done. The files of the workload have been removed,
/// or the error says that they have not.
pub fn run_trials(
    workload: &mut dyn Workload,
    plan: &Plan,
    host: &dyn HostEnv,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, BenchError> {
    let mut variants = [Variant { workload, host }];
    let AlternatingTrials { runs, stopped } =
        alternate(&mut variants, &[plan.start], plan, stop, on_progress)?;
    Ok(RunResult { run: runs.into_iter().next().expect("one variant from one start"), stopped })
}

/// Runs alternating trials of all variants from all starts. `plan` gives their number, time and
/// seed; its own start is not used. All runs share the time of the plan.
///
/// # Errors
/// The first error of a variant or the machine, or a stop before each had a trial that counts.
///
/// # Panics
/// Without variants or starts.
pub fn alternate(
    variants: &mut [Variant<'_>],
    starts: &[Start],
    plan: &Plan,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<AlternatingTrials, BenchError> {
    assert!(!variants.is_empty() && !starts.is_empty(), "something is measured");
    let parts = variants[0].workload.parts().len();
    let budget = plan.budget.map(|budget| budget / parts as u64);
    let plans: Vec<Plan> =
        starts.iter().map(|start| Plan { start: *start, budget, ..plan.clone() }).collect();
    select_part(variants, 0)?;
    // A panic is a broken invariant and propagates, but leaves no files behind.
    let result = catch_unwind(AssertUnwindSafe(|| {
        run_parts(parts, &plans, stop, variants, &mut *on_progress)
    }));
    let clean_ups = variants.iter_mut().rev().map(|variant| variant.workload.clean_up());
    let cleaned = clean_ups.fold(Ok(()), Result::and);
    BenchError::first_of(result.unwrap_or_else(|panic| resume_unwind(panic)), cleaned)
}

/// Selects a part in all variants, and checks that there is enough free space for it.
fn select_part(variants: &mut [Variant<'_>], part: usize) -> Result<(), BenchError> {
    for Variant { workload, host } in variants {
        workload.select_part(part)?;
        for space in workload.space() {
            let free = host.free_bytes(&space.directory)?;
            if free < space.bytes {
                let [needs, free] = [space.bytes, free].map(format::bytes);
                let directory = space.directory.display();
                let full = format!("run in {directory}: it needs {needs} and {free} are free");
                return Err(BenchError::Failed(full));
            }
        }
    }
    Ok(())
}

/// Runs all parts, the first of which is selected. A stop after the first part keeps the results so
/// far.
fn run_parts(
    parts: usize,
    plans: &[Plan],
    stop: &AtomicBool,
    variants: &mut [Variant<'_>],
    on_progress: &mut dyn FnMut(Progress),
) -> Result<AlternatingTrials, BenchError> {
    let mut sum = Part { number: 0, plans, stop, variants, on_progress }.run()?;
    for number in 1..parts {
        if sum.stopped {
            break;
        }
        select_part(variants, number)?;
        match (Part { number, plans, stop, variants, on_progress }).run() {
            Err(error) if error.is_stop() => sum.stopped = true,
            result => {
                let AlternatingTrials { runs, stopped } = result?;
                sum.runs
                    .iter_mut()
                    .zip(runs)
                    .for_each(|(sum, run)| larder_report::run::join(sum, run));
                sum.stopped = stopped;
            }
        }
    }
    Ok(sum)
}

/// One part of a run.
struct Part<'a, 'w> {
    number: usize,
    /// A plan for each start.
    plans: &'a [Plan],
    stop: &'a AtomicBool,
    variants: &'a mut [Variant<'w>],
    on_progress: &'a mut dyn FnMut(Progress),
}

impl Part<'_, '_> {
    /// Runs the trials of all variants from all starts.
    fn run(mut self) -> Result<AlternatingTrials, BenchError> {
        let mut runners = Vec::new();
        for Variant { workload, host } in &*self.variants {
            for plan in self.plans {
                runners.push(TrialRunner::new(&**workload, plan, *host, self.stop));
            }
        }
        let result = self.run_rounds(&mut runners);
        self.on_runner(&mut runners, 0, |runner, _, on_step| {
            on_step(runner, Step::CleaningUp);
            Ok(())
        })?;
        let stopped = result?;
        let runs = runners.into_iter().map(|runner| runner.finish(stopped)).collect();
        Ok(AlternatingTrials { runs, stopped })
    }

    /// Runs all rounds. Returns true if a stop ended them after each runner had a trial.
    fn run_rounds(&mut self, runners: &mut [TrialRunner<'_>]) -> Result<bool, BenchError> {
        let starts = self.plans.len();
        for variant in 0..self.variants.len() {
            self.on_runner(runners, variant * starts, |runner, workload, on_step| {
                runner.prepare(workload, on_step)
            })?;
        }
        runners.iter_mut().for_each(TrialRunner::begin);
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        loop {
            let mut ran_trial = false;
            for number in order.iter().flat_map(|variant| variant * starts..(variant + 1) * starts)
            {
                if !runners[number].needs_trial()? {
                    continue;
                }
                ran_trial = true;
                let result = self.on_runner(runners, number, |runner, workload, on_step| {
                    runner.trial(workload, on_step)
                });
                match result {
                    Err(error)
                        if error.is_stop() && runners.iter().all(|runner| runner.done() > 0) =>
                    {
                        return Ok(true);
                    }
                    result => result?,
                }
            }
            if !ran_trial {
                return Ok(false);
            }
            order.reverse();
        }
    }

    /// Calls `work` with a runner and its workload, and reports the steps.
    fn on_runner<'r>(
        &mut self,
        runners: &mut [TrialRunner<'r>],
        number: usize,
        work: impl FnOnce(
            &mut TrialRunner<'r>,
            &mut dyn Workload,
            &mut OnStep<'_>,
        ) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let done = runners.iter().map(TrialRunner::done).sum();
        let (variant, part) = (number / self.plans.len(), self.number);
        let mut on_step = |runner: &TrialRunner<'_>, step| {
            (self.on_progress)(Progress { variant, part, done, ..runner.progress(step) });
        };
        work(&mut runners[number], self.variants[variant].workload, &mut on_step)
    }
}

#[cfg(test)]
mod tests;
