//! The grid: rows, tables for spreadsheets, charts, start states and open modes.

use super::rig::{names, run, run_recorded};
use super::tables::parse_tables;
use larder_report::stats::{Summary, sign_interval};
use larder_schema::run::Run;
use larder_schema::run::trial::Start;
use larder_testing::stays_resident;
use std::time::{Duration, Instant};

const KIB: u64 = 1024;
/// Two file sizes by two record sizes, one of which does not fit in the smaller file.
const SMALL: &str = "-s 64k -s 256k -r 4k -r 128k --trials 2";

/// Returns the median of a series of two values, in whole bytes per second.
fn median(run: &Run, series: &str, file: u64, record: u64) -> u64 {
    let name = format!("{series} at file_bytes {file}, record_bytes {record}");
    let values = &run.sample(&name).unwrap_or_else(|| panic!("no {name}")).values;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
    let median = f64::midpoint(values[0], values[1]) as u64;
    median
}

#[test]
fn tables_are_parsed_and_hold_what_the_record_holds() {
    let all = "-i 0 -i 1 -i 2 -i 3 -i 4 -i 5 -i 6 -i 7 -i 9 -i 10 --format tables";
    let (text, run) = run_recorded(&format!("{SMALL} {all}"));
    let tables = parse_tables(&text);
    let reports: Vec<&str> = tables.iter().map(|table| table.report.as_str()).collect();
    let expected = [
        "Writer report",
        "Re-writer report",
        "Reader report",
        "Re-Reader report",
        "Random read report",
        "Random write report",
        "Backward read report",
        "Record rewrite report",
        "Stride read report",
        "Fwrite report",
        "Re-Fwrite report",
        "Fread report",
        "Re-Fread report",
        "Pwrite report",
        "Re-Pwrite report",
        "Pread report",
        "Re-Pread report",
    ];
    assert_eq!(reports, expected);
    for table in &tables {
        assert_eq!(table.records, [4 * KIB, 128 * KIB]);
        let measured = |rate: &Option<u64>| rate.is_some_and(|rate| rate > 0);
        let rates: Vec<bool> =
            table.files.iter().flat_map(|(_, rates)| rates.iter().map(measured)).collect();
        assert_eq!(rates, [true, false, true, true], "left out is not 0: {table:?}");
        assert_eq!(table.files[0].1[1], None);
    }
    let (_, rates) = &tables[2].files[1];
    let expected = median(&run, "read", 256 * KIB, 4 * KIB);
    assert_eq!(rates[0], Some(expected - expected % KIB));
}

#[test]
fn with_e_the_rates_of_writes_include_the_flush_and_the_record_has_both() {
    let (text, run) = run_recorded(&format!("{SMALL} -e -i 0 -i 1 --format tables"));
    let tables = parse_tables(&text);
    let shown = tables[0].files[1].1[0].unwrap();
    let flushed = median(&run, "write, flushed", 256 * KIB, 4 * KIB);
    assert_eq!(shown, flushed - flushed % KIB);
    assert!(median(&run, "write", 256 * KIB, 4 * KIB) > flushed);
    let read = median(&run, "read", 256 * KIB, 4 * KIB);
    assert_eq!(tables[2].files[1].1[0], Some(read - read % KIB), "reads are not flushed");
    assert!(text.contains("with the flush of writes"), "{text}");
}

#[test]
fn rows_have_a_word_for_each_column() {
    let (text, _) = run_recorded(&format!("{SMALL} -i 0 -i 2"));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let titles = ["kB", "reclen", "write", "rewrite", "random-read", "random-write"];
    assert_eq!(rows[0], titles);
    for (row, sizes) in rows[2..5].iter().zip([["64", "4"], ["256", "4"], ["256", "128"]]) {
        assert_eq!(row[..2], sizes);
        assert_eq!(row.len(), titles.len(), "{row:?}");
        assert!(row.iter().all(|word| word.parse::<u64>().is_ok_and(|it| it > 0)), "{row:?}");
    }
    assert!(text.contains("kB per second, median of 2, start warm, without the flush"), "{text}");
}

#[test]
fn the_page_has_a_map_for_each_column() {
    let (page, _) = run_recorded(&format!("{SMALL} -i 0 -i 1 -i 3 --format html"));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for title in ["write", "rewrite", "write, flushed", "read", "reread", "bkwd read"] {
        let map = format!("aria-label=\"{title}, all sizes\"");
        assert_eq!(page.matches(&map).count(), 1, "{map}");
    }
}

#[test]
fn trials_start_as_it_is_asked_for_and_the_record_says_so() {
    let reads = "-s 256k -r 4k -i 1 -i 3 --trials 1";
    for (flags, start, resident) in [
        ("", Start::Warm, 128),
        ("--start cold", Start::Cold, 0),
        ("--direct", Start::Cold, 0),
        ("-I -o", Start::Cold, 0),
    ] {
        let (text, run) = run_recorded(&format!("{reads} {flags}"));
        let started = run.trials[0].started;
        assert_eq!((started.start, started.files), (start, 2), "{flags}");
        assert_eq!(started.pages, Some(128), "{flags}");
        assert!(stays_resident(started.resident.unwrap(), resident), "{flags}: {started:?}");
        assert!(text.contains(&format!("one trial, start {}", start.name())), "{text}");
        assert_eq!(run.settings["direct"], start == Start::Cold && flags != "--start cold");
    }
}

#[test]
fn how_files_are_opened_is_in_the_record() {
    let settings = |flags: &str| {
        let run = run_recorded(&format!("-s 64k -r 4k -i 0 --trials 1 {flags}")).1;
        (run.settings["sync"].clone(), run.settings["close_counts"].clone())
    };
    assert_eq!(settings(""), ("none".into(), false.into()));
    assert_eq!(settings("-o -c"), ("all".into(), true.into()));
    assert_eq!(settings("--sync=data"), ("data".into(), false.into()));
}

#[test]
fn more_trials_are_done_until_the_interval_is_small() {
    let (_, run) = run_recorded("-s 16m -r 64k -i 1 --trials 6..8 --confidence 99%");
    // On a busy machine the rates of six trials may spread further.
    let rates = &run.main_sample().unwrap().values;
    let is_small = |trials: &usize| {
        let interval = sign_interval(&rates[..*trials]).unwrap();
        let median = Summary::of(&rates[..*trials]).unwrap().median;
        (interval.high - interval.low) / 2.0 <= 0.99 * median
    };
    let enough = (6..rates.len()).find(is_small).unwrap_or(rates.len());
    assert_eq!((run.trials.len(), rates.len()), (enough, enough), "{rates:?}");
    assert!(rates.len() == 8 || is_small(&rates.len()), "{rates:?}");
    let (_, run) = run_recorded("-s 1m -r 64k -i 1 --trials 2..7 --confidence 0%");
    assert!(run.trials.len() == 7 && run.doubts.iter().any(|it| it.text.contains("interval")));
}

#[test]
fn the_default_is_the_automatic_grid() {
    // The run is refused for lack of space, so that the test does not measure the whole grid.
    let directory = super::rig::create_disk_directory();
    let outcome =
        run(directory.path(), &["-i", "0", "-n", "900000g", "-g", "900000g", "-y", "16m"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("it needs 879 TiB and "), "{outcome:?}");
}

/// The columns of tests 0 to 7: names of the series, and whether the test writes.
const COLUMNS: [(&str, bool); 13] = [
    ("write", true),
    ("rewrite", true),
    ("read", false),
    ("reread", false),
    ("random read", false),
    ("random write", true),
    ("bkwd read", false),
    ("record rewrite", true),
    ("stride read", false),
    ("fwrite", true),
    ("frewrite", true),
    ("fread", false),
    ("freread", false),
];

/// Returns the cells of the automatic mode up to a largest file: bytes of the file and of a record.
fn cells(largest: u64) -> Vec<(u64, u64)> {
    let doubling = |first: u64| std::iter::successors(Some(first), |size| Some(size * 2));
    let mut cells = Vec::new();
    for file in doubling(64 * KIB).take_while(|file| *file <= largest) {
        let least = if file > 16 * KIB * KIB { 64 * KIB } else { 4 * KIB };
        let records = doubling(least).take_while(|record| *record <= file.min(16 * KIB * KIB));
        cells.extend(records.map(|record| (file, record)));
    }
    cells
}

#[test]
fn the_automatic_grid_is_one_command_with_tables_and_maps() {
    // `cargo xtask prove iozone` provides a file system of 4 GiB for the whole grid.
    let base = std::env::var_os("LARDER_IOZONE_DIR");
    let largest = if base.is_some() { 512 * KIB * KIB } else { 256 * KIB };
    let directory = base
        .as_ref()
        .map_or_else(super::rig::create_disk_directory, |base| tempfile::tempdir_in(base).unwrap());
    let line = "--trials 1 --format tables --output run.json --page run.html -g 256k";
    let args: Vec<&str> = line.split(' ').collect();
    let begun = Instant::now();
    let outcome = run(directory.path(), if base.is_some() { &args[..8] } else { &args });
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let took = begun.elapsed();
    assert!(took <= Duration::from_mins(20), "{} s", took.as_secs());
    assert_eq!(names(directory.path()), ["run.html", "run.json"]);
    let cells = cells(largest);
    assert!(base.is_none() || cells.len() == 126, "{} cells", cells.len());
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let record = Run::from_json(&read("run.json")).unwrap();
    let tables = parse_tables(&outcome.out);
    assert_eq!(tables.len(), COLUMNS.len());
    let page = read("run.html");
    for (table, (column, writes)) in tables.iter().zip(COLUMNS) {
        let mut found = Vec::new();
        for (file, rates) in &table.files {
            for (bytes, rate) in table.records.iter().zip(rates) {
                // A cell that was not measured is empty, not 0.
                let Some(rate) = *rate else { continue };
                found.push((*file, *bytes));
                let name = format!("{column} at file_bytes {file}, record_bytes {bytes}");
                let value = record.sample(&name).unwrap_or_else(|| panic!("no {name}")).values[0];
                #[expect(clippy::cast_precision_loss, reason = "a rate in bytes per second")]
                let shown = rate as f64;
                assert!(shown > 0.0 && shown <= value && value < shown + 1024.0, "{name}: {value}");
            }
        }
        assert_eq!(found, cells, "{column}");
        for name in
            [column.to_owned()].into_iter().chain(writes.then(|| format!("{column}, flushed")))
        {
            let label = format!("aria-label=\"{name}, all sizes\"");
            let map = page.split("<div").find(|map| map.contains(&label));
            let map = map.unwrap_or_else(|| panic!("no map of {name}"));
            let map = map.split("</table>").next().unwrap();
            assert_eq!(map.matches("<td class=\"s").count(), cells.len(), "{name}");
        }
    }
    println!("shown: {} cells of 13 columns in {} s, tables and maps", cells.len(), took.as_secs());
}
