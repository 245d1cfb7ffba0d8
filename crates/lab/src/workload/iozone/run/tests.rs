//! The grid in small: what is measured, what is left behind, and where records lie.

use super::*;
use crate::bench::Start;
use crate::bench::testing::{Double, never, stage};
use crate::workload::iozone::grid::Sizes;
use crate::workload::iozone::order;
use crate::workload::iozone::passes::{Subject, Sync};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const KIB: u64 = 1024;

fn double() -> Double {
    Double { free_bytes: 1 << 30, ..Double::default() }
}

fn grid_run(folder: &TempDir, tests: &[u8]) -> GridRun {
    let grid = Grid {
        files: Sizes::List(vec![16 * KIB, 64 * KIB]),
        records: Sizes::List(vec![4 * KIB, 32 * KIB]),
        ..Grid::default()
    };
    let folder = folder.path().to_path_buf();
    GridRun { grid, tests: tests.to_vec(), manner: Manner::default(), folder }
}

fn plan() -> Plan {
    Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
}

#[test]
fn every_test_is_measured_in_every_cell_and_nothing_is_left_behind() {
    let folder = TempDir::new().unwrap();
    let grid = grid_run(&folder, &[0, 1, 2, 3, 4, 5, 6, 7, 9, 10]);
    let mut cells = Vec::new();
    let mut watch = |at: GridProgress| cells.push((at.cell, at.test, at.done));
    let played = grid.run(&plan(), &double(), &never(), &mut watch).unwrap();
    assert!(!played.stopped);
    let run = played.run;
    // Three cells; 17 columns, 8 of which write and have a rate with the flush as well.
    assert_eq!(run.samples.len(), 3 * (17 + 8));
    assert!(run.samples.iter().all(|sample| sample.values.len() == 2));
    assert!(run.samples.iter().all(|sample| sample.values.iter().all(|&rate| rate > 0.0)));
    assert_eq!(run.trials.len(), 2);
    assert_eq!(run.trials[0].phases.len(), 17);
    assert_eq!(cells.last().unwrap().2, [29, 30]);
    for column in columns(&grid.tests) {
        let table = grid.table(&run, &column, false);
        let rates: Vec<bool> =
            table.files.iter().flat_map(|(_, rates)| rates).map(Option::is_some).collect();
        assert_eq!(rates, [true, false, true, true], "{column:?}");
        assert_eq!(RateTable::parse_all(&table.to_text()).unwrap().len(), 1);
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_rate_with_the_flush_is_never_the_higher_one() {
    let folder = TempDir::new().unwrap();
    let run = grid_run(&folder, &[0]).run(&plan(), &double(), &never(), &mut |_| {}).unwrap().run;
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
    let folder = TempDir::new().unwrap();
    let stop = never();
    let mut watch = |at: GridProgress| {
        if at.done[0] == 2 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let played = grid_run(&folder, &[0, 1]).run(&plan(), &double(), &stop, &mut watch).unwrap();
    assert!(played.stopped);
    assert_eq!(played.run.samples.len(), 6, "both tests of the first cell");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_file_of_others_is_never_touched() {
    let folder = TempDir::new().unwrap();
    let theirs = folder.path().join(format!("larder-iozone-{}", std::process::id()));
    std::fs::write(&theirs, "theirs").unwrap();
    let error = grid_run(&folder, &[0]).run(&plan(), &double(), &never(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs");
}

#[test]
fn nothing_to_measure_and_no_room_are_said() {
    let folder = TempDir::new().unwrap();
    let none = grid_run(&folder, &[8]).run(&plan(), &double(), &never(), &mut |_| {});
    assert!(none.unwrap_err().to_string().contains("no cell or no test"));
    let full = grid_run(&folder, &[0]).run(&plan(), &Double::default(), &never(), &mut |_| {});
    assert!(full.unwrap_err().to_string().contains("it needs 16 KiB and 0 B are free"));
}

#[test]
fn records_are_where_they_belong_whatever_the_order() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    let (double, stop) = (double(), never());
    let stage = stage(&double, &stop);
    let cell = Cell { file_bytes: 40 * 4 * KIB, record_bytes: 4 * KIB };
    for sync in [Sync::None, Sync::Data, Sync::All] {
        let manner = Manner { sync, close_counts: true, ..Manner::default() };
        let mut subject = Subject::new(&stage, &path, cell, manner);
        for test in [0, 9, 2] {
            let passed = subject.run(test).unwrap();
            assert_eq!(passed.len(), 2);
            assert!(passed.iter().all(|one| one.bytes == cell.file_bytes));
            assert!(passed.iter().all(|one| one.times.count() == 40));
            let file = std::fs::File::open(&path).unwrap();
            assert_eq!(file.metadata().unwrap().len(), cell.file_bytes);
            for record in order::random(40) {
                let mut number = [0; 8];
                file.read_exact_at(&mut number, record * cell.record_bytes).unwrap();
                assert_eq!(u64::from_le_bytes(number), record, "test {test}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
