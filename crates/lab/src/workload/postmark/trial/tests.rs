//! Runs in temporary directories: counts, cleanup, and refusals.

use super::*;
use crate::workload::postmark::{Config, Location};
use std::num::NonZero;

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

/// Starts a run that would take minutes, calls `interrupt` once it has made files, and returns the
/// error with which it ends.
fn interrupt_run(options: &Options, interrupt: impl FnOnce(&Control<'_>)) -> String {
    let mut long = options.clone();
    // Without creation and deletion, the files cannot run out.
    (long.config.transactions, long.config.bias_create) = (2_000_000, None);
    let control = Control::default();
    std::thread::scope(|scope| {
        let handle = scope.spawn(|| run(&long, &control));
        while control.progress().0 < 100 {
            assert!(!handle.is_finished(), "it is long");
            std::thread::yield_now();
        }
        interrupt(&control);
        handle.join().unwrap().unwrap_err().to_string()
    })
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
    *engine.counts()
}

#[test]
fn one_thread_does_what_the_original_does_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for (buffered, fsync) in [true, false].into_iter().zip([Fsync::None, Fsync::Transaction]) {
        let mut options = options(&[directory.path()]);
        options.config.buffered = buffered;
        options.fsync = fsync;
        let outcome = run(&options, &Control::default()).unwrap();
        assert_eq!(outcome.counts, model_counts(&options.config));
        let count = |operation| {
            let found = outcome.operations.iter().find(|each| each.0 == operation);
            found.map_or(0, |found| found.1.count())
        };
        assert_eq!(count(Operation::Create), outcome.counts.created);
        assert_eq!(count(Operation::Read), outcome.counts.read);
        assert_eq!(count(Operation::Append), outcome.counts.appended);
        assert_eq!(count(Operation::Delete), outcome.counts.deleted);
        assert_eq!(count(Operation::Sync) > 0, fsync == Fsync::Transaction);
        assert!(outcome.transactions_per_s() > 0.0 && outcome.room_bytes_max > 30 * 500);
        assert!(is_empty(directory.path()));
    }
}

#[test]
fn threads_have_seeds_and_files_of_their_own_in_all_locations() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut options = options(&[directories[0].path(), directories[1].path()]);
    options.threads = NonZero::new(3).unwrap();
    for fsync in Fsync::ALL {
        options.fsync = fsync;
        let control = Control::default();
        let outcome = run(&options, &control).unwrap();
        let mut expected = Counts::default();
        let each = (0..3).map(|thread| options.of_thread(thread));
        let seeds: std::collections::BTreeSet<_> = each
            .inspect(|config| expected.add(&model_counts(config)))
            .map(|config| config.seed)
            .collect();
        assert_eq!(seeds.len(), 3);
        assert_eq!(outcome.counts, expected);
        assert_eq!(control.progress(), (3 * 230, 3 * 230));
        assert!(directories.iter().all(|directory| is_empty(directory.path())));
    }
}

#[test]
fn a_run_that_is_stopped_removes_what_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let error = interrupt_run(&options(&[directory.path()]), |control| {
        assert!(!is_empty(directory.path()));
        control.stop();
    });
    assert_eq!(error, "finish: it was stopped, and what it made has been removed");
    assert!(is_empty(directory.path()));
}

#[test]
fn what_cannot_be_done_is_refused_before_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |options: &Options| {
        let error = run(options, &Control::default()).unwrap_err().to_string();
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
    let start = format!("make a directory {}/larder-postmark-", missing.display());
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
    let error = interrupt_run(&options, |_| {
        // Moves the files of the second thread away.
        let work = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::rename(work.join("t1"), &taken).unwrap();
    });
    assert!(error.contains("/t1/") && error.contains("No such file"), "{error}");
    std::fs::remove_dir_all(taken).unwrap();
    assert!(is_empty(directory.path()));
}
