//! The IOzone grid: the tests of IOzone with their numbers and column names, the cells of file and
//! record size, and the order in which each test goes through the records of a file.
//!
//! The behavior is that of IOzone 3.487, as far as it is useful. Intended differences: a cell that
//! was not measured is never 0, columns never run together, and a cell can hold several
//! repetitions. Sizes are bytes, rates are bytes per second. No I/O here.

pub mod grid;
mod grid_run;
mod mode;
mod order;
mod passes;
mod records;
pub mod show;
mod subject;
mod tables;
pub mod throughput;

pub use grid_run::GridRun;
pub use mode::{Mode, run};
pub use order::STRIDE;
pub use subject::{AccessPattern, Sync};

/// A column of results: a test of `-i`, as a whole or one of its halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column {
    /// Number of its test, as `-i` takes it.
    pub test: u8,
    /// Name of its report in the tables for spreadsheets.
    pub report: &'static str,
    /// Short name, in the rows of text.
    pub title: &'static str,
    /// Name in results: unique, lower case.
    pub name: &'static str,
}

const fn column(test: u8, report: &'static str, title: &'static str, name: &'static str) -> Column {
    Column { test, report, title, name }
}

impl Column {
    /// Returns true if it is a rate of writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.name.contains("write")
    }
}

/// All columns, in the order of reports.
pub const COLUMNS: [Column; 17] = [
    column(0, "Writer report", "write", "write"),
    column(0, "Re-writer report", "rewrite", "rewrite"),
    column(1, "Reader report", "read", "read"),
    column(1, "Re-Reader report", "reread", "reread"),
    column(2, "Random read report", "random read", "random-read"),
    column(2, "Random write report", "random write", "random-write"),
    column(3, "Backward read report", "bkwd read", "backward-read"),
    column(4, "Record rewrite report", "record rewrite", "record-rewrite"),
    column(5, "Stride read report", "stride read", "stride-read"),
    column(6, "Fwrite report", "fwrite", "fwrite"),
    column(6, "Re-Fwrite report", "frewrite", "frewrite"),
    column(7, "Fread report", "fread", "fread"),
    column(7, "Re-Fread report", "freread", "freread"),
    column(9, "Pwrite report", "pwrite", "pwrite"),
    column(9, "Re-Pwrite report", "repwrite", "repwrite"),
    column(10, "Pread report", "pread", "pread"),
    column(10, "Re-Pread report", "repread", "repread"),
];

/// The tests that run by default.
pub const DEFAULT_TESTS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
/// The test that mixes readers and writers; it has no column, as only throughput mode has it.
pub const MIX_TEST: u8 = 8;
/// The test of random reads and random writes, of which the mix test consists.
pub const RANDOM_TEST: u8 = 2;
/// The test that writes the first record repeatedly; throughput mode does not have it.
pub const RECORD_REWRITE_TEST: u8 = 4;
/// The highest test number.
pub const LAST_TEST: u8 = 10;

/// Returns the columns of these tests, in the order of reports.
#[must_use]
pub fn columns(tests: &[u8]) -> Vec<Column> {
    COLUMNS.iter().filter(|column| tests.contains(&column.test)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_reports_are_unique() {
        for (i, one) in COLUMNS.iter().enumerate() {
            let is_other = |other: &Column| other.name != one.name && other.report != one.report;
            assert!(COLUMNS[i + 1..].iter().all(is_other), "{}", one.name);
        }
    }

    #[test]
    fn tests_bring_their_columns_in_the_order_of_reports() {
        let names = |tests: &[u8]| columns(tests).iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(names(&[2, 0]), ["write", "rewrite", "random-read", "random-write"]);
        assert_eq!(columns(&DEFAULT_TESTS).len(), 13);
        assert!(names(&[MIX_TEST]).is_empty());
    }
}
