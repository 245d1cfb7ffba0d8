//! A measurement in parts: workloads that are played one after the other and share what was made
//! for them, so that each of their trials starts cold or warm by itself. What they show is one run.

use super::error::BenchError;
use super::host_env::HostEnv;
use super::repeat::Plan;
use super::trial_runner::{Progress, RunResult, run_trials};
use super::workload::Workload;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;

/// A measurement in parts.
pub trait InParts {
    /// What is measured, in one line.
    fn description(&self) -> String;

    /// How many parts there are; at least one.
    fn parts(&self) -> usize;

    /// The part with this number, from 0. Parts leave what they share for [`InParts::clean_up`].
    fn part(&mut self, number: usize) -> Box<dyn Workload + '_>;

    /// Removes what the parts made and share. Called once, however the run ends.
    ///
    /// # Errors
    /// Something cannot be removed.
    fn clean_up(&mut self) -> Result<(), BenchError>;
}

/// How far a run in parts is.
#[derive(Clone, Copy, Debug)]
pub struct PartsProgress {
    /// The part at hand, counted from 1.
    pub part: usize,
    /// All there are.
    pub parts: usize,
    /// How far the player is with it.
    pub progress: Progress,
}

/// Plays all parts. The time that may be spent is divided among them. A stop after the first trial
/// gives what there is.
///
/// # Errors
/// The first error of a part, or what was made cannot be removed.
pub fn play_parts(
    whole: &mut dyn InParts,
    plan: &Plan,
    surroundings: &dyn HostEnv,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(PartsProgress),
) -> Result<RunResult, BenchError> {
    // A panic goes on upwards, but leaves no files behind.
    let played = catch_unwind(AssertUnwindSafe(|| each(whole, plan, surroundings, stop, watch)));
    let cleaned = whole.clean_up();
    let played = played.unwrap_or_else(|panic| resume_unwind(panic));
    BenchError::first_of(played, cleaned)
}

fn each(
    whole: &mut dyn InParts,
    plan: &Plan,
    surroundings: &dyn HostEnv,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(PartsProgress),
) -> Result<RunResult, BenchError> {
    let parts = whole.parts();
    assert!(parts > 0, "something is measured");
    let budget = plan.budget.map(|budget| budget / parts as u64);
    let plan = Plan { budget, ..plan.clone() };
    let what = whole.description();
    let mut sum: Option<RunResult> = None;
    for number in 0..parts {
        let mut tell = |progress| watch(PartsProgress { part: number + 1, parts, progress });
        let played = run_trials(&mut *whole.part(number), &plan, surroundings, stop, &mut tell);
        match (&mut sum, played) {
            (None, played) => sum = Some(played?),
            (Some(sum), Err(error)) if error.is_stop() => sum.stopped = true,
            (Some(sum), played) => {
                let played = played?;
                sum.run.join(played.run);
                sum.stopped = played.stopped;
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
    use super::super::testing::{Double, Given, never, rate};
    use super::super::{Outcome, Start};
    use super::*;
    use std::sync::atomic::Ordering;

    /// Parts whose trials show their number; the one that fails, if any, and how often the whole
    /// was cleaned up.
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
            Box::new(Given::doing(move |_| match (fails, stop) {
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

    fn machine() -> Double {
        Double { free_bytes: 1 << 20, ..Double::default() }
    }

    fn plan() -> Plan {
        Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
    }

    #[test]
    fn what_all_parts_show_is_one_run() {
        let mut parts = Numbered { fails: None, stop: None, cleaned: 0 };
        let mut seen = Vec::new();
        let played = play_parts(&mut parts, &plan(), &machine(), &never(), &mut |at| {
            seen.push((at.part, at.parts));
        });
        let played = played.unwrap();
        assert!(!played.stopped);
        assert_eq!(played.run.what, "numbers");
        let values: Vec<_> = played.run.samples.iter().map(|it| it.values.clone()).collect();
        assert_eq!(values, [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]);
        assert_eq!(played.run.trials.len(), 2);
        assert_eq!(played.run.trials[0].phases[0].duration_ns, 3_000_000_000);
        assert_eq!(parts.cleaned, 1);
        seen.dedup();
        assert_eq!(seen, [(1, 3), (2, 3), (3, 3)]);
    }

    #[test]
    fn an_error_of_any_part_ends_it_and_what_was_made_is_removed() {
        for fails in 0..3 {
            let mut parts = Numbered { fails: Some(fails), stop: None, cleaned: 0 };
            let played = play_parts(&mut parts, &plan(), &machine(), &never(), &mut |_| ());
            assert_eq!(played.unwrap_err().to_string(), "go on: it broke");
            assert_eq!(parts.cleaned, 1);
        }
    }

    #[test]
    fn a_stop_leaves_what_was_shown_before() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let mut parts = Numbered { fails: None, stop: Some((1, &STOP)), cleaned: 0 };
        let played = play_parts(&mut parts, &plan(), &machine(), &STOP, &mut |_| ()).unwrap();
        assert!(played.stopped);
        let values: Vec<_> = played.run.samples.iter().map(|it| it.values.clone()).collect();
        assert_eq!(values, [vec![1.0, 1.0], vec![2.0]]);
        assert_eq!(parts.cleaned, 1);
    }
}
