//! The grid in small: what is measured, what is left behind, and where records lie.

use super::*;
use crate::bench::Start;
use crate::bench::testing::{Double, never, trial_context};
use crate::random::mark_bytes;
use crate::workload::iozone::grid::{Cell, Sizes};
use crate::workload::iozone::order;
use crate::workload::iozone::passes::passes;
use crate::workload::iozone::records::first_mark;
use crate::workload::iozone::subject::{Sync, TestFile};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const KIB: u64 = 1024;

fn double() -> Double {
    Double { free_bytes: 1 << 30, ..Double::default() }
}

fn grid_run(directory: &TempDir, tests: &[u8]) -> GridRun {
    let grid = Grid {
        files: Sizes::List(vec![16 * KIB, 64 * KIB]),
        records: Sizes::List(vec![4 * KIB, 32 * KIB]),
        ..Grid::default()
    };
    let directory = directory.path().to_path_buf();
    GridRun { grid, tests: tests.to_vec(), manner: AccessPattern::default(), directory }
}

fn plan() -> Plan {
    Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
}

#[test]
fn every_test_is_measured_in_every_cell_and_nothing_is_left_behind() {
    let directory = TempDir::new().unwrap();
    let grid = grid_run(&directory, &[0, 1, 2, 3, 4, 5, 6, 7, 9, 10]);
    let mut cells = Vec::new();
    let mut watch = |at: Progressed<'_>| cells.push((at.what.to_owned(), at.done));
    let played = grid.run(&plan(), &double(), &never(), &mut watch).unwrap();
    assert!(!played.stopped);
    let run = played.run;
    // Three cells; 17 columns, 8 of which write and have a rate with the flush as well.
    assert_eq!(run.samples.len(), 3 * (17 + 8));
    assert!(run.samples.iter().all(|sample| sample.values.len() == 2));
    assert!(run.samples.iter().all(|sample| sample.values.iter().all(|&rate| rate > 0.0)));
    assert_eq!(run.trials.len(), 2);
    assert_eq!(run.trials[0].phases.len(), 17);
    let last = ("test 10 on 64 KiB in records of 32 KiB".to_owned(), [29, 30]);
    assert_eq!(cells.last().unwrap(), &last);
    for column in columns(&grid.tests) {
        let table = grid.table(&run, &column, false);
        let rates: Vec<bool> =
            table.files.iter().flat_map(|(_, rates)| rates).map(Option::is_some).collect();
        assert_eq!(rates, [true, false, true, true], "{column:?}");
        assert_eq!(RateTable::parse_all(&table.to_text()).unwrap().len(), 1);
    }
    let rows = grid.rows(&run, false).to_text();
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
    let run =
        grid_run(&directory, &[0]).run(&plan(), &double(), &never(), &mut |_| {}).unwrap().run;
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
    let stop = never();
    let mut watch = |at: Progressed<'_>| {
        if at.done[0] == 2 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let played = grid_run(&directory, &[0, 1]).run(&plan(), &double(), &stop, &mut watch).unwrap();
    assert!(played.stopped);
    assert_eq!(played.run.samples.len(), 6, "both tests of the first cell");
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_file_of_others_is_never_touched() {
    let directory = TempDir::new().unwrap();
    let theirs = directory.path().join(format!("larder-iozone-{}", std::process::id()));
    std::fs::write(&theirs, "theirs").unwrap();
    let error =
        grid_run(&directory, &[0]).run(&plan(), &double(), &never(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs");
}

#[test]
fn nothing_to_measure_and_no_room_are_said() {
    let directory = TempDir::new().unwrap();
    let none = grid_run(&directory, &[8]).run(&plan(), &double(), &never(), &mut |_| {});
    assert!(none.unwrap_err().to_string().contains("no cell or no test is left"));
    let full = grid_run(&directory, &[0]).run(&plan(), &Double::default(), &never(), &mut |_| {});
    assert!(full.unwrap_err().to_string().contains("it needs 16 KiB and 0 B are free"));
}

#[test]
fn records_are_where_they_belong_whatever_the_order() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    let (double, stop) = (double(), never());
    let stage = trial_context(&double, &stop);
    let cell = Cell { file_bytes: 40 * 4 * KIB, record_bytes: 4 * KIB };
    for sync in [Sync::None, Sync::Data, Sync::All] {
        let manner =
            AccessPattern { sync, close_counts: sync == Sync::Data, ..AccessPattern::default() };
        let mut subject = TestFile::new(&stage, &path, cell, manner, 3);
        let mut written = 0;
        for test in [0, 9, 6, 2, 4] {
            let passed = subject.run(test).unwrap();
            assert_eq!(passed.len(), passes(test).len());
            assert!(passed.iter().all(|one| one.bytes == cell.file_bytes));
            assert!(passed.iter().all(|one| one.times.count() == 40));
            written += 40 * passes(test).iter().filter(|pass| pass.writes).count() as u64;
            let file = std::fs::File::open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().len(), cell.file_bytes);
            // The last pass of each of these tests is one that writes.
            let order = passes(test).last().unwrap().order.numbers(40, order::STRIDE);
            for (place, record) in order.enumerate().skip(if test == 4 { 39 } else { 0 }) {
                let mut begin = [0; 8];
                file.read_exact_at(&mut begin, record * cell.record_bytes).unwrap();
                let mark = first_mark(&cell, 3, written - 40 + place as u64);
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
    let (double, stop) = (double(), never());
    let stage = trial_context(&double, &stop);
    let cell = Cell { file_bytes: 64 * KIB, record_bytes: 4 * KIB };
    // A file that is longer tells: only what makes the file anew cuts the rest off.
    let mut subject = TestFile::new(&stage, &path, cell, AccessPattern::default(), 0);
    for test in [0, 6, 9] {
        for (pass, length) in passes(test).iter().zip([64 * KIB, 100 * KIB]) {
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(100 * KIB).unwrap();
            subject.pass(pass).unwrap();
            subject.flush().unwrap();
            assert_eq!(path.metadata().unwrap().len(), length, "test {test}");
        }
    }
}

#[test]
fn closing_counts_if_it_is_to_and_before_the_flush() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    let (double, stop) = (double(), never());
    let stage = trial_context(&double, &stop);
    let cell = Cell { file_bytes: 8 * KIB, record_bytes: 4 * KIB };
    // The clock of the double moves by 10 with each look: 10 for a record, a flush and a close.
    for (close_counts, known) in [(false, [20, 30]), (true, [30, 40])] {
        let manner = AccessPattern { close_counts, ..AccessPattern::default() };
        let passed = TestFile::new(&stage, &path, cell, manner, 0).run(0).unwrap();
        assert!(passed.iter().all(|one| [one.took, one.took_flushed.unwrap()] == known));
        let read = TestFile::new(&stage, &path, cell, manner, 0).run(1).unwrap();
        assert_eq!(read[0].took, known[0]);
        assert_eq!(read[0].took_flushed, None);
    }
}
