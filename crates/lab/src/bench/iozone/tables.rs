//! Tables for spreadsheets, as IOzone prints them with `-R`: one per column, record sizes across,
//! file sizes down, both in kB and quoted, rates in kB per second.
//!
//! A cell that was not measured is `-`, never 0. IOzone writes 0, so its tables can be
//! distinguished.

use super::grid::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const KIB: u64 = 1024;

/// Returns the table of cells and their rates in bytes per second under a heading such as `Writer
/// report`, with an empty line before it; `None` if a cell was left out.
pub(super) fn rate_table(
    report: &str,
    cells: impl IntoIterator<Item = (Cell, Option<u64>)>,
) -> String {
    let cells: BTreeMap<Cell, Option<u64>> = cells.into_iter().collect();
    let records: BTreeSet<u64> = cells.keys().map(|cell| cell.record_bytes).collect();
    let files: BTreeSet<u64> = cells.keys().map(|cell| cell.file_bytes).collect();
    let quoted = |bytes: u64| format!("\"{}\"", bytes / KIB);
    let mut text = format!("\n\"{report}\"\n        ");
    for &record in &records {
        write!(text, " {:>11}", quoted(record)).expect("a string takes everything");
    }
    text.push('\n');
    for file_bytes in files {
        write!(text, "{:<8}", quoted(file_bytes)).expect("a string takes everything");
        for &record_bytes in &records {
            let rate = cells.get(&Cell { file_bytes, record_bytes }).copied().flatten();
            let shown = rate.map_or("-".to_owned(), |rate| (rate / KIB).to_string());
            write!(text, " {shown:>11}").expect("a string takes everything");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_and_what_is_left_out_is_not_zero() {
        let cell = |file_kib: u64, record_kib: u64| Cell {
            file_bytes: file_kib * KIB,
            record_bytes: record_kib * KIB,
        };
        let rates = [
            (cell(128, 4), Some(0)),
            (cell(128, 128), Some(98_765_432 * KIB)),
            (cell(64, 4), Some(12_345_678 * KIB)),
            (cell(64, 128), None),
        ];
        let expected = "\n\"Writer report\"\n                 \"4\"       \"128\"\n\
                        \"64\"        12345678           -\n\
                        \"128\"              0    98765432\n";
        assert_eq!(rate_table("Writer report", rates), expected);
    }
}
