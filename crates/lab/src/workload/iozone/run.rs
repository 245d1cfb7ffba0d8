//! The whole grid as one run: every test in every cell, one after the other, each played for
//! itself.

use super::cell::{CellTest, series};
use super::grid::{Cell, Grid, LeftOut};
use super::sequence::{Part, Progressed, Sequence};
use super::subject::Manner;
use super::tables::RateTable;
use super::{Column, columns};
use crate::bench::{BenchError, Plan, Played, Surroundings};
use larder_report::format;
use larder_report::run::Run;
use larder_report::stats::median;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The file under test, in the folder that is named.
const FILE_NAME: &str = "larder-iozone.tmp";

/// What to measure.
#[derive(Clone, Debug)]
pub struct GridRun {
    /// Which cells.
    pub grid: Grid,
    /// Which tests, by their numbers.
    pub tests: Vec<u8>,
    /// How the file is opened.
    pub manner: Manner,
    /// A folder that is there and can be written to.
    pub folder: PathBuf,
}

impl GridRun {
    /// The tests of it that the grid has, rising, each once.
    fn known_tests(&self) -> Vec<u8> {
        let tests: BTreeSet<u8> = self.tests.iter().copied().collect();
        tests.into_iter().filter(|&test| !columns(&[test]).is_empty()).collect()
    }

    /// Measures; a stop after the first result gives what there is.
    ///
    /// # Errors
    /// The file is there already, or the first error of a test.
    pub fn run(
        &self,
        plan: &Plan,
        surroundings: &dyn Surroundings,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<Played, BenchError> {
        let path = self.folder.join(FILE_NAME);
        let (cells, tests) = (self.grid.cells(), self.known_tests());
        let mut parts: Vec<Part<'_>> = Vec::new();
        for cell in cells {
            for (place, &test) in tests.iter().enumerate() {
                let keeps = place + 1 < tests.len();
                let file = format::bytes(cell.file_bytes);
                let record = format::bytes(cell.record_bytes);
                parts.push(Part {
                    workload: Box::new(CellTest::new(test, cell, self.manner, &path, keeps)),
                    bytes: cell.file_bytes,
                    what: format!("test {test} on {file} in records of {record}"),
                });
            }
        }
        let files = std::slice::from_ref(&path);
        Sequence { what: "IOzone grid", parts, files }.play(plan, surroundings, stop, watch)
    }

    /// The table of a column: medians, and nothing where a cell was left out.
    #[must_use]
    pub fn table(&self, run: &Run, column: &Column, flushed: bool) -> RateTable {
        let rate = |(cell, left_out): (Cell, Option<LeftOut>)| {
            let rate = if left_out.is_some() { None } else { rate(run, column, &cell, flushed) };
            (cell, rate)
        };
        RateTable::new(column.report, self.grid.table().into_iter().map(rate))
    }
}

/// The median rate of a column in a cell, in bytes per second.
fn rate(run: &Run, column: &Column, cell: &Cell, flushed: bool) -> Option<u64> {
    let sample = run.sample(&series(cell, column, flushed).name)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
    let rate = median(&sample.values)? as u64;
    Some(rate)
}

#[cfg(test)]
mod tests;
