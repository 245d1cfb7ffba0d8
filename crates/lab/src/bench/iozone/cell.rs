//! One test in one cell of the grid as a workload, so that each has its own cold or warm start.

use super::grid::Cell;
use super::passes::passes;
use super::subject::{AccessPattern, PassResult, TestFile};
use super::{Column, columns};
use crate::bench::{
    BenchError, Direction, Outcome, Phase, Series, Space, StartState, TrialContext, Workload,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The unit of rates.
pub(super) const RATE: &str = "B/s";
/// Suffix of the name of a column whose time includes the flush.
pub(super) const FLUSHED: &str = ", flushed";

/// A test of `-i` on a file of one size, with records of one size.
#[derive(Debug)]
pub struct CellTest<'a> {
    test: u8,
    cell: Cell,
    pattern: AccessPattern,
    path: &'a Path,
    /// True if the file stays for the next test of the cell.
    keeps: bool,
}

impl<'a> CellTest<'a> {
    /// Returns the test on the file at `path`, which is created if it is missing; with `keeps` the
    /// file stays, unless the test fails.
    #[must_use]
    pub fn new(test: u8, cell: Cell, pattern: AccessPattern, path: &'a Path, keeps: bool) -> Self {
        CellTest { test, cell, pattern, path, keeps }
    }

    fn columns(&self) -> Vec<Column> {
        columns(&[self.test])
    }

    /// Returns true if the test begins without a file.
    fn makes(&self) -> bool {
        passes(self.test).first().is_some_and(|pass| pass.makes)
    }
}

/// Returns the series of a column in a cell, with or without the flush in its time.
pub(super) fn series(cell: &Cell, column: &Column, flushed: bool) -> Series {
    let name = format!("{}{}", column.title, if flushed { FLUSHED } else { "" });
    #[expect(clippy::cast_precision_loss, reason = "sizes of files stay below 2^53")]
    let [file, record] = [cell.file_bytes as f64, cell.record_bytes as f64];
    let at = [("file_bytes", file), ("record_bytes", record)];
    Series::new(name, RATE, Some(Direction::Higher)).at(&at)
}

/// Returns bytes per second.
pub(super) fn rate(bytes: u64, took: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes and times stay below 2^53")]
    let rate = bytes as f64 * 1e9 / took.max(1) as f64;
    rate
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), BenchError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::io(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Returns true if the file has all its records.
pub(super) fn is_whole(path: &Path, cell: &Cell) -> bool {
    let length = cell.records() * cell.record_bytes;
    path.metadata().is_ok_and(|metadata| metadata.len() == length)
}

impl Workload for CellTest<'_> {
    fn name(&self) -> &'static str {
        "iozone"
    }

    fn description(&self) -> String {
        let titles: Vec<_> = self.columns().iter().map(|column| column.title).collect();
        format!("IOzone: {}", titles.join(", "))
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.pattern.settings()
    }

    fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for column in self.columns() {
            all.push(series(&self.cell, &column, false));
            all.extend(column.writes().then(|| series(&self.cell, &column, true)));
        }
        all
    }

    fn space(&self) -> Vec<Space> {
        let directory = self.path.parent().unwrap_or(Path::new(".")).to_path_buf();
        let existing = self.path.metadata().map_or(0, |metadata| metadata.len());
        vec![Space { directory, bytes: self.cell.file_bytes.saturating_sub(existing) }]
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.parent().unwrap_or(Path::new(".")).to_path_buf()]
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        if self.makes() || is_whole(self.path, &self.cell) {
            return Ok(());
        }
        TestFile::new(context, self.path, self.cell, self.pattern, 0).make()
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(if self.makes() { Vec::new() } else { vec![self.path.to_path_buf()] })
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        if self.makes() {
            remove(self.path)?;
        }
        let results =
            TestFile::new(context, self.path, self.cell, self.pattern, 0).run(self.test)?;
        let mut outcome = Outcome::default();
        for (column, PassResult { bytes, took, took_flushed, times }) in
            self.columns().iter().zip(results)
        {
            outcome.values.insert(series(&self.cell, column, false).name, rate(bytes, took));
            if let Some(took) = took_flushed {
                outcome.values.insert(series(&self.cell, column, true).name, rate(bytes, took));
            }
            outcome.phases.push(Phase { name: column.title.to_owned(), duration_ns: took });
            outcome.latencies.push((column.title.to_owned(), times));
        }
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        if self.keeps { Ok(()) } else { remove(self.path) }
    }
}
