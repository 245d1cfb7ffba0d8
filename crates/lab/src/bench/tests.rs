//! Trial runs on a fake host: order of calls, starts, ends, and doubts.

use super::testing::*;
use super::*;
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_schema::run::Run;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Returns a host with free space, which finds these residencies after the starts.
fn machine(found: &[WorkloadResidency]) -> FakeHost {
    let found = std::sync::Mutex::new(found.iter().cloned().collect());
    FakeHost { free_bytes: 1 << 40, memory_bytes: 1 << 30, found, ..FakeHost::default() }
}

fn pages(resident: u64, pages: u64) -> WorkloadResidency {
    let wrong = Some(("/given/file".into(), 3));
    WorkloadResidency { files: 1, pages, resident, wrong, why: "a process uses it".to_owned() }
}

fn plan(start: Start) -> Plan {
    Plan { start, ..Plan::default() }
}

fn run_fake(
    workload: &mut FakeWorkload,
    plan: &Plan,
    machine: &FakeHost,
) -> Result<RunResult, BenchError> {
    run_trials(workload, plan, machine, &no_stop(), &mut |_| ())
}

fn expect_error(workload: &mut FakeWorkload, start: Start, machine: &FakeHost) -> String {
    let error = run_fake(workload, &plan(start), machine).unwrap_err();
    assert_eq!(workload.cleaned, 1, "what was made is removed after: {error}");
    error.to_string()
}

fn doubts(run: &Run, why: DoubtReason) -> Vec<&str> {
    run.doubts.iter().filter(|it| it.why == why).map(|it| it.text.as_str()).collect()
}

/// Returns a plan for six trials at the same speed.
fn at_same_speed() -> Plan {
    Plan { start: Start::AsIs, trials: 6..=6, confidence: None, ..Plan::default() }
}

#[test]
fn trials_of_a_slower_machine_are_set_aside_and_done_again() {
    // The speed is read once while waiting for a trial, then before and after it. The first trial
    // runs at a speed that turns out to be slow.
    let speeds = [80.0, 80.0, 80.0, 100.0, 100.0, 100.0, 80.0, 100.0, 100.0, 70.0, 100.0];
    let machine = FakeHost {
        speeds: std::sync::Mutex::new(speeds.map(Some).into()),
        ..machine(&[pages(0, 16)])
    };
    let mut workload = FakeWorkload::values(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let run = run_fake(&mut workload, &at_same_speed(), &machine).unwrap().run;
    assert_eq!(run.samples[0].values, [2.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!((run.set_aside, larder_report::compare::speed(&run)), (2, Some(100.0)));
    assert_eq!(run.trials.iter().map(|trial| trial.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(
        larder_report::run::starts_in_words(&run)
            .ends_with("2 more were set aside: the machine was slower then.")
    );
    assert!(doubts(&run, DoubtReason::Speed).is_empty(), "{:?}", run.doubts);
}

#[test]
fn without_patience_slow_trials_count_and_that_is_said() {
    let speeds = [100.0, 100.0, 100.0, 70.0];
    let machine = FakeHost {
        speeds: std::sync::Mutex::new(speeds.map(Some).into()),
        // Each reading of the clock takes a second.
        step: 1_000_000_000,
        ..machine(&[pages(0, 16)])
    };
    let mut workload = FakeWorkload::values(&[1.0]);
    let run = run_fake(&mut workload, &at_same_speed(), &machine).unwrap().run;
    assert_eq!(run.trials.len(), 6);
    assert_eq!(
        doubts(&run, DoubtReason::Speed),
        ["the machine was more than 10.0 % below its full speed in 5 of 6 trials (at worst \
          30.0 %), by a calibration before and after each trial"]
    );
    let machine =
        FakeHost { speeds: std::sync::Mutex::new([Some(1.0), Some(9.0)].into()), ..machine };
    let plan = Plan { same_speed: None, ..at_same_speed() };
    let run = run_fake(&mut workload, &plan, &machine).unwrap().run;
    assert_eq!((run.set_aside, doubts(&run, DoubtReason::Speed).len()), (0, 0), "not asked for");
}

#[test]
fn steady_values_end_after_six_trials_with_a_record_of_each() {
    let machine = machine(&[pages(0, 16)]);
    let mut workload = FakeWorkload::values(&[100.0, 101.0, 99.0]);
    let result = run_fake(&mut workload, &plan(Start::Cold), &machine).unwrap();
    assert!(!result.stopped && workload.prepared && workload.cleaned == 1);
    let run = result.run;
    assert_eq!(run.samples[0].values, [100.0, 101.0, 99.0, 100.0, 101.0, 99.0]);
    assert_eq!((run.workload.as_str(), run.main.as_deref()), ("given", Some("rate")));
    assert_eq!(run.settings["start"], "cold");
    assert_eq!(run.trials.len(), 6);
    assert_eq!(machine.calls(), ["cold"; 6]);
    for (number, trial) in run.trials.iter().enumerate() {
        assert_eq!(trial.number, number as u64 + 1);
        assert_eq!(trial.started.share(), Some(0.0));
        assert!(trial.duration_ns > 0 && trial.phases[0].name == "work");
    }
    assert!(run.doubts.is_empty(), "{:?}", run.doubts);
    assert_eq!(Run::from_json(&run.to_json().unwrap()).unwrap(), run);
}

#[test]
fn half_warm_is_refused_as_cold_and_as_warm_with_the_reason() {
    let half = || machine(&[pages(5, 16)]);
    let mut workload = FakeWorkload::values(&[1.0]);
    assert_eq!(
        expect_error(&mut workload, Start::Cold, &half()),
        "start cold: 5 of 16 pages stay in memory; /given/file has 3 of them, and a process uses it"
    );
    let mut workload = FakeWorkload::values(&[1.0]);
    assert_eq!(
        expect_error(&mut workload, Start::Warm, &half()),
        "start warm: 5 of 16 pages are in memory after everything was read; /given/file lacks 3, \
         and a process uses it"
    );
    let mut workload = FakeWorkload::values(&[1.0]);
    let run = run_fake(&mut workload, &plan(Start::AsIs), &half()).unwrap().run;
    assert_eq!(run.trials[0].started.resident, Some(5));
    assert!(
        doubts(&run, DoubtReason::FitsMemory)[0].starts_with("its files (64 KiB) fit into memory")
    );
}

#[test]
fn every_trial_is_looked_at_not_only_the_first() {
    let machine = machine(&[pages(0, 16), pages(0, 16), pages(1, 16)]);
    let mut workload = FakeWorkload::values(&[1.0]);
    let error = expect_error(&mut workload, Start::Cold, &machine);
    assert!(error.starts_with("start cold: 1 of 16"), "{error}");
    assert_eq!(machine.calls().len(), 3);
}

#[test]
fn what_nobody_can_tell_is_measured_as_is_only() {
    let mut workload = FakeWorkload { start_unknown: true, ..FakeWorkload::values(&[1.0]) };
    assert_eq!(
        expect_error(&mut workload, Start::Cold, &machine(&[])),
        "start cold: the server has a cache of its own; say --start as-is"
    );
    let mut workload = FakeWorkload { start_unknown: true, ..FakeWorkload::values(&[1.0]) };
    let run = run_fake(&mut workload, &plan(Start::AsIs), &machine(&[])).unwrap().run;
    assert_eq!(run.trials[0].started.pages, None);
    assert!(doubts(&run, DoubtReason::FitsMemory).is_empty(), "{:?}", run.doubts);
}

#[test]
fn a_cache_of_its_own_is_judged_by_what_it_counts() {
    let own_cache = |resident| FakeWorkload {
        own_cache: Some(Counts(pages(resident, 4))),
        ..FakeWorkload::values(&[1.0])
    };
    assert!(run_fake(&mut own_cache(0), &plan(Start::Cold), &machine(&[])).is_ok());
    assert!(run_fake(&mut own_cache(4), &plan(Start::Warm), &machine(&[])).is_ok());
    let error = expect_error(&mut own_cache(3), Start::Warm, &machine(&[]));
    assert_eq!(error, "start warm: 3 of 4 blocks are cached");
    assert_eq!(
        expect_error(&mut own_cache(3), Start::Cold, &machine(&[])),
        "start cold: 3 of 4 blocks are cached"
    );
}

#[test]
fn room_is_looked_at_before_anything_is_made() {
    let machine = FakeHost { free_bytes: 999, ..machine(&[]) };
    let mut workload = FakeWorkload::values(&[1.0]);
    let error = run_fake(&mut workload, &plan(Start::Cold), &machine).unwrap_err().to_string();
    assert_eq!(error, "run in /given: it needs 1000 B and 999 B are free");
    assert!(!workload.prepared && workload.cleaned == 0 && machine.calls().is_empty());
}

#[test]
fn a_stop_keeps_the_trials_that_were_done_and_cleans_up() {
    for (after, kept) in [(0, None), (3, Some(3))] {
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        let mut workload = FakeWorkload::doing(move |context| {
            raised.store(context.trial > after, Ordering::Relaxed);
            context.check()?;
            Ok(rate(1.0))
        });
        let result =
            run_trials(&mut workload, &plan(Start::Cold), &machine(&[]), &stop, &mut |_| ());
        assert_eq!(workload.cleaned, 1);
        match kept {
            None => assert!(result.unwrap_err().is_stop()),
            Some(kept) => {
                let result = result.unwrap();
                assert!(result.stopped && result.run.trials.len() == kept);
                assert_eq!(
                    doubts(&result.run, DoubtReason::Stopped),
                    ["it was stopped after 3 trials"]
                );
            }
        }
    }
}

#[test]
fn an_error_ends_the_run_and_what_is_left_behind_is_said() {
    let failing =
        || FakeWorkload::doing(|_| Err(BenchError::Failed("write /x: disk full".to_owned())));
    assert_eq!(expect_error(&mut failing(), Start::Cold, &machine(&[])), "write /x: disk full");
    let mut workload = FakeWorkload { fails_to_clean: true, ..failing() };
    assert_eq!(
        expect_error(&mut workload, Start::Cold, &machine(&[])),
        "write /x: disk full; and what it made could not be removed: remove /given: it is busy"
    );
    let mut workload = FakeWorkload { fails_to_clean: true, ..FakeWorkload::values(&[1.0]) };
    assert_eq!(
        expect_error(&mut workload, Start::Cold, &machine(&[])),
        "remove /given: it is busy"
    );
}

#[test]
fn a_panic_goes_on_upwards_after_cleaning_up() {
    let mut workload = FakeWorkload::doing(|_| panic!("broken"));
    let machine = machine(&[]);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run_fake(&mut workload, &plan(Start::Cold), &machine)
    }));
    assert!(result.is_err() && workload.cleaned == 1);
}

#[test]
fn a_value_that_is_missing_or_no_number_ends_the_run() {
    let mut workload = FakeWorkload::doing(|_| Ok(Outcome::default()));
    let error = expect_error(&mut workload, Start::Cold, &machine(&[]));
    assert_eq!(error, "record trial 1: series \"rate\" has no value");
    let mut workload = FakeWorkload::doing(|_| Ok(rate(f64::NAN)));
    let error = expect_error(&mut workload, Start::Cold, &machine(&[]));
    assert_eq!(error, "record trial 1: series \"rate\" has a value that is not finite");
}

#[test]
fn steal_and_foreign_io_are_counted_for_the_trials_alone() {
    let counted = |total, stolen, disk: u64, own_cache: u64| CounterReadings {
        cpu: Some((total, stolen)),
        disk_bytes: Some(disk << 20),
        own_bytes: own_cache << 20,
    };
    // Pairs of readings: activity between two trials counts for none of them.
    let readings = [
        counted(0, 0, 0, 0),
        counted(100, 2, 100, 90),
        counted(900, 500, 900, 100),
        counted(1000, 500, 1000, 200),
    ];
    let machine = FakeHost { counted: std::sync::Mutex::new(readings.into()), ..machine(&[]) };
    let plan = Plan { trials: 2..=2, confidence: None, ..Plan::default() };
    let run = run_fake(&mut FakeWorkload::values(&[1.0]), &plan, &machine).unwrap().run;
    let near = |share: Option<f64>, expected: f64| (share.unwrap() - expected).abs() < 1e-12;
    assert!(near(run.trials[0].steal, 0.02) && near(run.trials[1].steal, 0.0));
    assert!(near(run.trials[0].foreign(), 0.1) && near(run.trials[1].foreign(), 0.0));
    let steal = doubts(&run, DoubtReason::Steal);
    assert_eq!(
        steal,
        ["the hypervisor took more than 1.0 % of the processor time in 1 of 2 trials (at worst \
             2.0 %)"]
    );
    let foreign = doubts(&run, DoubtReason::ForeignIo);
    assert!(
        foreign[0].starts_with("in 1 of 2 trials more than 5.0 % of the disk traffic"),
        "{foreign:?}"
    );
}

#[test]
fn wide_intervals_coarse_clocks_and_changed_settings_are_doubts() {
    let settings = std::sync::Mutex::new([("vm.swappiness", "60"), ("vm.swappiness", "10")].into());
    let machine =
        FakeHost { resolution: 100_000_000, settings, below: vec!["FUSE".into()], ..machine(&[]) };
    let plan = Plan { trials: 6..=6, ..Plan::default() };
    let mut workload = FakeWorkload::values(&[1.0, 2.0]);
    let run = run_fake(&mut workload, &plan, &machine).unwrap().run;
    let interval = doubts(&run, DoubtReason::Interval)[0];
    assert!(interval.starts_with("the 95 % interval of \"rate\" is +-33.3 %"), "{interval}");
    assert_eq!(
        doubts(&run, DoubtReason::Clock),
        ["phase \"work\" took only 1.00 s once, and the clock has a resolution of 100 ms"]
    );
    let changed = "settings changed during the run: vm.swappiness from 60 to 10";
    assert_eq!(doubts(&run, DoubtReason::SettingsChanged), [changed]);
    assert_eq!(doubts(&run, DoubtReason::Below), ["FUSE"], "said once, not per trial");
    let few = Plan { trials: 3..=3, ..plan };
    let run = run_fake(&mut FakeWorkload::values(&[1.0]), &few, &machine).unwrap().run;
    assert!(doubts(&run, DoubtReason::Interval)[0].ends_with("of \"rate\" needs 6 trials, not 3"));
}

#[test]
fn progress_names_steps_and_counts_trials() {
    use Step::{CleaningUp, Preparing, Running, Starting};

    let mut steps = Vec::new();
    let plan = Plan { trials: 2..=2, confidence: None, ..Plan::default() };
    let machine = machine(&[]);
    let mut on_progress = |progress: Progress| steps.push((progress.step, progress.done));
    run_trials(&mut FakeWorkload::values(&[1.0]), &plan, &machine, &no_stop(), &mut on_progress)
        .unwrap();
    let trial = |done| [(Starting, done), (Running, done)];
    let expected = [vec![(Preparing, 0)], trial(0).into(), trial(1).into(), vec![(CleaningUp, 2)]];
    assert_eq!(steps, expected.concat());
}

/// Runs four workers within a trial, and returns the result.
fn run_four_workers<F>(step: F) -> Result<RunResult, BenchError>
where
    F: Fn(&mut Vec<usize>, worker_pool::PhaseContext<'_>) -> Result<(), BenchError>
        + Sync
        + Clone
        + 'static,
{
    let mut workload = FakeWorkload::doing(move |context| {
        let mut workers: Vec<Vec<usize>> = vec![Vec::new(); 4];
        let phases =
            worker_pool::run(context, &["write", "read", "remove"], &mut workers, step.clone())?;
        assert!(workers.iter().all(|phases| *phases == [0, 1, 2]), "{workers:?}");
        Ok(Outcome { phases, ..rate(1.0) })
    });
    let plan = Plan { trials: 1..=1, confidence: None, ..Plan::default() };
    run_fake(&mut workload, &plan, &machine(&[]))
}

#[test]
fn no_worker_begins_a_phase_before_all_have_ended_the_one_before() {
    let entered = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let seen = Arc::clone(&entered);
    let result = run_four_workers(move |worker, current| {
        worker.push(current.phase);
        seen[current.phase].fetch_add(1, Ordering::SeqCst);
        if current.phase > 0 {
            assert_eq!(seen[current.phase - 1].load(Ordering::SeqCst), 4, "all four went before");
        }
        Ok(())
    });
    let run = result.unwrap().run;
    let names: Vec<&str> = run.trials[0].phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["write", "read", "remove"]);
    assert!(run.trials[0].phases.iter().all(|phase| phase.duration_ns >= 10));
}

#[test]
fn a_worker_that_fails_or_panics_holds_up_nobody() {
    let failing = run_four_workers(|worker, current| {
        worker.push(current.phase);
        let bad = current.worker == 2 && current.phase == 1;
        if bad { Err(BenchError::Failed("read /x: broken".to_owned())) } else { Ok(()) }
    });
    assert_eq!(failing.unwrap_err().to_string(), "read /x: broken");
    let panicking = run_four_workers(|worker, current| {
        worker.push(current.phase);
        assert!(current.worker != 1 || current.phase != 2, "on purpose");
        Ok(())
    });
    let error = panicking.unwrap_err().to_string();
    assert_eq!(error, "go on: thread 1 panicked in phase \"remove\"");
}

#[test]
fn latencies_are_kept_as_they_were_counted() {
    let histogram = Histogram::default();
    for time in [5, 5, 2_000, 1_000_000] {
        histogram.record(time);
    }
    let mut times = HistogramSnapshot::default();
    histogram.add_to(&mut times);
    let expected = times.clone();
    let mut workload = FakeWorkload::doing(move |_| {
        Ok(Outcome { latencies: vec![("read".to_owned(), times.clone())], ..rate(1.0) })
    });
    let plan = Plan { trials: 1..=1, confidence: None, ..Plan::default() };
    let run = run_fake(&mut workload, &plan, &machine(&[])).unwrap().run;
    let kept = &run.trials[0].latencies[0];
    assert_eq!((kept.count(), kept.sum_ns, kept.max_ns), (4, expected.sum(), expected.max()));
    for part in [0.0, 0.5, 0.75, 1.0] {
        assert_eq!(kept.quantile_ns(part), expected.quantile(part), "{part}");
    }
}

#[test]
fn series_of_a_group_are_named_by_their_place() {
    let series =
        Series::new("throughput", "MB/s", None).at(&[("clients", 4.0), ("record", 8192.0)]);
    assert_eq!(series.name, "throughput at clients 4, record 8192");
    assert_eq!(series.group.as_deref(), Some("throughput"));
    assert_eq!(series.at["record"].to_string(), "8192");
}
