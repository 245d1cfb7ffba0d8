//! The whole grid as one run: every test in every cell, one after the other, each with its own
//! trials.

use super::grid::{Cell as Sizes, Grid};
use super::mode::{FLUSHED, Mode, RATE, TestPart, rate as bytes_per_s};
use super::subject::{AccessPattern, PassResult, TestFile};
use super::tables::rate_table;
use super::{Column as IozoneColumn, columns};
use crate::bench::{BenchError, Direction, Outcome, Phase, Series};
use larder_report::stats::median;
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use larder_schema::run::Run;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const KIB: u64 = 1024;

/// Parameters of a grid run.
#[derive(Clone, Debug)]
pub struct GridRun {
    /// The cells.
    pub grid: Grid,
    /// The tests, by their numbers.
    pub tests: Vec<u8>,
    /// The way in which the file is opened.
    pub access: AccessPattern,
    /// An existing, writable directory.
    pub directory: PathBuf,
}

impl GridRun {
    /// Returns one row for each cell: file and record size, then the median of each column in kB
    /// per second.
    fn row_table(&self, run: &Run, flushed: bool) -> Table {
        let columns = columns(&self.tests);
        let titles = ["kB", "reclen"].into_iter().chain(columns.iter().map(|column| column.name));
        let mut table = Table::new("", titles.map(|title| Column::numbers(title, title)));
        let kib = |bytes: u64| Cell::word((bytes / KIB).to_string());
        for cell in self.grid.cells() {
            let rate = |column: &IozoneColumn| {
                let rate = rate(run, column, &cell, flushed && column.writes());
                rate.map_or_else(Cell::missing, kib)
            };
            let sizes = [kib(cell.file_bytes), kib(cell.record_bytes)];
            table.push(sizes.into_iter().chain(columns.iter().map(rate)));
        }
        table
    }

    /// Returns the table of a column: medians, and no value where a cell was left out.
    pub(super) fn table(&self, run: &Run, column: &IozoneColumn, flushed: bool) -> String {
        let cells = self.grid.table().into_iter().map(|(cell, is_measured)| {
            (cell, is_measured.then(|| rate(run, column, &cell, flushed)).flatten())
        });
        rate_table(column.report, cells)
    }
}

impl Mode for GridRun {
    fn description(&self) -> String {
        "IOzone grid".to_owned()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.access.settings()
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn access(&self) -> AccessPattern {
        self.access
    }

    fn parts(&self) -> Vec<TestPart> {
        let tests: BTreeSet<u8> = columns(&self.tests).iter().map(|column| column.test).collect();
        let part = |cell: Sizes, test| {
            let [file, record] = [cell.file_bytes, cell.record_bytes].map(format::bytes);
            let what = format!("test {test} on {file} in records of {record}");
            TestPart { test, cell, threads: 1, what }
        };
        let cells = self.grid.cells().into_iter();
        cells.flat_map(|cell| tests.iter().map(move |&test| part(cell, test))).collect()
    }

    fn series(&self, part: &TestPart) -> Vec<Series> {
        let mut all = Vec::new();
        for column in columns(&[part.test]) {
            all.push(series(&part.cell, &column, false));
            all.extend(column.writes().then(|| series(&part.cell, &column, true)));
        }
        all
    }

    fn trial(&self, part: &TestPart, mut files: Vec<TestFile<'_>>) -> Result<Outcome, BenchError> {
        let results = files[0].run(part.test)?;
        let mut outcome = Outcome::default();
        for (column, PassResult { bytes, took, took_flushed, times }) in
            columns(&[part.test]).iter().zip(results)
        {
            for (flushed, took) in [(false, Some(took)), (true, took_flushed)] {
                let name = series(&part.cell, column, flushed).name;
                outcome.values.extend(took.map(|took| (name, bytes_per_s(bytes, took))));
            }
            outcome.phases.push(Phase { name: column.title.to_owned(), duration_ns: took });
            outcome.latencies.push((column.title.to_owned(), times));
        }
        Ok(outcome)
    }

    fn rows(&self, run: &Run, flushed: bool) -> String {
        self.row_table(run, flushed).to_text()
    }

    fn tables(&self, run: &Run, flushed: bool) -> String {
        let tables = columns(&self.tests).into_iter();
        tables.map(|it| self.table(run, &it, flushed && it.writes())).collect()
    }
}

/// Returns the series of a column in a cell, with or without the flush in its time.
fn series(cell: &Sizes, column: &IozoneColumn, flushed: bool) -> Series {
    let name = format!("{}{}", column.title, if flushed { FLUSHED } else { "" });
    #[expect(clippy::cast_precision_loss, reason = "sizes of files stay below 2^53")]
    let [file, record] = [cell.file_bytes as f64, cell.record_bytes as f64];
    let at = [("file_bytes", file), ("record_bytes", record)];
    Series::new(name, RATE, Some(Direction::Higher)).at(&at)
}

/// Returns the median rate of a column in a cell, in bytes per second.
fn rate(run: &Run, column: &IozoneColumn, cell: &Sizes, flushed: bool) -> Option<u64> {
    let sample = run.sample(&series(cell, column, flushed).name)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
    let rate = median(&sample.values)? as u64;
    Some(rate)
}

#[cfg(test)]
mod tests;
