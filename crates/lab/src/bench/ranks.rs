//! Several processes, on one or several machines, that do the same work at the same time.
//!
//! They need each other only at barriers: each rank waits until all have reached the same one, and
//! receives the message of each rank. The caller of [`super::run_trials`] implements the
//! communication.
//!
//! Invariants: all ranks reach the same barriers in the same order; rank 0 alone decides whether
//! there is one more trial; clocks of different ranks are never compared.

use super::doubts;
use super::error::BenchError;
use super::repeat::Plan;
use larder_schema::run::Part;
use larder_schema::run::Run;
use larder_schema::run::trial::DoubtReason;
use serde_json::Value;
use std::fmt;

/// The other ranks, as seen by one of them.
pub trait Ranks: fmt::Debug + Send + Sync {
    /// Waits until all ranks are at the barrier `label`. Returns the messages of all, by rank.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] if a rank is gone or the user stops the run; the implementation
    /// knows the reason.
    fn wait_at_barrier(&self, label: &str, message: Value) -> Result<Vec<Value>, BenchError>;
}

/// Combines the runs of all ranks into one: in each trial, rates and counts are added, and the
/// longest of the times counts. Doubts are those of the ranks, except for the interval, which is
/// that of the sums.
///
/// # Panics
/// Without parts.
#[must_use]
pub fn total(parts: Vec<Part>, plan: &Plan) -> Run {
    let mut run = larder_report::run::together(parts);
    run.doubts.retain(|doubt| doubt.why != DoubtReason::Interval);
    // The clocks are those of the ranks, whose own doubts cover them.
    let of_sums = doubts::of(&run, plan, 0, false);
    run.doubts.extend(of_sums.into_iter().filter(|doubt| doubt.why == DoubtReason::Interval));
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::{FakeHost, FakeWorkload, no_stop, trial_context};
    use crate::bench::{Start, run_trials, worker_pool};
    use larder_schema::run::trial::{Phase, Trial};
    use std::sync::{Arc, Condvar, Mutex};

    /// Ranks that are threads of one process.
    #[derive(Debug)]
    struct ThreadRanks {
        state: Mutex<BarrierState>,
        changed: Condvar,
    }

    #[derive(Debug)]
    struct BarrierState {
        messages: Vec<Option<Value>>,
        /// Barriers that all ranks have passed, with the messages.
        passed: Vec<(String, Vec<Value>)>,
        gone: bool,
    }

    /// One of the ranks, and the number of barriers that it has passed.
    #[derive(Debug)]
    struct ThreadRank(Arc<ThreadRanks>, usize, Mutex<usize>);

    /// Returns a host with free space on which this process is rank `rank`.
    fn machine(threads: &Arc<ThreadRanks>, rank: usize) -> FakeHost {
        let one: Arc<dyn Ranks> = Arc::new(ThreadRank(Arc::clone(threads), rank, Mutex::new(0)));
        FakeHost { free_bytes: 1 << 40, ranks: Some(one), ..FakeHost::default() }
    }

    impl ThreadRanks {
        fn new(count: usize) -> Self {
            let state =
                BarrierState { messages: vec![None; count], passed: Vec::new(), gone: false };
            ThreadRanks { state: Mutex::new(state), changed: Condvar::new() }
        }

        fn leave(&self) {
            self.state.lock().unwrap().gone = true;
            self.changed.notify_all();
        }

        fn places(&self) -> Vec<String> {
            let state = self.state.lock().unwrap();
            state.passed.iter().map(|(label, _)| label.clone()).collect()
        }
    }

    impl Ranks for ThreadRank {
        fn wait_at_barrier(&self, label: &str, message: Value) -> Result<Vec<Value>, BenchError> {
            let mut number = self.2.lock().unwrap();
            let mut state = self.0.state.lock().unwrap();
            state.messages[self.1] = Some(message);
            if state.messages.iter().all(Option::is_some) {
                let all =
                    state.messages.iter_mut().map(|message| message.take().unwrap()).collect();
                state.passed.push((label.to_owned(), all));
                self.0.changed.notify_all();
            }
            while state.passed.len() == *number && !state.gone {
                state = self.0.changed.wait(state).unwrap();
            }
            if state.passed.len() == *number {
                return Err(BenchError::Stopped);
            }
            let (expected_label, all) = state.passed[*number].clone();
            assert_eq!(expected_label, label, "all meet at the same places");
            *number += 1;
            Ok(all)
        }
    }

    fn part(name: &str, values: &'static [f64]) -> Part {
        let machine = machine(&Arc::new(ThreadRanks::new(1)), 0);
        let plan = Plan { trials: 1..=1, confidence: None, ..Plan::default() };
        let mut given = FakeWorkload::values(values);
        let run = run_trials(&mut given, &plan, &machine, &no_stop(), &mut |_| ()).unwrap().run;
        Part { name: name.to_owned(), labels: [].into(), run }
    }

    #[test]
    fn rates_are_added_and_of_times_the_longest_counts() {
        let (mut a, mut b) = (part("a", &[10.0]), part("b", &[5.0]));
        let trial = |ns| Trial {
            phases: vec![Phase { name: "x".to_owned(), duration_ns: ns }],
            ..Trial::default()
        };
        a.run.trials = vec![trial(7)];
        b.run.trials = vec![trial(9)];
        let run = total(vec![a, b], &Plan::default());
        assert_eq!(run.main_sample().unwrap().values, [15.0]);
        assert_eq!(run.trials[0].phases[0].duration_ns, 9);
        assert_eq!(run.parts.len(), 2);
        assert!(
            run.doubts.iter().any(|doubt| doubt.why == DoubtReason::Interval),
            "{:?}",
            run.doubts
        );
    }

    #[test]
    fn all_ranks_do_as_many_trials_as_their_sums_ask_for() {
        let threads = Arc::new(ThreadRanks::new(2));
        // Alone, each rank would continue, but their sums do not vary.
        let values: [&'static [f64]; 2] =
            [&[4.0, 6.0, 4.0, 6.0, 4.0, 6.0], &[6.0, 4.0, 6.0, 4.0, 6.0, 4.0]];
        let plan = Plan { start: Start::AsIs, trials: 6..=30, ..Plan::default() };
        let trials: Vec<usize> = std::thread::scope(|scope| {
            let start = |rank: usize| {
                let (threads, plan, values) = (&threads, &plan, values[rank]);
                scope.spawn(move || {
                    let machine = machine(threads, rank);
                    let mut given = FakeWorkload::values(values);
                    let result = run_trials(&mut given, plan, &machine, &no_stop(), &mut |_| ());
                    result.unwrap().run.trials.len()
                })
            };
            let ranks = [start(0), start(1)];
            ranks.map(|rank| rank.join().unwrap()).into()
        });
        assert_eq!(trials, [6, 6]);
        let places = threads.places();
        let first = ["prepared", "whether to go on", "start of trial 1", "end of trial 1"];
        assert_eq!(places[..4], first);
        assert_eq!(places.len(), 2 + 6 * 3);
    }

    #[test]
    fn a_rank_that_is_gone_ends_the_others_which_clean_up() {
        let threads = Arc::new(ThreadRanks::new(2));
        threads.leave();
        let mut given = FakeWorkload::values(&[1.0]);
        let (plan, machine) = (Plan::default(), machine(&threads, 0));
        let error = run_trials(&mut given, &plan, &machine, &no_stop(), &mut |_| ()).unwrap_err();
        assert!(error.is_stop(), "{error}");
        assert_eq!(given.cleaned, 1);
    }

    #[test]
    fn threads_of_all_ranks_begin_each_phase_together() {
        let threads = Arc::new(ThreadRanks::new(2));
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let threads = &threads;
                scope.spawn(move || {
                    let (machine, stop) = (machine(threads, rank), no_stop());
                    let context = trial_context(&machine, &stop);
                    let mut workers = [0_usize; 3];
                    let phases =
                        worker_pool::run(&context, &["a", "b"], &mut workers, |seen, _| {
                            *seen = threads.places().len();
                            Ok(())
                        });
                    assert_eq!(phases.unwrap().len(), 2);
                    assert_eq!(workers, [2, 2, 2], "no rank enters b before all have reached it");
                });
            }
        });
        assert_eq!(threads.places(), ["a", "b"]);
    }
}
