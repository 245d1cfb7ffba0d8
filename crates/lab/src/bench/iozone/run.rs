//! The whole grid as one run: every test in every cell, one after the other, each with its own
//! trials.

use super::cell::{CellTest, FLUSHED, series};
use super::grid::{Cell as Sizes, Grid, LeftOut};
use super::sequence::{Part, Progressed, Sequence, work_directory};
use super::subject::AccessPattern;
use super::tables::RateTable;
use super::{Column as IozoneColumn, columns};
use crate::bench::{BenchError, HostEnv, Plan, RunResult};
use larder_report::stats::{Summary, median};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use larder_schema::run::{Run, Sample};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Name of the file under test, in its own directory.
const FILE_NAME: &str = "file";

const KIB: u64 = 1024;

/// Parameters of a grid run.
#[derive(Clone, Debug)]
pub struct GridRun {
    /// The cells.
    pub grid: Grid,
    /// The tests, by their numbers.
    pub tests: Vec<u8>,
    /// The way in which the file is opened.
    pub manner: AccessPattern,
    /// An existing, writable directory.
    pub directory: PathBuf,
}

impl GridRun {
    /// Returns its tests that the grid has, in ascending order, each once.
    fn known_tests(&self) -> Vec<u8> {
        let tests: BTreeSet<u8> = self.tests.iter().copied().collect();
        tests.into_iter().filter(|&test| !columns(&[test]).is_empty()).collect()
    }

    /// Runs all tests; a stop after the first result returns the results so far.
    ///
    /// # Errors
    /// The directory for the file cannot be created, or the first error of a test.
    pub fn run(
        &self,
        plan: &Plan,
        host: &dyn HostEnv,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<RunResult, BenchError> {
        let directory = work_directory(&self.directory);
        let path = directory.join(FILE_NAME);
        let (cells, tests) = (self.grid.cells(), self.known_tests());
        let mut parts: Vec<Part<'_>> = Vec::new();
        for cell in cells {
            for (index, &test) in tests.iter().enumerate() {
                let keeps = index + 1 < tests.len();
                let file = format::bytes(cell.file_bytes);
                let record = format::bytes(cell.record_bytes);
                parts.push(Part {
                    workload: Box::new(CellTest::new(test, cell, self.manner, &path, keeps)),
                    bytes: cell.file_bytes,
                    what: format!("test {test} on {file} in records of {record}"),
                });
            }
        }
        let all = Sequence::new("IOzone grid".to_owned(), parts, directory);
        all.run_sequence(plan, host, stop, on_progress)
    }

    /// Returns one row for each cell: file and record size, then the median of each column in kB
    /// per second; with `flushed` the rates of writes include the flush.
    #[must_use]
    pub fn rows(&self, run: &Run, flushed: bool) -> Table {
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
    #[must_use]
    pub fn table(&self, run: &Run, column: &IozoneColumn, flushed: bool) -> RateTable {
        let rate = |(cell, left_out): (Sizes, Option<LeftOut>)| {
            let rate = if left_out.is_some() { None } else { rate(run, column, &cell, flushed) };
            (cell, rate)
        };
        RateTable::new(column.report, self.grid.table().into_iter().map(rate))
    }
}

/// Returns the series whose trials differ most, and half of their range as a share of their median;
/// series with the flush in their time only if `flushed` is set. `None` if each has one trial.
#[must_use]
pub fn widest(run: &Run, flushed: bool) -> Option<(&str, f64)> {
    let spread = |sample: &Sample| {
        let it = Summary::of(&sample.values).filter(|_| sample.values.len() > 1)?;
        let half = (it.max - it.min) / 2.0 / it.median.abs();
        half.is_finite().then_some(half)
    };
    let spreads = run.samples.iter().filter(|it| flushed || !it.series.contains(FLUSHED));
    let spreads = spreads.filter_map(|it| Some((it.series.as_str(), spread(it)?)));
    spreads.max_by(|a, b| a.1.total_cmp(&b.1))
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
