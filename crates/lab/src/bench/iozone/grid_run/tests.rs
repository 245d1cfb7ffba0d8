//! A small grid: measurements, cleanup, and the position of records.

use super::*;
use crate::bench::iozone::grid::{Cell, Sizes};
use crate::bench::iozone::order;
use crate::bench::iozone::passes::passes;
use crate::bench::iozone::records::first_mark;
use crate::bench::iozone::run;
use crate::bench::iozone::show::widest;
use crate::bench::iozone::subject::{Sync, TestFile};
use crate::bench::testing::{FakeHost, no_stop, trial_context};
use crate::bench::{Plan, Progress, Start};
use crate::random::mark_bytes;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const KIB: u64 = 1024;

fn host() -> FakeHost {
    FakeHost { free_bytes: 1 << 30, ..FakeHost::default() }
}

fn grid_run(directory: &TempDir, tests: &[u8]) -> GridRun {
    let grid = Grid {
        files: Sizes::List(vec![16 * KIB, 64 * KIB]),
        records: Sizes::List(vec![4 * KIB, 32 * KIB]),
        ..Grid::default()
    };
    let directory = directory.path().to_path_buf();
    GridRun { grid, tests: tests.to_vec(), access: AccessPattern::default(), directory }
}

fn plan() -> Plan {
    Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
}

#[test]
fn every_test_is_measured_in_every_cell_and_nothing_is_left_behind() {
    let directory = TempDir::new().unwrap();
    let grid = grid_run(&directory, &[0, 1, 2, 3, 4, 5, 6, 7, 9, 10]);
    let mut parts = Vec::new();
    let mut on_progress = |at: Progress| parts.push(at.part);
    let result = run(&grid, &plan(), &host(), &no_stop(), &mut on_progress).unwrap();
    assert!(!result.stopped);
    let run = result.run;
    // Three cells; 17 columns, 8 of which write and have a rate with the flush as well.
    assert_eq!(run.samples.len(), 3 * (17 + 8));
    assert!(run.samples.iter().all(|sample| sample.values.len() == 2));
    assert!(run.samples.iter().all(|sample| sample.values.iter().all(|&rate| rate > 0.0)));
    assert_eq!(run.trials.len(), 2);
    assert_eq!(run.trials[0].phases.len(), 17);
    assert_eq!((parts.last(), grid.parts().len()), (Some(&29), 30));
    assert_eq!(grid.parts()[29].what, "test 10 on 64 KiB in records of 32 KiB");
    for column in columns(&grid.tests) {
        let table = grid.table(&run, &column, false);
        let words: Vec<&str> = table.lines().skip(3).flat_map(str::split_whitespace).collect();
        let measured: Vec<bool> = words.iter().map(|word| *word != "-").collect();
        assert_eq!(measured, [true, true, false, true, true, true], "{table}");
        assert!(table.contains(column.report), "{table}");
    }
    let rows = grid.rows(&run, false);
    let words: Vec<Vec<&str>> =
        rows.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words.len(), 2 + 3, "{rows}");
    assert_eq!(words[0][..4], ["kB", "reclen", "write", "rewrite"]);
    assert!([0, 2, 3, 4].iter().all(|&line| words[line].len() == 2 + 17), "{rows}");
    assert_eq!(words[4][..2], ["64", "32"]);
    let plain = widest(&run, false).unwrap();
    assert!(plain.1 >= 0.0 && !plain.0.contains("flushed"), "{plain:?}");
    assert!(widest(&run, true).unwrap().1 >= plain.1);
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_rate_with_the_flush_is_never_the_higher_one() {
    let directory = TempDir::new().unwrap();
    let grid = grid_run(&directory, &[0]);
    let run = run(&grid, &plan(), &host(), &no_stop(), &mut |_| {}).unwrap().run;
    let of = |group: &str| {
        let samples = run.samples.iter().filter(|s| s.group.as_deref() == Some(group));
        samples.flat_map(|sample| sample.values.clone()).collect::<Vec<_>>()
    };
    let (without, with) = (of("write"), of("write, flushed"));
    assert_eq!((without.len(), with.len()), (6, 6));
    assert!(without.iter().zip(&with).all(|(without, with)| with < without));
}

#[test]
fn a_stop_gives_what_there_is_and_removes_the_file() {
    let directory = TempDir::new().unwrap();
    let stop = no_stop();
    let mut on_progress = |at: Progress| {
        if at.part == 2 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let grid = grid_run(&directory, &[0, 1]);
    let result = run(&grid, &plan(), &host(), &stop, &mut on_progress).unwrap();
    assert!(result.stopped);
    assert_eq!(result.run.samples.len(), 6, "both tests of the first cell");
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_file_of_others_is_never_touched() {
    let directory = TempDir::new().unwrap();
    let foreign_file = directory.path().join(format!("larder-iozone-{}", std::process::id()));
    std::fs::write(&foreign_file, "theirs").unwrap();
    let grid = grid_run(&directory, &[0]);
    let error = run(&grid, &plan(), &host(), &no_stop(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    assert_eq!(std::fs::read(&foreign_file).unwrap(), b"theirs");
}

#[test]
fn nothing_to_measure_and_no_room_are_said() {
    let directory = TempDir::new().unwrap();
    let none = run(&grid_run(&directory, &[8]), &plan(), &host(), &no_stop(), &mut |_| {});
    assert!(none.unwrap_err().to_string().contains("record size is left"));
    let (grid, full) = (grid_run(&directory, &[0]), FakeHost::default());
    let full = run(&grid, &plan(), &full, &no_stop(), &mut |_| {});
    assert!(full.unwrap_err().to_string().contains("it needs 16 KiB and 0 B are free"));
}

#[test]
fn records_are_where_they_belong_whatever_the_order() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    let (host, stop) = (host(), no_stop());
    let context = trial_context(&host, &stop);
    let cell = Cell { file_bytes: 40 * 4 * KIB, record_bytes: 4 * KIB };
    for sync in [Sync::None, Sync::Data, Sync::All] {
        let pattern =
            AccessPattern { sync, close_counts: sync == Sync::Data, ..AccessPattern::default() };
        let mut test_file = TestFile::new(&context, &path, cell, pattern, 3);
        let mut written = 0;
        for test in [0, 9, 6, 2, 4] {
            let results = test_file.run(test).unwrap();
            assert_eq!(results.len(), passes(test).len());
            assert!(results.iter().all(|one| one.bytes == cell.file_bytes));
            assert!(results.iter().all(|one| one.times.count() == 40));
            written += 40 * passes(test).iter().filter(|pass| pass.writes).count() as u64;
            let file = std::fs::File::open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().len(), cell.file_bytes);
            // The last pass of each of these tests writes.
            let order = passes(test).last().unwrap().order.numbers(40, order::STRIDE);
            for (index, record) in order.enumerate().skip(if test == 4 { 39 } else { 0 }) {
                let mut begin = [0; 8];
                file.read_exact_at(&mut begin, record * cell.record_bytes).unwrap();
                let mark = first_mark(&cell, 3, written - 40 + index as u64);
                assert_eq!(begin, mark_bytes(mark), "test {test}, record {record}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn only_the_first_pass_of_a_test_makes_the_file_anew() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    let (host, stop) = (host(), no_stop());
    let context = trial_context(&host, &stop);
    let cell = Cell { file_bytes: 64 * KIB, record_bytes: 4 * KIB };
    // The file is longer than the test makes it: only a pass that creates the file truncates it.
    let mut test_file = TestFile::new(&context, &path, cell, AccessPattern::default(), 0);
    for test in [0, 6, 9] {
        for (pass, length) in passes(test).iter().zip([64 * KIB, 100 * KIB]) {
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(100 * KIB).unwrap();
            test_file.pass(pass).unwrap();
            test_file.flush().unwrap();
            assert_eq!(path.metadata().unwrap().len(), length, "test {test}");
        }
    }
}

#[test]
fn closing_counts_if_it_is_to_and_before_the_flush() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    let (host, stop) = (host(), no_stop());
    let context = trial_context(&host, &stop);
    let cell = Cell { file_bytes: 8 * KIB, record_bytes: 4 * KIB };
    // The clock of the fake host advances by 10 with each reading: 10 for a record, a flush and a
    // close.
    for (close_counts, known) in [(false, [20, 30]), (true, [30, 40])] {
        let pattern = AccessPattern { close_counts, ..AccessPattern::default() };
        let results = TestFile::new(&context, &path, cell, pattern, 0).run(0).unwrap();
        assert!(results.iter().all(|one| [one.took, one.took_flushed.unwrap()] == known));
        let read = TestFile::new(&context, &path, cell, pattern, 0).run(1).unwrap();
        assert_eq!(read[0].took, known[0]);
        assert_eq!(read[0].took_flushed, None);
    }
}
