//! A measurement in parts: workloads that run one after the other and share their files, so that
//! each of their trials has its own cold or warm start. The result is one run.

use super::error::BenchError;
use super::host_env::HostEnv;
use super::repeat::Plan;
use super::trial_runner::{Progress, RunResult, run_trials};
use super::workload::Workload;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;

/// A measurement in parts.
pub trait InParts {
    /// Returns a one-line description of the measurement.
    fn description(&self) -> String;

    /// Returns the number of parts, at least one.
    fn parts(&self) -> usize;

    /// Returns the part with this number, from 0. Parts leave shared files for
    /// [`InParts::clean_up`].
    fn part(&mut self, number: usize) -> Box<dyn Workload + '_>;

    /// Removes the shared files of the parts. Called once, however the run ends.
    ///
    /// # Errors
    /// Something cannot be removed.
    fn clean_up(&mut self) -> Result<(), BenchError>;
}

/// Progress of a run in parts.
#[derive(Clone, Copy, Debug)]
pub struct PartsProgress {
    /// The current part, counted from 1.
    pub part: usize,
    /// The number of parts.
    pub parts: usize,
    /// Progress of the current part.
    pub progress: Progress,
}

/// Runs all parts, which share the time of the plan equally. A stop after the first trial returns
/// the results so far.
///
/// # Errors
/// The first error of a part, or an error of the cleanup.
pub fn play_parts(
    whole: &mut dyn InParts,
    plan: &Plan,
    host: &dyn HostEnv,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(PartsProgress),
) -> Result<RunResult, BenchError> {
    // A panic propagates, but leaves no files behind.
    let result =
        catch_unwind(AssertUnwindSafe(|| run_each_part(whole, plan, host, stop, on_progress)));
    let clean_up = whole.clean_up();
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    BenchError::first_of(result, clean_up)
}

fn run_each_part(
    whole: &mut dyn InParts,
    plan: &Plan,
    host: &dyn HostEnv,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(PartsProgress),
) -> Result<RunResult, BenchError> {
    let parts = whole.parts();
    assert!(parts > 0, "something is measured");
    let budget = plan.budget.map(|budget| budget / parts as u64);
    let plan = Plan { budget, ..plan.clone() };
    let what = whole.description();
    let mut sum: Option<RunResult> = None;
    for number in 0..parts {
        let mut report_part =
            |progress| on_progress(PartsProgress { part: number + 1, parts, progress });
        let result = run_trials(&mut *whole.part(number), &plan, host, stop, &mut report_part);
        match (&mut sum, result) {
            (None, result) => sum = Some(result?),
            (Some(sum), Err(error)) if error.is_stop() => sum.stopped = true,
            (Some(sum), result) => {
                let result = result?;
                larder_report::run::join(&mut sum.run, result.run);
                sum.stopped = result.stopped;
            }
        }
        if sum.as_ref().is_some_and(|sum| sum.stopped) {
            break;
        }
    }
    let mut sum = sum.expect("at least one part");
    sum.run.what = what;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FakeHost, FakeWorkload, no_stop, rate};
    use super::super::{Outcome, Start};
    use super::*;
    use std::sync::atomic::Ordering;

    /// Parts whose trials report their number. `fails` is the part that fails, if any; `cleaned`
    /// counts the cleanups.
    struct Numbered {
        fails: Option<usize>,
        stop: Option<(usize, &'static AtomicBool)>,
        cleaned: u32,
    }

    impl InParts for Numbered {
        fn description(&self) -> String {
            "numbers".to_owned()
        }

        fn parts(&self) -> usize {
            3
        }

        fn part(&mut self, number: usize) -> Box<dyn Workload + '_> {
            let (fails, stop) = (self.fails, self.stop);
            Box::new(FakeWorkload::doing(move |_| match (fails, stop) {
                (Some(one), _) if one == number => {
                    Err(BenchError::Workload("go on: it broke".to_owned()))
                }
                (_, Some((one, flag))) if one == number => {
                    flag.store(true, Ordering::Relaxed);
                    Ok(outcome(number))
                }
                _ => Ok(outcome(number)),
            }))
        }

        fn clean_up(&mut self) -> Result<(), BenchError> {
            self.cleaned += 1;
            Ok(())
        }
    }

    fn outcome(number: usize) -> Outcome {
        rate([1.0, 2.0, 3.0][number])
    }

    fn machine() -> FakeHost {
        FakeHost { free_bytes: 1 << 20, ..FakeHost::default() }
    }

    fn plan() -> Plan {
        Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
    }

    #[test]
    fn what_all_parts_show_is_one_run() {
        let mut parts = Numbered { fails: None, stop: None, cleaned: 0 };
        let mut seen = Vec::new();
        let result = play_parts(&mut parts, &plan(), &machine(), &no_stop(), &mut |at| {
            seen.push((at.part, at.parts));
        });
        let result = result.unwrap();
        assert!(!result.stopped);
        assert_eq!(result.run.what, "numbers");
        let values: Vec<_> = result.run.samples.iter().map(|it| it.values.clone()).collect();
        assert_eq!(values, [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]);
        assert_eq!(result.run.trials.len(), 2);
        assert_eq!(result.run.trials[0].phases[0].duration_ns, 3_000_000_000);
        assert_eq!(parts.cleaned, 1);
        seen.dedup();
        assert_eq!(seen, [(1, 3), (2, 3), (3, 3)]);
    }

    #[test]
    fn an_error_of_any_part_ends_it_and_what_was_made_is_removed() {
        for fails in 0..3 {
            let mut parts = Numbered { fails: Some(fails), stop: None, cleaned: 0 };
            let result = play_parts(&mut parts, &plan(), &machine(), &no_stop(), &mut |_| ());
            assert_eq!(result.unwrap_err().to_string(), "go on: it broke");
            assert_eq!(parts.cleaned, 1);
        }
    }

    #[test]
    fn a_stop_leaves_what_was_shown_before() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let mut parts = Numbered { fails: None, stop: Some((1, &STOP)), cleaned: 0 };
        let result = play_parts(&mut parts, &plan(), &machine(), &STOP, &mut |_| ()).unwrap();
        assert!(result.stopped);
        let values: Vec<_> = result.run.samples.iter().map(|it| it.values.clone()).collect();
        assert_eq!(values, [vec![1.0, 1.0], vec![2.0]]);
        assert_eq!(parts.cleaned, 1);
    }
}
