//! Several processes, on one machine or on more, that do the same together.
//!
//! The one thing that they need of each other is to meet: to wait until all are at the same place,
//! and to learn what each has said there. How they reach each other is the business of whoever runs
//! the player.
//!
//! Invariants: all ranks meet at the same places in the same order; whether there is one more trial
//! is decided once, by rank 0; no clock of a rank is compared with that of another.

use super::doubts;
use super::error::BenchError;
use super::repeat::Plan;
use larder_report::run::Run;
use larder_report::run::parts::Part;
use larder_report::run::trial::DoubtReason;
use serde_json::Value;
use std::fmt;

/// The other processes, as one of them sees them.
pub trait Ranks: fmt::Debug + Send + Sync {
    /// Waits until all ranks are at this place; what each has said there, by rank.
    ///
    /// # Errors
    /// [`BenchError::Stopped`] if a rank is gone, or somebody wants to stop; why is known to
    /// whoever runs the player.
    fn wait_at_barrier(&self, place: &str, said: Value) -> Result<Vec<Value>, BenchError>;
}

/// One run out of those of all ranks: in each trial rates and counts are added, and of times the
/// longest counts. Doubts are those of the ranks, but for the interval, which is that of the sums.
///
/// # Panics
/// Without parts.
#[must_use]
pub fn total(parts: Vec<Part>, plan: &Plan) -> Run {
    let mut run = Run::together(parts);
    run.doubts.retain(|doubt| doubt.why != DoubtReason::Interval);
    // The clocks are those of the ranks, which have said what is to be said of them.
    let of_sums = doubts::of(&run, plan, 0, false);
    run.doubts.extend(of_sums.into_iter().filter(|doubt| doubt.why == DoubtReason::Interval));
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::{Double, Given, never, trial_context};
    use crate::bench::{Start, run_trials, worker_pool};
    use larder_report::run::trial::{Phase, Trial};
    use std::sync::{Arc, Condvar, Mutex};

    /// Ranks that are threads of one process.
    #[derive(Debug)]
    struct Threads {
        state: Mutex<Meeting>,
        met: Condvar,
    }

    #[derive(Debug)]
    struct Meeting {
        said: Vec<Option<Value>>,
        /// Places that all have left behind, with what was said.
        past: Vec<(String, Vec<Value>)>,
        gone: bool,
    }

    /// One of them, and how often it has met the others.
    #[derive(Debug)]
    struct One(Arc<Threads>, usize, Mutex<usize>);

    /// A machine with room, on which this is the rank with a number.
    fn machine(threads: &Arc<Threads>, rank: usize) -> Double {
        let one: Arc<dyn Ranks> = Arc::new(One(Arc::clone(threads), rank, Mutex::new(0)));
        Double { free_bytes: 1 << 40, ranks: Some(one), ..Double::default() }
    }

    impl Threads {
        fn new(count: usize) -> Self {
            let state = Meeting { said: vec![None; count], past: Vec::new(), gone: false };
            Threads { state: Mutex::new(state), met: Condvar::new() }
        }

        fn leave(&self) {
            self.state.lock().unwrap().gone = true;
            self.met.notify_all();
        }

        fn places(&self) -> Vec<String> {
            let state = self.state.lock().unwrap();
            state.past.iter().map(|(place, _)| place.clone()).collect()
        }
    }

    impl Ranks for One {
        fn wait_at_barrier(&self, place: &str, said: Value) -> Result<Vec<Value>, BenchError> {
            let mut number = self.2.lock().unwrap();
            let mut state = self.0.state.lock().unwrap();
            state.said[self.1] = Some(said);
            if state.said.iter().all(Option::is_some) {
                let all = state.said.iter_mut().map(|said| said.take().unwrap()).collect();
                state.past.push((place.to_owned(), all));
                self.0.met.notify_all();
            }
            while state.past.len() == *number && !state.gone {
                state = self.0.met.wait(state).unwrap();
            }
            if state.past.len() == *number {
                return Err(BenchError::Stopped);
            }
            let (met, all) = state.past[*number].clone();
            assert_eq!(met, place, "all meet at the same places");
            *number += 1;
            Ok(all)
        }
    }

    fn part(name: &str, values: &'static [f64]) -> Part {
        let machine = machine(&Arc::new(Threads::new(1)), 0);
        let plan = Plan { trials: 1..=1, confidence: None, ..Plan::default() };
        let mut given = Given::values(values);
        let run = run_trials(&mut given, &plan, &machine, &never(), &mut |_| ()).unwrap().run;
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
        let threads = Arc::new(Threads::new(2));
        // Alone, each would go on: what they reach together does not vary.
        let values: [&'static [f64]; 2] =
            [&[4.0, 6.0, 4.0, 6.0, 4.0, 6.0], &[6.0, 4.0, 6.0, 4.0, 6.0, 4.0]];
        let plan = Plan { start: Start::AsIs, trials: 6..=30, ..Plan::default() };
        let trials: Vec<usize> = std::thread::scope(|scope| {
            let start = |rank: usize| {
                let (threads, plan, values) = (&threads, &plan, values[rank]);
                scope.spawn(move || {
                    let machine = machine(threads, rank);
                    let mut given = Given::values(values);
                    let played = run_trials(&mut given, plan, &machine, &never(), &mut |_| ());
                    played.unwrap().run.trials.len()
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
        let threads = Arc::new(Threads::new(2));
        threads.leave();
        let mut given = Given::values(&[1.0]);
        let (plan, machine) = (Plan::default(), machine(&threads, 0));
        let error = run_trials(&mut given, &plan, &machine, &never(), &mut |_| ()).unwrap_err();
        assert!(error.is_stop(), "{error}");
        assert_eq!(given.cleaned, 1);
    }

    #[test]
    fn threads_of_all_ranks_begin_each_phase_together() {
        let threads = Arc::new(Threads::new(2));
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let threads = &threads;
                scope.spawn(move || {
                    let (machine, stop) = (machine(threads, rank), never());
                    let stage = trial_context(&machine, &stop);
                    let mut workers = [0_usize; 3];
                    let phases = worker_pool::run(&stage, &["a", "b"], &mut workers, |seen, _| {
                        *seen = threads.places().len();
                        Ok(())
                    });
                    assert_eq!(phases.unwrap().len(), 2);
                    assert_eq!(workers, [2, 2, 2], "nobody is in b before all have met there");
                });
            }
        });
        assert_eq!(threads.places(), ["a", "b"]);
    }
}
