//! Tables for spreadsheets, as IOzone prints them with `-R`: one per column, record sizes across,
//! file sizes down, both in kB and quoted, rates in kB per second.
//!
//! A cell that was not measured is `-`, never 0. IOzone writes 0, so its tables can be
//! distinguished; both can be parsed.

use super::COLUMNS;
use super::grid::Cell;
use std::fmt::Write as _;

const KIB: u64 = 1024;
/// Text of a cell that was not measured.
const NOT_MEASURED: &str = "-";

/// The rates of one column over the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTable {
    /// The heading, such as `Writer report`.
    pub report: String,
    /// Record sizes in bytes, ascending.
    pub records: Vec<u64>,
    /// File sizes in bytes, ascending, with a rate in bytes per second for each record size, in
    /// whole kB; `None` if it was not measured.
    pub files: Vec<(u64, Vec<Option<u64>>)>,
}

/// The reason for which a text is not such a table. Every message can follow "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the table in line {line}: {why}")]
pub struct TableError {
    line: usize,
    why: String,
}

impl RateTable {
    /// Returns the table of cells and their rates in bytes per second; `None` if a cell was left
    /// out.
    pub fn new(
        report: impl Into<String>,
        cells: impl IntoIterator<Item = (Cell, Option<u64>)>,
    ) -> Self {
        let cells: Vec<_> = cells.into_iter().collect();
        let rising = |size: fn(&Cell) -> u64| {
            let mut sizes: Vec<u64> = cells.iter().map(|(cell, _)| size(cell)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        };
        let records = rising(|cell| cell.record_bytes);
        let rate = |file_bytes, record_bytes| {
            let key = Cell { file_bytes, record_bytes };
            cells.iter().find(|(cell, _)| *cell == key).and_then(|&(_, rate)| rate)
        };
        let row = |file| (file, records.iter().map(|&record| rate(file, record)).collect());
        let files = rising(|cell| cell.file_bytes).into_iter().map(row).collect();
        RateTable { report: report.into(), records, files }
    }

    /// Returns the text, with an empty line before it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("\n\"{}\"\n        ", self.report);
        for record in &self.records {
            let quoted = format!("\"{}\"", record / KIB);
            write!(text, " {quoted:>11}").expect("a string takes everything");
        }
        text.push('\n');
        for (file, rates) in &self.files {
            let quoted = format!("\"{}\"", file / KIB);
            write!(text, "{quoted:<8}").expect("a string takes everything");
            for rate in rates {
                let shown = rate.map_or(NOT_MEASURED.to_owned(), |rate| (rate / KIB).to_string());
                write!(text, " {shown:>11}").expect("a string takes everything");
            }
            text.push('\n');
        }
        text
    }

    /// Parses all tables of a text; lines before the first table are ignored.
    ///
    /// # Errors
    /// A row does not have one rate per record size, or contains text that is not a number.
    pub fn parse_all(text: &str) -> Result<Vec<RateTable>, TableError> {
        let mut tables: Vec<RateTable> = Vec::new();
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        while let Some((at, line)) = lines.next() {
            let Some(report) = COLUMNS.iter().map(|c| c.report).find(|r| unquoted(line) == Some(r))
            else {
                if !line.is_empty() && line.starts_with('"') && !tables.is_empty() {
                    let row = row(at, line, tables.last().map_or(0, |t| t.records.len()))?;
                    tables.last_mut().expect("there is one").files.push(row);
                }
                continue;
            };
            let (at, heading) = lines.next().ok_or_else(|| error(at, "the table has no sizes"))?;
            let size = |word| kilobytes(at, unquoted(word).unwrap_or(word));
            let records = heading.split_whitespace().map(size).collect::<Result<_, _>>()?;
            tables.push(RateTable { report: report.to_owned(), records, files: Vec::new() });
        }
        Ok(tables)
    }
}

fn error(line: usize, why: impl Into<String>) -> TableError {
    TableError { line, why: why.into() }
}

fn unquoted(word: &str) -> Option<&str> {
    word.strip_prefix('"')?.strip_suffix('"')
}

fn kilobytes(line: usize, word: &str) -> Result<u64, TableError> {
    let number: Option<u64> = word.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(KIB));
    bytes.ok_or_else(|| error(line, format!("{word:?} is not a number of kB")))
}

fn row(line: usize, text: &str, columns: usize) -> Result<(u64, Vec<Option<u64>>), TableError> {
    let mut words = text.split_whitespace();
    let file = words.next().unwrap_or_default();
    let file = kilobytes(line, unquoted(file).unwrap_or(file))?;
    let rate = |word| match word {
        NOT_MEASURED => Ok(None),
        word => kilobytes(line, word).map(Some),
    };
    let rates = words.map(rate).collect::<Result<Vec<_>, _>>()?;
    if rates.len() != columns {
        return Err(error(line, format!("{} rates for {columns} record sizes", rates.len())));
    }
    Ok((file, rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(file_kib: u64, record_kib: u64) -> Cell {
        Cell { file_bytes: file_kib * KIB, record_bytes: record_kib * KIB }
    }

    #[test]
    fn what_is_written_is_read_back_and_left_out_is_not_zero() {
        let rates = [
            (cell(64, 4), Some(12_345_678 * KIB)),
            (cell(64, 128), None),
            (cell(128, 4), Some(0)),
            (cell(128, 128), Some(98_765_432 * KIB)),
        ];
        let tables =
            [RateTable::new("Writer report", rates), RateTable::new("Stride read report", rates)];
        let text = format!("some heading\n{}{}", tables[0].to_text(), tables[1].to_text());
        assert!(text.contains("\n\"64\"        12345678           -\n"), "{text}");
        assert_eq!(RateTable::parse_all(&text).unwrap(), tables);
    }

    #[test]
    fn a_table_as_iozone_prints_it_is_read() {
        let text = "iozone test complete.\nExcel output is below:\n\n\"Reader report\"\n        \
                    \"4\"  \"8\"  \n\"64\"   5283570  0 \n\"128\"   1  2 \n\n";
        let tables = RateTable::parse_all(text).unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].records, [4 * KIB, 8 * KIB]);
        assert_eq!(tables[0].files[0], (64 * KIB, vec![Some(5_283_570 * KIB), Some(0)]));
    }

    #[test]
    fn wrong_rows_are_named_with_their_line() {
        let error_of = |text: &str| RateTable::parse_all(text).unwrap_err().to_string();
        assert_eq!(
            error_of("\"Writer report\"\n\"4\" \"8\"\n\"64\" 1"),
            "read the table in line 3: 1 rates for 2 record sizes"
        );
        assert_eq!(
            error_of("\"Writer report\"\n\"4\"\n\"64\" fast"),
            "read the table in line 3: \"fast\" is not a number of kB"
        );
        assert_eq!(
            error_of("\"Writer report\""),
            "read the table in line 1: the table has no sizes"
        );
        assert_eq!(RateTable::parse_all("").unwrap(), []);
    }
}
