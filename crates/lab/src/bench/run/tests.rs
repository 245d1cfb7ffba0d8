//! Variants whose trials record their order, on a fake host.

use super::super::testing::{FakeHost, FakeWorkload, no_stop, rate};
use super::super::{BenchError, Start, TrialContext, WorkloadResidency};
use super::*;
use std::cell::{Cell, RefCell};
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
    let of = |resident| WorkloadResidency {
        files: 1,
        pages: 8,
        resident,
        ..WorkloadResidency::default()
    };
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
    let mut variants =
        [Variant { workload: one, host: &machine }, Variant { workload: other, host: &machine }];
    alternate(&mut variants, &BOTH, plan, stop, &mut |_| ())
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
    let mut bad = FakeWorkload::doing(|_| Err(BenchError::Failed("go on: it broke".to_owned())));
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
    let warm =
        WorkloadResidency { files: 1, pages: 8, resident: 8, ..WorkloadResidency::default() };
    let found = Mutex::new([warm].into());
    let machine = FakeHost { free_bytes: 1 << 20, found, ..FakeHost::default() };
    let mut variants = [
        Variant { workload: &mut one, host: &machine },
        Variant { workload: &mut other, host: &machine },
    ];
    let error = alternate(&mut variants, &BOTH, &plan(3), &no_stop(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("start cold: 8 of 8 pages stay"), "{error}");
    let full = FakeHost { free_bytes: 1, ..FakeHost::default() };
    variants[1].host = &full;
    let error = alternate(&mut variants, &BOTH, &plan(3), &no_stop(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("run in /given: it needs 1000 B"), "{error}");
    assert!(log.borrow().is_empty());
}

/// Three parts whose trials report the number of their part. `in_part` runs in each trial, with the
/// part counted from 0.
fn numbered_parts(
    in_part: impl Fn(usize, &TrialContext<'_>) -> Result<(), BenchError> + 'static,
) -> FakeWorkload {
    let part = Rc::new(Cell::new(0));
    let selected = Rc::clone(&part);
    let trial = move |context: &TrialContext<'_>| {
        in_part(selected.get(), context)?;
        Ok(rate([1.0, 2.0, 3.0][selected.get()]))
    };
    FakeWorkload { parts: 3, part, ..FakeWorkload::doing(trial) }
}

fn run_numbered(
    workload: &mut FakeWorkload,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, BenchError> {
    let machine = FakeHost { free_bytes: 1 << 20, ..FakeHost::default() };
    let plan = Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() };
    let result = run_trials(workload, &plan, &machine, stop, on_progress);
    assert_eq!(workload.cleaned, 1);
    result
}

fn values(run: &Run) -> Vec<Vec<f64>> {
    run.samples.iter().map(|sample| sample.values.clone()).collect()
}

#[test]
fn what_all_parts_show_is_one_run() {
    let mut parts = Vec::new();
    let mut workload = numbered_parts(|_, _| Ok(()));
    let result = run_numbered(&mut workload, &no_stop(), &mut |at| parts.push(at.part)).unwrap();
    assert!(!result.stopped);
    assert_eq!(values(&result.run), [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]);
    assert_eq!(result.run.trials.len(), 2);
    assert_eq!(result.run.trials[0].phases[0].duration_ns, 3_000_000_000);
    parts.dedup();
    assert_eq!(parts, [0, 1, 2]);
}

#[test]
fn an_error_of_any_part_ends_it_and_what_was_made_is_removed() {
    for fails in 0..3 {
        let mut workload = numbered_parts(move |part, _| {
            let error = || BenchError::Failed("go on: it broke".to_owned());
            if part == fails { Err(error()) } else { Ok(()) }
        });
        let result = run_numbered(&mut workload, &no_stop(), &mut |_| ());
        assert_eq!(result.unwrap_err().to_string(), "go on: it broke");
    }
}

#[test]
fn a_stop_leaves_what_was_shown_before() {
    let stop = Rc::new(AtomicBool::new(false));
    let raised = Rc::clone(&stop);
    let mut workload = numbered_parts(move |part, _| {
        raised.fetch_or(part == 1, Ordering::Relaxed);
        Ok(())
    });
    let result = run_numbered(&mut workload, &stop, &mut |_| ()).unwrap();
    assert!(result.stopped);
    assert_eq!(values(&result.run), [vec![1.0, 1.0], vec![2.0]]);
    // A stop before the first trial of a later part keeps the parts before it.
    stop.store(false, Ordering::Relaxed);
    let raised = Rc::clone(&stop);
    let mut workload = numbered_parts(move |part, context| {
        raised.fetch_or(part == 1, Ordering::Relaxed);
        context.check()
    });
    let result = run_numbered(&mut workload, &stop, &mut |_| ()).unwrap();
    assert!(result.stopped);
    assert_eq!(values(&result.run), [[1.0, 1.0]]);
}
