//! Fileload over real files: the amount and distribution of reads, cleanup, and errors.

use super::super::testing::{FakeHost, no_stop};
use super::super::{Plan, Start, run_trials};
use super::*;
use larder_schema::run::Run;
use std::sync::atomic::{AtomicBool, Ordering};

const FILE: u64 = 256 << 10;

fn pattern(order: Order, read_bytes: &[u64]) -> ReadPattern {
    let read_bytes = read_bytes.to_vec();
    ReadPattern { order, read_bytes, reads: None, in_flight: 1, hint: Hint::Normal }
}

fn machine() -> FakeHost {
    FakeHost { free_bytes: 1 << 30, ..FakeHost::default() }
}

fn play_on(
    bench: &mut FileloadBench,
    machine: &FakeHost,
    stop: &AtomicBool,
) -> Result<Run, String> {
    let plan = Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() };
    let result = run_trials(bench, &plan, machine, stop, &mut |_| ());
    result.map(|result| result.run).map_err(|error| error.to_string())
}

fn files(directory: &Path, count: u64) -> Vec<(PathBuf, u64)> {
    let file = |number| {
        let path = directory.join(format!("file-{number}"));
        std::fs::write(&path, vec![1; usize::try_from(FILE).unwrap()]).unwrap();
        (path, FILE)
    };
    (0..count).map(file).collect()
}

fn names_in(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn each_read_size_is_a_part_and_every_read_has_a_response_time() {
    let directory = tempfile::tempdir().unwrap();
    let set = FileSet::new(directory.path(), 2, FILE, Hint::Normal);
    let pattern = pattern(Order::Database, &[4096, 16384]);
    let mut bench = FileloadBench::new(pattern, vec![set]).unwrap();
    let run = play_on(&mut bench, &machine(), &no_stop()).unwrap();
    assert_eq!(names_in(directory.path()), 0, "what was made is removed");
    let names: Vec<_> = run.samples.iter().map(|sample| sample.series.as_str()).collect();
    assert_eq!(
        names,
        [
            "throughput at read_bytes 4096",
            "reads at read_bytes 4096",
            "response time at read_bytes 4096",
            "throughput at read_bytes 16384",
            "reads at read_bytes 16384",
            "response time at read_bytes 16384",
        ]
    );
    for sample in &run.samples {
        assert_eq!(sample.values.len(), 2);
        assert!(sample.values.iter().all(|value| *value > 0.0), "{sample:?}");
    }
    for trial in &run.trials {
        let counts: Vec<_> =
            trial.latencies.iter().map(|it| (it.what.as_str(), it.count())).collect();
        assert_eq!(counts, [("reads of 4 KiB", 2 * 64), ("reads of 16 KiB", 2 * 16)]);
    }
    let value = |name: &str| run.sample(name).unwrap().values[0];
    let [throughput, reads] = [value(names[0]), value(names[1])];
    assert!((throughput / reads - 4096.0).abs() < 1e-6);
}

#[test]
fn sets_have_series_of_their_own_and_files_that_were_there_stay() {
    let (part_series, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let set = |name, directory: &Path| {
        FileSet::existing(name, &files(directory, 3), vec![7; 3], Hint::Sequential)
    };
    let sets = vec![set("near", part_series.path()), set("far", other.path())];
    let pattern = ReadPattern { hint: Hint::Sequential, ..pattern(Order::Sequential, &[8192]) };
    let mut bench = FileloadBench::new(pattern, sets).unwrap();
    let run = play_on(&mut bench, &machine(), &no_stop()).unwrap();
    assert_eq!(names_in(part_series.path()) + names_in(other.path()), 6);
    assert!(run.sample("throughput, near").is_some() && run.sample("response time, far").is_some());
    assert_eq!(run.settings["users"], 3);
    assert_eq!(run.settings["extents"], json!({"near": [7, 7, 7], "far": [7, 7, 7]}));
    let counts: Vec<_> =
        run.trials[0].latencies.iter().map(|it| (it.what.as_str(), it.count())).collect();
    assert_eq!(counts, [("reads, near", 3 * 32), ("reads, far", 3 * 32)]);
    assert_eq!(
        run.what,
        "Fileload: sequential, reads of 8 KiB, 1 in flight by each of 3 users, hint sequential"
    );
}

#[test]
fn reads_in_flight_share_the_places_of_their_user() {
    let directory = tempfile::tempdir().unwrap();
    let set = FileSet::existing("", &files(directory.path(), 1), Vec::new(), Hint::Random);
    let load = pattern(Order::Sequential, &[4096]);
    let load = ReadPattern { reads: Some(1000), in_flight: 7, hint: Hint::Random, ..load };
    let user = User::new(&load, &set.files[0], 4096, 5).unwrap();
    let mut readers: Vec<_> = (0..7).map(|_| user.reader().unwrap()).collect();
    let (machine, stop) = (machine(), no_stop());
    let context = super::super::testing::trial_context(&machine, &stop);
    worker_pool::run(&context, &["read"], &mut readers, |reader, _| reader.work(&context)).unwrap();
    let mut all = HistogramSnapshot::default();
    for reader in &readers {
        reader.times.add_to(&mut all);
    }
    assert_eq!((all.count(), user.next()), (1000, None));
}

#[test]
fn the_places_that_are_read_are_those_of_the_seed() {
    let directory = tempfile::tempdir().unwrap();
    let set = FileSet::existing("", &files(directory.path(), 1), Vec::new(), Hint::Normal);
    let pattern = pattern(Order::Random, &[4096]);
    let user = User::new(&pattern, &set.files[0], 4096, 9).unwrap();
    let offsets: Vec<u64> = std::iter::from_fn(|| user.next()).collect();
    let load = Fileload::new(Order::Random, FILE, 4096).unwrap();
    assert!(load.offsets(9).take(64).eq(offsets));
}

#[test]
fn files_that_are_too_small_or_gone_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let set = || FileSet::existing("", &files(directory.path(), 1), Vec::new(), Hint::Normal);
    let error = FileloadBench::new(pattern(Order::Random, &[4096, 1 << 20]), vec![set()]);
    assert!(error.unwrap_err().to_string().starts_with("read a file of 262144 bytes"));
    let mut bench = FileloadBench::new(pattern(Order::Random, &[4096]), vec![set()]).unwrap();
    std::fs::remove_file(directory.path().join("file-0")).unwrap();
    let error = play_on(&mut bench, &machine(), &no_stop()).unwrap_err();
    assert!(error.starts_with("open ") && error.contains("file-0"), "{error}");
}

#[test]
fn a_file_that_shrinks_is_an_error_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let set = FileSet::existing("", &files(directory.path(), 1), Vec::new(), Hint::Normal);
    let mut bench = FileloadBench::new(pattern(Order::Sequential, &[4096]), vec![set]).unwrap();
    std::fs::write(directory.path().join("file-0"), [1; 5000]).unwrap();
    let error = play_on(&mut bench, &machine(), &no_stop()).unwrap_err();
    assert_eq!(error, "read 4096 bytes at 4096: failed to fill whole buffer");
}

#[test]
fn what_was_made_is_removed_after_a_stop_and_when_there_is_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let bench = || {
        let set = FileSet::new(directory.path(), 2, FILE, Hint::Normal);
        FileloadBench::new(pattern(Order::Random, &[4096]), vec![set]).unwrap()
    };
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    assert!(play_on(&mut bench(), &machine(), &stop).unwrap_err().contains("stopped"));
    let small = FakeHost { free_bytes: FILE, ..FakeHost::default() };
    let error = play_on(&mut bench(), &small, &no_stop()).unwrap_err();
    assert!(error.contains("it needs 512 KiB and 256 KiB are free"), "{error}");
    assert_eq!(names_in(directory.path()), 0);
}
