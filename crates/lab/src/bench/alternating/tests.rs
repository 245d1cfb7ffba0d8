//! Variants whose trials record their order, on a fake host.

use super::super::testing::{FakeHost, FakeWorkload, no_stop, rate};
use super::super::{BenchError, Found, Start};
use super::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

type CallLog = Rc<RefCell<Vec<&'static str>>>;

/// A workload that logs its name at each trial; its value is the number of trials so far.
fn named_workload(name: &'static str, log: &CallLog) -> FakeWorkload {
    let log = Rc::clone(log);
    FakeWorkload::doing(move |_| {
        log.borrow_mut().push(name);
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let count = log.borrow().len() as f64;
        Ok(rate(count))
    })
}

/// A host on which every cold start is cold and every warm start is warm.
fn machine() -> FakeHost {
    let of = |resident| Found { files: 1, pages: 8, resident, ..Found::default() };
    let found = Mutex::new((0..64).map(|number| of(if number % 2 == 0 { 0 } else { 8 })).collect());
    FakeHost { free_bytes: 1 << 20, found, ..FakeHost::default() }
}

fn plan(trials: u64) -> Plan {
    Plan { trials: trials..=trials, confidence: None, same_speed: None, ..Plan::default() }
}

const BOTH: [Start; 2] = [Start::Cold, Start::Warm];

fn turns(
    [one, other]: [&mut FakeWorkload; 2],
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<AlternatingTrials, BenchError> {
    let machine = machine();
    let mut variants = [
        TrialVariant { workload: one, surroundings: &machine },
        TrialVariant { workload: other, surroundings: &machine },
    ];
    play_by_turns(&mut variants, &BOTH, plan, stop, &mut |_| ())
}

#[test]
fn each_has_its_turn_and_every_other_round_goes_the_other_way() {
    let log = CallLog::default();
    let (mut one, mut other) = (named_workload("a", &log), named_workload("b", &log));
    let turns = turns([&mut one, &mut other], &plan(3), &no_stop()).unwrap();
    assert_eq!(log.borrow().concat(), "aabbbbaaaabb");
    let values: Vec<_> = turns.runs.iter().map(|run| run.samples[0].values.clone()).collect();
    let expected =
        [[1.0, 7.0, 9.0], [2.0, 8.0, 10.0], [3.0, 5.0, 11.0], [4.0, 6.0, 12.0]].map(Vec::from);
    assert_eq!(values, expected);
    let starts: Vec<_> = turns.runs.iter().map(|run| run.trials[0].started.start).collect();
    assert_eq!(starts, [Start::Cold, Start::Warm, Start::Cold, Start::Warm]);
    assert!(!turns.stopped && one.prepared && other.prepared);
    assert_eq!((one.cleaned, other.cleaned), (1, 1));
}

#[test]
fn a_stop_counts_once_all_had_a_trial_and_an_error_never_does() {
    for (last, ok) in [(4, true), (3, false)] {
        let (log, stop) = (CallLog::default(), Rc::new(AtomicBool::new(false)));
        let stopping_workload = |name| {
            let (log, stop) = (Rc::clone(&log), Rc::clone(&stop));
            FakeWorkload::doing(move |context| {
                log.borrow_mut().push(name);
                stop.store(log.borrow().len() >= last, Ordering::Relaxed);
                // The trial that sets the flag still succeeds.
                if log.borrow().len() > last {
                    context.check()?;
                }
                Ok(rate(1.0))
            })
        };
        let (mut one, mut other) = (stopping_workload("a"), stopping_workload("b"));
        let result = turns([&mut one, &mut other], &plan(3), &stop);
        assert_eq!(result.as_ref().is_ok_and(|it| it.stopped), ok, "{result:?}");
        assert!(ok || result.unwrap_err().is_stop());
        assert_eq!((one.cleaned, other.cleaned), (1, 1));
    }
    let log = CallLog::default();
    let mut good = named_workload("a", &log);
    let mut bad = FakeWorkload::doing(|_| Err(BenchError::Workload("go on: it broke".to_owned())));
    bad.fails_to_clean = true;
    let error = turns([&mut good, &mut bad], &plan(3), &no_stop()).unwrap_err();
    let message =
        "go on: it broke; and what it made could not be removed: remove /given: it is busy";
    assert_eq!(error.to_string(), message);
    assert_eq!((good.cleaned, bad.cleaned), (1, 1), "the others are cleaned up all the same");
}

#[test]
fn a_way_that_does_not_start_as_it_should_is_refused() {
    let log = CallLog::default();
    let (mut one, mut other) = (named_workload("a", &log), named_workload("b", &log));
    let warm = Found { files: 1, pages: 8, resident: 8, ..Found::default() };
    let found = Mutex::new([warm].into());
    let machine = FakeHost { free_bytes: 1 << 20, found, ..FakeHost::default() };
    let mut variants = [
        TrialVariant { workload: &mut one, surroundings: &machine },
        TrialVariant { workload: &mut other, surroundings: &machine },
    ];
    let error = play_by_turns(&mut variants, &BOTH, &plan(3), &no_stop(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("start cold: 8 of 8 pages stay"), "{error}");
    let full = FakeHost { free_bytes: 1, ..FakeHost::default() };
    variants[1].surroundings = &full;
    let error = play_by_turns(&mut variants, &BOTH, &plan(3), &no_stop(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("run in /given: it needs 1000 B"), "{error}");
    assert!(log.borrow().is_empty());
}
