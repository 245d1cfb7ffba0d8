//! `larder bench iozone` from the outside: the orders as system calls show them, and the automatic
//! grid on a file system of 4 GiB, in one command with tables and charts.
//!
//! The tables are read here by a reader of its own, and compared with the record.

mod orders;
mod scratch;
mod tables;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Claims, Lab};
use crate::run;
use scratch::FileSystem;
use tables::{KIB, Table};

/// What a run may take.
const RUN_MAX_S: u64 = 30 * 60;
/// The longest that the whole grid may take, with one trial of each test in each cell.
const GRID_MAX_S: u64 = 20 * 60;
/// The columns of tests 0 to 7, as series are called, and whether they write.
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

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    orders::run(lab, claims);
    if lab.options.quick {
        return grid(lab, claims, lab.dir(), 256);
    }
    if let Some(why) = FileSystem::missing() {
        claims.skip("the automatic grid on a file system of 4 GiB", why);
        return Ok(());
    }
    let scratch = FileSystem::make(lab)?;
    grid(lab, claims, scratch.path(), 512 * 1024)?;
    threads(lab, claims, scratch.path());
    Ok(())
}

/// The grid up to files of so many KiB, in one command.
fn grid(lab: &Lab, claims: &mut Claims, folder: &Path, largest_kib: u64) -> Result<()> {
    let (record, page) = (lab.file("iozone.json"), lab.file("iozone.html"));
    let mut command = run::client(RUN_MAX_S, &lab.binary.to_string_lossy());
    command.args(["bench", "iozone"]).arg(folder).args(["--trials", "1", "--format", "tables"]);
    if lab.options.quick {
        command.args(["-g", &format!("{largest_kib}k")]);
    }
    command.arg("--output").arg(&record).arg("--page").arg(&page);
    let begun = Instant::now();
    let text = run::text(&mut command)?;
    let took_s = begun.elapsed().as_secs();
    let cells = cells(largest_kib);
    claims.add(
        format!("{} cells, 13 columns, one trial each, in one command", cells.len()),
        format!("{} min {:02} s", took_s / 60, took_s % 60),
        took_s <= GRID_MAX_S,
    );
    let record = std::fs::read_to_string(&record).context("read the record")?;
    let record: Value = serde_json::from_str(&record).context("parse the record")?;
    claims.tried("tables parsed: a rate in each cell that was measured, no 0 elsewhere", || {
        compare(&tables::parse(&text)?, &record, &cells)
    });
    let page = std::fs::read_to_string(&page).context("read the page")?;
    claims.tried("a map of shades for each column", || charts(&page, cells.len()));
    let left: Vec<_> =
        std::fs::read_dir(folder)?.flatten().map(|entry| entry.file_name()).collect();
    let theirs = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("larder-iozone");
    claims.add("its file is gone", format!("{left:?}"), !left.iter().any(theirs));
    Ok(())
}

/// The cells of the automatic mode: bytes of a file and of a record.
fn cells(largest_kib: u64) -> Vec<(u64, u64)> {
    let doubling = |first: u64| std::iter::successors(Some(first), |size| Some(size * 2));
    let mut cells = Vec::new();
    for file in doubling(64 * KIB).take_while(|file| *file <= largest_kib * KIB) {
        let least = if file > 16 * KIB * KIB { 64 * KIB } else { 4 * KIB };
        let most = file.min(16 * KIB * KIB);
        let records = doubling(4 * KIB).take_while(|record| *record <= most);
        cells.extend(records.filter(|record| *record >= least).map(|record| (file, record)));
    }
    cells
}

/// Whether tables and record say the same of each cell, and nothing of others.
fn compare(tables: &[Table], record: &Value, cells: &[(u64, u64)]) -> Result<String> {
    ensure!(tables.len() == COLUMNS.len(), "{} tables", tables.len());
    let samples = record["samples"].as_array().context("no samples")?;
    let mut empty = 0;
    for (table, (column, _)) in tables.iter().zip(COLUMNS) {
        let mut found = 0;
        for (file, record, rate) in table.cells() {
            let place = format!("{column} of {file} in {record}");
            let Some(rate) = rate else {
                ensure!(!cells.contains(&(file, record)), "{place} is empty");
                empty += 1;
                continue;
            };
            ensure!(cells.contains(&(file, record)), "{place} was measured");
            let name = format!("{column} at file_bytes {file}, record_bytes {record}");
            let sample = samples.iter().find(|sample| sample["series"] == name.as_str());
            let value = sample.and_then(|sample| sample["values"][0].as_f64());
            let value = value.with_context(|| format!("no series {name}"))?;
            let shown = super::to_f64(rate * KIB);
            ensure!(shown > 0.0 && shown <= value && value < shown + 1024.0, "{place}: {value}");
            found += 1;
        }
        ensure!(found == cells.len(), "{column} has {found} cells");
    }
    Ok(format!("{} tables, {} rates, {empty} empty cells", tables.len(), 13 * cells.len()))
}

/// Whether the page has a map for each column with all cells in it.
fn charts(page: &str, cells: usize) -> Result<String> {
    let maps: Vec<&str> = page.split("<svg").skip(1).collect();
    let mut count = 0;
    for (column, writes) in COLUMNS {
        let flushed = writes.then(|| format!("{column}, flushed"));
        for name in [Some(column.to_owned()), flushed].into_iter().flatten() {
            let label = format!("aria-label=\"{name} by file (up) by record (across)\"");
            let map = maps.iter().find(|map| map.contains(&label));
            let map = map.with_context(|| format!("no map of {name}"))?;
            let map = map.split("</svg>").next().unwrap_or_default();
            let shades = map.matches("<rect class=\"h").count();
            ensure!(shades == cells, "the map of {name} has {shades} cells");
            count += 1;
        }
    }
    Ok(format!("{count} maps of {cells} cells, {} bytes", page.len()))
}

/// Throughput mode with one to four threads.
fn threads(lab: &Lab, claims: &mut Claims, folder: &Path) {
    claims.tried("1 to 4 threads: what parent and children see of each pass", || {
        let record = lab.file("threads.json");
        let mut command = run::client(RUN_MAX_S, &lab.binary.to_string_lossy());
        command.args(["bench", "iozone"]).arg(folder).args(["-u", "4", "-s", "64m", "-r", "64k"]);
        let tests = ["-i", "0", "-i", "1", "-i", "2", "-i", "3", "-i", "5", "-i", "8"];
        let text = run::text(command.args(tests).args(["--trials", "1", "--output"]).arg(&record))?;
        let seen = |what: &str| text.lines().filter(|line| line.starts_with(what)).count();
        for what in ["Children see throughput", "Parent sees throughput", "Min xfer"] {
            ensure!(seen(what) == 4 * 9, "{what}: {} lines", seen(what));
        }
        let record = std::fs::read_to_string(&record).context("read the record")?;
        let record: Value = serde_json::from_str(&record).context("parse the record")?;
        let value = |name: &str| -> Result<f64> {
            let samples = record["samples"].as_array().context("no samples")?;
            let sample = samples.iter().find(|sample| sample["series"] == name);
            let value = sample.and_then(|sample| sample["values"][0].as_f64());
            value.with_context(|| format!("no series {name}"))
        };
        let mut said = Vec::new();
        for number in 1..=4 {
            let of = |figure: &str| value(&format!("read{figure} at threads {number}"));
            let (children, parent) = (of("")?, of(", parent")?);
            let (min, max) = (of(", slowest thread")?, of(", fastest thread")?);
            let avg = of(", mean of threads")?;
            ensure!(min <= avg && avg <= max, "{min}, {avg}, {max}");
            let sum = avg * f64::from(number);
            ensure!((sum / children - 1.0).abs() < 1e-9, "{sum} is not {children}");
            said.push(format!("{:.1}/{:.1}", children / 1e9, parent / 1e9));
        }
        Ok(format!("read, children/parent: {} GB/s", said.join(", ")))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_grid_has_126_cells() {
        assert_eq!(cells(512 * 1024).len(), 126);
        assert_eq!(cells(1024).len(), 5 + 6 + 7 + 8 + 9);
    }
}
