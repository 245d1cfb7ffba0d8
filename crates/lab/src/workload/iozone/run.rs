//! The whole grid as one run: every test in every cell, one after the other, each played for
//! itself, and what they showed put together.
//!
//! Invariant: whatever way it ends, the file of the cell at hand is removed.

use super::cell::{CellTest, series};
use super::grid::{Cell, Grid, LeftOut};
use super::passes::Manner;
use super::tables::RateTable;
use super::{Column, columns};
use crate::bench::{BenchError, Plan, Played, Progress, Surroundings, play};
use larder_report::run::Run;
use larder_report::stats::median;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
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

/// How far the grid is.
#[derive(Clone, Copy, Debug)]
pub struct GridProgress {
    /// The cell at hand.
    pub cell: Cell,
    /// The test at hand.
    pub test: u8,
    /// Tests in cells that are done, and all there are.
    pub done: [usize; 2],
    /// Bytes of files that were gone through for these, and for all: what the time depends on.
    pub bytes: [u64; 2],
    /// How far the player is with it.
    pub progress: Progress,
}

impl GridRun {
    /// Measures; a stop after the first result gives what there is.
    ///
    /// # Errors
    /// The file is there already, or the first error of a test.
    pub fn run(
        &self,
        plan: &Plan,
        surroundings: &dyn Surroundings,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(GridProgress),
    ) -> Result<Played, BenchError> {
        let path = self.folder.join(FILE_NAME);
        if path.exists() {
            let why = "it is there already; remove it or name another folder";
            return Err(BenchError::Workload(format!("make {}: {why}", path.display())));
        }
        let played = self.play_all(&path, plan, surroundings, stop, watch);
        let removed = if path.exists() { std::fs::remove_file(&path) } else { Ok(()) };
        let removed = removed.map_err(BenchError::io(format!("remove {}", path.display())));
        BenchError::first_of(played, removed)
    }

    fn play_all(
        &self,
        path: &Path,
        plan: &Plan,
        surroundings: &dyn Surroundings,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(GridProgress),
    ) -> Result<Played, BenchError> {
        let cells = self.grid.cells();
        let tests: BTreeSet<u8> = self.tests.iter().copied().collect();
        let tests: Vec<u8> =
            tests.into_iter().filter(|&test| !columns(&[test]).is_empty()).collect();
        if cells.is_empty() || tests.is_empty() {
            let why = "no cell or no test of the grid is left";
            return Err(BenchError::Workload(format!("measure the grid: {why}")));
        }
        let bytes_of = |cell: &Cell| cell.file_bytes * tests.len() as u64;
        let all_bytes = cells.iter().map(bytes_of).sum();
        let (mut whole, mut done, mut bytes) = (None, 0, 0);
        for cell in &cells {
            for (place, &test) in tests.iter().enumerate() {
                let keeps = place + 1 < tests.len();
                let mut workload = CellTest::new(test, *cell, self.manner, path, keeps);
                let mut tell = |progress| {
                    let done = [done, cells.len() * tests.len()];
                    let bytes = [bytes, all_bytes];
                    watch(GridProgress { cell: *cell, test, done, bytes, progress });
                };
                let played = match play(&mut workload, plan, surroundings, stop, &mut tell) {
                    Err(error) if error.is_stop() && whole.is_some() => {
                        let run = whole.expect("just seen");
                        return Ok(Played { run, stopped: true });
                    }
                    played => played?,
                };
                let stopped = played.stopped;
                match &mut whole {
                    None => whole = Some(played.run),
                    Some(whole) => whole.join(played.run),
                }
                if stopped {
                    break;
                }
                done += 1;
                bytes += cell.file_bytes;
            }
        }
        let mut run = whole.expect("at least one test in one cell");
        "IOzone grid".clone_into(&mut run.what);
        Ok(Played { run, stopped: done < cells.len() * tests.len() })
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
