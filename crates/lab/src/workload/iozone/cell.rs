//! One test in one cell of the grid, as the player runs it: so each starts cold or warm by itself.

use super::grid::Cell;
use super::passes::{Manner, Passed, Subject};
use super::{Column, columns};
use crate::bench::{BenchError, Better, Footing, Outcome, Phase, Series, Space, Stage, Workload};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The unit of rates.
const RATE: &str = "B/s";
/// Stands behind the name of a column whose time includes the flush.
const FLUSHED: &str = ", flushed";

/// A test of `-i` on a file of one size, with records of one size.
#[derive(Debug)]
pub struct CellTest<'a> {
    test: u8,
    cell: Cell,
    manner: Manner,
    path: &'a Path,
    /// Whether the file is to stay for the next test of the cell.
    keeps: bool,
}

impl<'a> CellTest<'a> {
    /// The test on the file at `path`, which is made if it is not there; with `keeps` it stays,
    /// unless the test fails.
    #[must_use]
    pub fn new(test: u8, cell: Cell, manner: Manner, path: &'a Path, keeps: bool) -> Self {
        CellTest { test, cell, manner, path, keeps }
    }

    fn columns(&self) -> Vec<Column> {
        columns(&[self.test])
    }

    /// Whether the test begins without a file.
    fn makes(&self) -> bool {
        matches!(self.test, 0 | 6)
    }
}

fn writes(column: &Column) -> bool {
    column.name.contains("write")
}

/// The series of a column in a cell, with the flush in its time or without.
pub(super) fn series(cell: &Cell, column: &Column, flushed: bool) -> Series {
    let name = format!("{}{}", column.title, if flushed { FLUSHED } else { "" });
    #[expect(clippy::cast_precision_loss, reason = "sizes of files stay below 2^53")]
    let [file, record] = [cell.file_bytes as f64, cell.record_bytes as f64];
    let at = [("file_bytes", file), ("record_bytes", record)];
    Series::new(name, RATE, Some(Better::Higher)).at(&at)
}

/// Bytes per second.
fn rate(bytes: u64, took: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes and times stay below 2^53")]
    let rate = bytes as f64 * 1e9 / took.max(1) as f64;
    rate
}

impl Workload for CellTest<'_> {
    fn name(&self) -> &'static str {
        "iozone"
    }

    fn what(&self) -> String {
        let titles: Vec<_> = self.columns().iter().map(|column| column.title).collect();
        format!("IOzone: {}", titles.join(", "))
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        [
            ("direct".to_owned(), self.manner.direct.into()),
            ("sync".to_owned(), format!("{:?}", self.manner.sync).to_lowercase().into()),
            ("close_counts".to_owned(), self.manner.close_counts.into()),
            ("stride_records".to_owned(), self.manner.stride.into()),
        ]
        .into()
    }

    fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for column in self.columns() {
            all.push(series(&self.cell, &column, false));
            all.extend(writes(&column).then(|| series(&self.cell, &column, true)));
        }
        all
    }

    fn space(&self) -> Vec<Space> {
        let folder = self.path.parent().unwrap_or(Path::new(".")).to_path_buf();
        let there = self.path.metadata().map_or(0, |metadata| metadata.len());
        vec![Space { folder, bytes: self.cell.file_bytes.saturating_sub(there) }]
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.parent().unwrap_or(Path::new(".")).to_path_buf()]
    }

    fn prepare(&mut self, stage: &Stage<'_>) -> Result<(), BenchError> {
        let length = self.cell.records() * self.cell.record_bytes;
        let is_there = self.path.metadata().is_ok_and(|metadata| metadata.len() == length);
        if self.makes() || is_there {
            return Ok(());
        }
        Subject::new(stage, self.path, self.cell, self.manner).make()
    }

    fn footing(&mut self) -> Footing<'_> {
        Footing::Files(if self.makes() { Vec::new() } else { vec![self.path.to_path_buf()] })
    }

    fn trial(&mut self, stage: &Stage<'_>) -> Result<Outcome, BenchError> {
        if self.makes() && self.path.exists() {
            let failed = BenchError::io(format!("remove {}", self.path.display()));
            std::fs::remove_file(self.path).map_err(failed)?;
        }
        let passed = Subject::new(stage, self.path, self.cell, self.manner).run(self.test)?;
        let mut outcome = Outcome::default();
        for (column, Passed { bytes, took, took_flushed, times }) in
            self.columns().iter().zip(passed)
        {
            outcome.values.insert(series(&self.cell, column, false).name, rate(bytes, took));
            if let Some(took) = took_flushed.filter(|_| writes(column)) {
                outcome.values.insert(series(&self.cell, column, true).name, rate(bytes, took));
            }
            outcome.phases.push(Phase { name: column.title.to_owned(), duration_ns: took });
            outcome.latencies.push((column.title.to_owned(), times));
        }
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        if self.keeps || !self.path.exists() {
            return Ok(());
        }
        let failed = BenchError::io(format!("remove {}", self.path.display()));
        std::fs::remove_file(self.path).map_err(failed)
    }
}
