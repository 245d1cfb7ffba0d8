//! PostMark trials on a fake host: counts, cleanup, and refusals.

use super::*;
use crate::bench::testing::{FakeHost, no_stop, trial_context};
use crate::bench::{Plan, Start, run_trials};
use crate::workload::postmark::Config;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};

fn bench(directory: &std::path::Path) -> PostmarkBench {
    let location = Location { path: directory.as_os_str().into(), weight: 1 };
    PostmarkBench::new(Options::new(Config {
        number: 20,
        transactions: 100,
        locations: vec![location],
        ..Config::default()
    }))
}

#[test]
fn every_trial_does_the_same_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(directory.path());
    let plan = Plan { start: Start::Cold, trials: 3..=3, ..Plan::default() };
    let result =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap();
    let run = result.run;
    assert_eq!(run.main.as_deref(), Some("transactions"));
    for (name, ..) in &SERIES[8..] {
        let values = &run.sample(name).unwrap().values;
        let same = values.iter().all(|value| value.to_bits() == values[0].to_bits());
        assert!(values[0] > 0.0 && same, "{name}");
    }
    let deleted = run.sample("deleted").unwrap().values[0];
    assert_eq!(run.sample("created").unwrap().values[0].to_bits(), deleted.to_bits());
    assert!(run.sample("transactions").unwrap().values.iter().all(|rate| *rate > 0.0));
    for trial in &run.trials {
        let phases: Vec<_> = trial.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(phases, ["create", "transactions", "delete"]);
        let times: Vec<_> = trial.latencies.iter().map(|times| times.what.as_str()).collect();
        assert_eq!(times, ["create", "read", "append", "delete"]);
    }
    assert!(run.doubts.iter().any(|doubt| doubt.text.starts_with("nothing is made stable")));
    assert_eq!(run.settings["postmark_seed"], 42);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_is_refused_ends_the_run_with_its_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(&directory.path().join("missing"));
    let machine = FakeHost::default();
    let error =
        run_trials(&mut bench, &Plan::default(), &machine, &no_stop(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("make a directory "), "{error}");
}

fn options(directories: &[&Path]) -> Options {
    let location = |path: &&Path| Location { path: path.as_os_str().into(), weight: 2 };
    Options::new(Config {
        number: 30,
        transactions: 200,
        subdirectories: 3,
        locations: directories.iter().map(location).collect(),
        ..Config::default()
    })
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// Runs one trial.
fn run(options: &Options, stop: &AtomicBool) -> Result<Outcome, BenchError> {
    let host = FakeHost::default();
    PostmarkBench::new(options.clone()).trial(&trial_context(&host, stop))
}

/// Starts a trial that would take minutes, calls `interrupt` once it has made files, and returns
/// the error with which it ends.
fn interrupt_run(
    options: &Options,
    directory: &Path,
    interrupt: impl FnOnce(&AtomicBool, &Path),
) -> String {
    let mut long = options.clone();
    // Without creation and deletion, the files cannot run out.
    (long.config.transactions, long.config.bias_create) = (2_000_000, None);
    let stop = no_stop();
    let work = directory.join(format!("larder-postmark-{}-0", std::process::id()));
    std::thread::scope(|scope| {
        let handle = scope.spawn(|| run(&long, &stop));
        let last = format!("t{}/s2", options.threads.get() - 1);
        while is_empty_or_missing(&work.join(&last)) {
            assert!(!handle.is_finished(), "it is long");
            std::thread::yield_now();
        }
        interrupt(&stop, &work);
        handle.join().unwrap().unwrap_err().to_string()
    })
}

fn is_empty_or_missing(directory: &Path) -> bool {
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

/// Checks that the values of the series are these counts.
fn assert_counts(outcome: &Outcome, counts: &Counts) {
    let known = [
        counts.created,
        counts.read,
        counts.appended,
        counts.deleted,
        counts.bytes_read.bytes,
        counts.bytes_written.bytes,
    ];
    for ((name, ..), count) in SERIES[8..].iter().zip(known) {
        #[expect(clippy::cast_precision_loss, reason = "exact")]
        let count = count as f64;
        assert_eq!(outcome.values[*name].to_bits(), count.to_bits(), "{name}");
    }
}

/// Returns the counts of the same configuration without I/O.
fn model_counts(config: &Config) -> Counts {
    let mut engine = Engine::new(config, None).unwrap();
    let mut model = Model::new(config.locations.len());
    for _ in 0..config.number {
        let Ok(()) = engine.create(&mut model);
    }
    for _ in 0..config.transactions {
        let Ok(()) = engine.transaction(&mut model);
    }
    for index in 0..engine.places() {
        let Ok(()) = engine.delete_at(index, &mut model);
    }
    engine.counts
}

#[test]
fn one_thread_does_what_the_original_does_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for (buffered, fsync) in [true, false].into_iter().zip([Fsync::None, Fsync::Transaction]) {
        let mut options = options(&[directory.path()]);
        options.config.buffered = buffered;
        options.fsync = fsync;
        let outcome = run(&options, &no_stop()).unwrap();
        let counts = model_counts(&options.config);
        assert_counts(&outcome, &counts);
        let count = |operation| {
            let found = outcome.latencies.iter().find(|(name, _)| name == operation);
            found.map_or(0, |found| found.1.count())
        };
        assert_eq!(count("create"), counts.created);
        assert_eq!(count("read"), counts.read);
        assert_eq!(count("append"), counts.appended);
        assert_eq!(count("delete"), counts.deleted);
        assert_eq!(count("sync") > 0, fsync == Fsync::Transaction);
        let room_bytes = PostmarkBench::new(options).room_bytes().unwrap();
        assert!(outcome.values["transactions"] > 0.0 && room_bytes > 30 * 500);
        assert!(is_empty(directory.path()));
    }
}

#[test]
fn threads_have_seeds_and_files_of_their_own_in_all_locations() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut options = options(&[directories[0].path(), directories[1].path()]);
    options.threads = NonZero::new(3).unwrap();
    for (fsync, _) in Fsync::ALL {
        options.fsync = fsync;
        let outcome = run(&options, &no_stop()).unwrap();
        let mut expected = Counts::default();
        let each = (0..3).map(|thread| options.of_thread(thread));
        let seeds: std::collections::BTreeSet<_> = each
            .inspect(|config| expected.add(&model_counts(config)))
            .map(|config| config.seed)
            .collect();
        assert_eq!(seeds.len(), 3);
        assert_counts(&outcome, &expected);
        assert!(directories.iter().all(|directory| is_empty(directory.path())));
    }
}

#[test]
fn a_run_that_is_stopped_removes_what_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&[directory.path()]);
    let error = interrupt_run(&options, directory.path(), |stop, _| {
        assert!(!is_empty(directory.path()));
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(error, "go on: it was stopped");
    assert!(is_empty(directory.path()));
}

#[test]
fn what_cannot_be_done_is_refused_before_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |options: &Options| {
        let error = run(options, &no_stop()).unwrap_err().to_string();
        assert!(is_empty(directory.path()), "{error}");
        error
    };
    let mut wrong = options(&[directory.path()]);
    wrong.config.bias_create = Some(0);
    assert_eq!(
        refused(&wrong),
        "do all transactions: after 30 of 200 no file is left; begin with more files, do fewer \
         transactions, or create more often than delete"
    );
    let missing = directory.path().join("missing");
    let error = refused(&options(&[directory.path(), &missing]));
    let start = format!("make a directory in {}: ", missing.display());
    assert!(error.starts_with(&start) && error.contains("No such file"), "{error}");
    let mut huge = options(&[directory.path()]);
    huge.config.size_low = 1 << 26;
    huge.config.size_high = 1 << 26;
    huge.config.number = 2_000_000;
    huge.config.transactions = 1;
    let error = refused(&huge);
    assert!(error.contains("the files need 122 TiB, and "), "{error}");
}

#[test]
fn the_first_error_of_a_file_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(&[directory.path()]);
    options.threads = NonZero::new(2).unwrap();
    let taken = directory.path().join("taken");
    let error = interrupt_run(&options, directory.path(), |_, work| {
        // Moves the files of the second thread away.
        std::fs::rename(work.join("t1"), &taken).unwrap();
    });
    assert!(error.contains("/t1/") && error.contains("No such file"), "{error}");
    std::fs::remove_dir_all(taken).unwrap();
    assert!(is_empty(directory.path()));
}
