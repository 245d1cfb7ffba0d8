//! Counts of the reference results, and the first operations of the first one.

use super::*;
use crate::workload::postmark::files::Model;
use std::convert::Infallible;

fn run<F: Files<Stop = Infallible>>(config: &Config, files: &mut F) -> Engine {
    let mut engine = Engine::new(config, None).unwrap();
    for _ in 0..config.number {
        let Ok(()) = engine.create(files);
    }
    for _ in 0..config.transactions {
        if engine.is_out_of_files() {
            return engine;
        }
        let Ok(()) = engine.transaction(files);
    }
    for index in 0..engine.places() {
        let Ok(()) = engine.delete_at(index, files);
    }
    assert_eq!(engine.table.used, 0);
    engine
}

fn first_reference() -> Config {
    Config {
        number: 10_000,
        transactions: 20_000,
        subdirectories: 5,
        size_low: 500,
        size_high: 100_000,
        read_block: 4096,
        write_block: 4096,
        ..Config::default()
    }
}

fn second_reference() -> Config {
    Config {
        transactions: 10_000,
        read_block: 512,
        write_block: 512,
        subdirectories: 2,
        ..first_reference()
    }
}

/// Returns created, read, appended, deleted at the end; bytes read and written; and numbers drawn.
fn figures(config: &Config) -> ([u64; 6], u64) {
    let engine = run(config, &mut Model::new(1));
    let counts = engine.counts;
    assert_eq!(counts.created, counts.deleted);
    assert_eq!(counts.transactions, u64::from(config.transactions));
    let Counts { created, read, appended, deleted_at_end, bytes_read, bytes_written, .. } = counts;
    let bytes = [bytes_read.bytes, bytes_written.bytes];
    ([created, read, appended, deleted_at_end, bytes[0], bytes[1]], engine.random.draws)
}

#[test]
fn counts_are_those_of_the_published_results() {
    let expected = [20_092, 9_935, 10_064, 10_184, 574_885_436, 1_214_240_789];
    assert_eq!(figures(&first_reference()), (expected, 349_658));
    let expected = [15_047, 4_945, 5_055, 10_094, 270_454_594, 866_952_911];
    assert_eq!(figures(&second_reference()), (expected, 284_956));
    let expected = [15_078, 5_005, 4_995, 10_156, 275_354_117, 871_346_979];
    let flat = Config { subdirectories: 0, ..second_reference() };
    assert_eq!(figures(&flat), (expected, 269_634));
    assert_eq!(figures(&Config::default()).0[..4], [764, 243, 257, 528]);
}

#[test]
fn one_subdirectory_is_none_and_how_many_there_are_beyond_does_not_matter() {
    let with = |subdirectories| figures(&Config { subdirectories, ..Config::default() });
    assert_eq!(with(1), with(0));
    assert_ne!(with(2), with(0));
    assert_eq!(with(2), with(9));
    let location = |path: &str| super::super::Location { path: path.into(), weight: 3 };
    let located = |paths: &[&str]| {
        let locations = paths.iter().map(|path| location(path)).collect();
        let config = Config { locations, ..Config::default() };
        run(&config, &mut Model::new(paths.len())).counts.created
    };
    assert_eq!(located(&["a"]), with(0).0[0]);
    assert_eq!(located(&["a", "b"]), with(2).0[0]);
}

/// The operations as text.
#[derive(Default)]
struct OperationLog(Vec<String>);

impl OperationLog {
    fn record(&mut self, what: &str, path: &Path, bytes: usize) {
        self.0.push(format!("{what} {} {bytes}", path.display()));
    }
}

impl Files for OperationLog {
    type Stop = Infallible;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Infallible> {
        self.record("create", file.path, data.len());
        Ok(true)
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Infallible> {
        self.record("append", file.path, data.len());
        Ok(true)
    }

    fn read(&mut self, file: File<'_>) -> Result<bool, Infallible> {
        self.record("read", file.path, file.bytes as usize);
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> Result<bool, Infallible> {
        self.record("delete", file.path, 0);
        Ok(true)
    }
}

#[test]
fn the_first_operations_are_those_of_the_original() {
    let mut log = OperationLog::default();
    run(&first_reference(), &mut log);
    let created = [
        "create s0/1 40436",
        "create s2/2 29475",
        "create s4/3 37181",
        "create s3/4 42491",
        "create s4/5 28941",
    ];
    assert_eq!(log.0[..5], created);
    let mixed = [
        "read s1/32 41101",
        "create s1/10001 10053",
        "append s4/2393 8956",
        "create s0/10002 28601",
        "read s1/2742 5841",
        "delete s2/1812 0",
        "append s1/237 47948",
        "create s1/10003 31470",
    ];
    assert_eq!(log.0[10_000..10_008], mixed);
}

#[test]
fn files_may_run_out_and_a_full_table_is_passed_over() {
    let only = |bias_create| Config {
        number: 5,
        transactions: 50,
        bias_create: Some(bias_create),
        ..Config::default()
    };
    let emptied = run(&only(0), &mut Model::new(1));
    assert_eq!((emptied.counts.transactions, emptied.table.used), (5, 0));
    let filled = run(&only(10), &mut Model::new(1));
    assert_eq!((filled.counts.created, filled.counts.transactions), (10, 50));
}

#[test]
fn files_of_one_size_are_never_appended_to() {
    let config = Config { size_low: 700, size_high: 700, ..Config::default() };
    let engine = run(&config, &mut Model::new(1));
    assert_eq!(engine.counts.appended, 0);
    let Counts { created, bytes_written, .. } = engine.counts;
    assert_eq!(bytes_written.bytes, created * 700);
}

#[test]
fn the_model_knows_how_much_room_the_files_take() {
    let config = Config { size_low: 4096, size_high: 4096, number: 10, ..Config::default() };
    let mut model = Model::new(1);
    run(&config, &mut model);
    let space_use = model.space_uses[0];
    assert_eq!(space_use.blocks_max, space_use.files_max);
    assert!(space_use.files_max > 10 && space_use.files_max <= 20, "{space_use:?}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let huge = Config { size_high: SIZE_MAX + 1, ..Config::default() };
    let error = Engine::new(&huge, None).unwrap_err();
    let message = "hold 1073741825 bytes of data in memory; files may have up to 1073741824";
    assert_eq!(error, message);
}
