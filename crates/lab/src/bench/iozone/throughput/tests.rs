//! Small throughput runs: consistent figures, the stonewall, and complete files.

use super::*;
use crate::bench::iozone::mode::IozoneBench;
use crate::bench::iozone::run;
use crate::bench::testing::{FakeHost, no_stop, trial_context};
use crate::bench::{Plan, Progress, Start, Workload};
use tempfile::TempDir;

const KIB: u64 = 1024;

fn host() -> FakeHost {
    FakeHost { free_bytes: 1 << 30, ..FakeHost::default() }
}

fn throughput(directory: &TempDir, tests: &[u8]) -> ThroughputRun {
    ThroughputRun {
        threads: vec![1, 3],
        cell: Cell { file_bytes: 256 * KIB, record_bytes: 4 * KIB },
        tests: tests.to_vec(),
        access: AccessPattern::default(),
        stonewall: true,
        readers: READERS,
        directory: directory.path().to_path_buf(),
    }
}

fn plan() -> Plan {
    Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
}

#[test]
fn every_kind_is_measured_with_each_number_of_threads_and_nothing_is_left_behind() {
    let directory = TempDir::new().unwrap();
    let all = throughput(&directory, &[0, 1, 2, 3, 5, 6, 7, 8, 9, 10]);
    let mut last = None;
    let mut on_progress = |at: Progress| last = Some(at.part);
    let result = run(&all, &plan(), &host(), &no_stop(), &mut on_progress).unwrap();
    assert!(!result.stopped);
    let run = result.run;
    // Thirteen kinds, six of which write: the mixed one with a single thread only reads.
    assert_eq!(run.samples.len(), 2 * 13 * 6 + 6 + 5);
    assert!(run.samples.iter().all(|sample| sample.values.len() == 2));
    let parts = Workload::parts(&IozoneBench::new(&all));
    assert_eq!((last, parts.len()), (Some(19), 20));
    assert_eq!(parts[19].what, "test 10 by 3 threads");
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), 40 * 256 * KIB);
    for kind in KINDS {
        for threads in [1, 3] {
            let value = |figure| median_of(&run, &kind, figure, threads).unwrap();
            let [parent, children] = [value(Figure::Parent), value(Figure::Children)];
            let [min, avg, max] = [Figure::Min, Figure::Avg, Figure::Max].map(value);
            assert!(parent > 0.0 && max > 0.0, "{kind:?}");
            assert!(min <= avg && avg <= max && max <= children, "{kind:?}");
            let flushed = median_of(&run, &kind, Figure::ParentFlushed, threads);
            assert!(flushed.is_none_or(|flushed| flushed < parent), "{kind:?}");
        }
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    let table = all.tables(&run, false);
    assert_eq!(table.lines().count(), 5 + 1 + 13, "{table}");
    assert!(!table.contains(" -"), "{table}");
}

#[test]
fn a_test_that_is_not_of_this_mode_is_nothing() {
    let directory = TempDir::new().unwrap();
    let error = run(&throughput(&directory, &[4]), &plan(), &host(), &no_stop(), &mut |_| {});
    assert!(error.unwrap_err().to_string().contains("record size is left"));
    assert!(kinds(&[4]).is_empty());
}

#[test]
fn with_the_wall_files_are_whole_in_the_end_and_without_it_all_is_moved() {
    for stonewall in [true, false] {
        let directory = TempDir::new().unwrap();
        let (host, stop) = (host(), no_stop());
        let context = trial_context(&host, &stop);
        let threads = vec![4];
        let mode = ThroughputRun { threads, stonewall, ..throughput(&directory, &[0, 1]) };
        let mut test = IozoneBench::new(&mode);
        test.prepare(&context).unwrap();
        let outcome = test.trial(&context).unwrap();
        for file in &test.files() {
            assert_eq!(file.metadata().unwrap().len(), 256 * KIB);
            // No block was left out: each begins with a mark, and none is 0.
            let bytes = std::fs::read(file).unwrap();
            assert!(bytes.chunks(512).skip(1).all(|part| part[..8] != [0; 8]));
        }
        let least = |kind: &Kind| outcome.values[&series(kind, Figure::MinMoved, 4).name];
        #[expect(clippy::cast_precision_loss, reason = "exact")]
        let whole = (256 * KIB) as f64;
        for kind in kinds(&[0]) {
            assert!((0.0..=whole).contains(&least(&kind)));
            assert!(stonewall || least(&kind).total_cmp(&whole).is_eq());
        }
        assert!(stonewall || outcome.doubts.is_empty());
        let names: Vec<&str> = outcome.phases.iter().map(|phase| phase.name.as_str()).collect();
        let rest = ["initial write", "initial write, flush", "initial write, the rest"];
        assert_eq!(names.starts_with(&rest), stonewall, "{names:?}");
    }
}

#[test]
fn a_wall_that_stands_ends_a_pass_before_its_first_record() {
    use super::super::passes::{MAKE, passes};
    use super::super::subject::{Stonewall, TestFile};
    use std::sync::atomic::Ordering;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    let (host, stop) = (host(), no_stop());
    let context = trial_context(&host, &stop);
    let cell = Cell { file_bytes: 16 * KIB, record_bytes: 4 * KIB };
    let mut test_file = TestFile::new(&context, &path, cell, AccessPattern::default(), 0);
    let wall = Stonewall::new(true);
    test_file.set_wall(Some(&wall));
    assert_eq!(test_file.pass(&MAKE).unwrap().bytes, 0);
    test_file.complete(0).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 16 * KIB);
    // The first thread that finishes sets it for the others.
    wall.store(false, Ordering::Relaxed);
    test_file.set_wall(Some(&wall));
    assert_eq!(test_file.pass(&passes(1)[0]).unwrap().bytes, 16 * KIB);
    assert!(wall.load(Ordering::Relaxed));
}

#[test]
fn readers_of_the_mixed_test_take_turns_or_are_a_share() {
    let directory = TempDir::new().unwrap();
    let reads = |readers: f64| {
        let run = ThroughputRun { readers, ..throughput(&directory, &[8]) };
        (0..5).map(|thread| run.reads(thread, 5)).collect::<Vec<_>>()
    };
    assert_eq!(reads(READERS), [true, false, true, false, true]);
    assert_eq!(reads(0.2), [true, false, false, false, false]);
    assert_eq!((reads(0.0), reads(1.0)), (vec![false; 5], vec![true; 5]));
}

#[test]
fn files_of_others_are_never_touched() {
    let directory = TempDir::new().unwrap();
    let foreign_file = super::super::mode::work_directory(directory.path());
    std::fs::write(&foreign_file, "theirs").unwrap();
    let mode = throughput(&directory, &[0]);
    let error = run(&mode, &plan(), &host(), &no_stop(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    assert_eq!(std::fs::read(&foreign_file).unwrap(), b"theirs");
    let full = run(&mode, &plan(), &FakeHost::default(), &no_stop(), &mut |_| {});
    assert!(full.is_err());
}

#[test]
fn what_is_seen_and_the_table_never_run_together() {
    let value = |figure| {
        Some(match figure {
            Figure::Children => 1e15,
            Figure::Parent => 5e14,
            Figure::ParentFlushed => return None,
            Figure::Min => 0.0,
            Figure::Max => 2e12,
            Figure::Avg => 1e12,
            Figure::MinMoved => 512.0 * 1024.0,
        })
    };
    let text = figures_text(1024, "initial writers", value).unwrap();
    let first = "Children see throughput for 1024 initial writers = 976562500000.00 kB/sec";
    assert_eq!(text.lines().next(), Some(first));
    assert!(text.ends_with("512.00 kB\n") && !text.contains("flushed"), "{text}");
    assert_eq!(figures_text(1, "readers", |_| None), None);
    let rows = vec![
        ("initial write", vec![Some(1e15), Some(1.5 * 1024.0)]),
        ("mixed workload", vec![None, Some(0.0)]),
    ];
    let known = "\n\"Throughput report Y-axis is type of test X-axis is number of processes\"\n\
                 \"Record size = 64 kBytes \"\n\"Output is in kBytes/sec\"\n\n\
                 \"         threads \"              1             64\n\
                 \"   initial write \" 976562500000.00           1.50\n\
                 \"  mixed workload \"              -           0.00\n";
    assert_eq!(table_text(64 * KIB, &[1, 64], &rows), known);
}
