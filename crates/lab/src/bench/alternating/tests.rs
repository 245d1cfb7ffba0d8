//! Ways whose trials say when they are done, on a machine that does as it is told.

use super::super::testing::{Double, Given, never, rate};
use super::super::{BenchError, Found, Start};
use super::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

type CallLog = Rc<RefCell<Vec<&'static str>>>;

/// A way that tells its name at each trial, and shows how many trials of all there were.
fn telling(name: &'static str, told: &CallLog) -> Given {
    let told = Rc::clone(told);
    Given::doing(move |_| {
        told.borrow_mut().push(name);
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let count = told.borrow().len() as f64;
        Ok(rate(count))
    })
}

/// A machine where a cold start is cold and a warm one warm.
fn machine() -> Double {
    let of = |resident| Found { files: 1, pages: 8, resident, ..Found::default() };
    let found = Mutex::new((0..64).map(|number| of(if number % 2 == 0 { 0 } else { 8 })).collect());
    Double { free_bytes: 1 << 20, found, ..Double::default() }
}

fn plan(trials: u64) -> Plan {
    Plan { trials: trials..=trials, confidence: None, same_speed: None, ..Plan::default() }
}

const BOTH: [Start; 2] = [Start::Cold, Start::Warm];

fn turns(
    [one, other]: [&mut Given; 2],
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<AlternatingTrials, BenchError> {
    let machine = machine();
    let mut ways = [
        TrialVariant { workload: one, surroundings: &machine },
        TrialVariant { workload: other, surroundings: &machine },
    ];
    play_by_turns(&mut ways, &BOTH, plan, stop, &mut |_| ())
}

#[test]
fn each_has_its_turn_and_every_other_round_goes_the_other_way() {
    let told = CallLog::default();
    let (mut one, mut other) = (telling("a", &told), telling("b", &told));
    let turns = turns([&mut one, &mut other], &plan(3), &never()).unwrap();
    assert_eq!(told.borrow().concat(), "aabbbbaaaabb");
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
        let (told, stop) = (CallLog::default(), Rc::new(AtomicBool::new(false)));
        let stopping = |name| {
            let (told, stop) = (Rc::clone(&told), Rc::clone(&stop));
            Given::doing(move |stage| {
                told.borrow_mut().push(name);
                stop.store(told.borrow().len() >= last, Ordering::Relaxed);
                // The one that raises the flag is still good.
                if told.borrow().len() > last {
                    stage.check()?;
                }
                Ok(rate(1.0))
            })
        };
        let (mut one, mut other) = (stopping("a"), stopping("b"));
        let played = turns([&mut one, &mut other], &plan(3), &stop);
        assert_eq!(played.as_ref().is_ok_and(|it| it.stopped), ok, "{played:?}");
        assert!(ok || played.unwrap_err().is_stop());
        assert_eq!((one.cleaned, other.cleaned), (1, 1));
    }
    let told = CallLog::default();
    let mut good = telling("a", &told);
    let mut bad = Given::doing(|_| Err(BenchError::Workload("go on: it broke".to_owned())));
    bad.fails_to_clean = true;
    let error = turns([&mut good, &mut bad], &plan(3), &never()).unwrap_err();
    let said = "go on: it broke; and what it made could not be removed: remove /given: it is busy";
    assert_eq!(error.to_string(), said);
    assert_eq!((good.cleaned, bad.cleaned), (1, 1), "the others are cleaned up all the same");
}

#[test]
fn a_way_that_does_not_start_as_it_should_is_refused() {
    let told = CallLog::default();
    let (mut one, mut other) = (telling("a", &told), telling("b", &told));
    let warm = Found { files: 1, pages: 8, resident: 8, ..Found::default() };
    let found = Mutex::new([warm].into());
    let machine = Double { free_bytes: 1 << 20, found, ..Double::default() };
    let mut ways = [
        TrialVariant { workload: &mut one, surroundings: &machine },
        TrialVariant { workload: &mut other, surroundings: &machine },
    ];
    let error = play_by_turns(&mut ways, &BOTH, &plan(3), &never(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("start cold: 8 of 8 pages stay"), "{error}");
    let full = Double { free_bytes: 1, ..Double::default() };
    ways[1].surroundings = &full;
    let error = play_by_turns(&mut ways, &BOTH, &plan(3), &never(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("run in /given: it needs 1000 B"), "{error}");
    assert!(told.borrow().is_empty());
}
