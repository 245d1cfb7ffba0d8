//! The cells of the grid: file sizes by record sizes.
//!
//! Invariants: every record fits its file; cells are ordered by file size, then by record size, and
//! unique.

use std::collections::BTreeSet;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The largest record, which is the buffer size of IOzone.
pub const RECORD_MAX: u64 = 16 * MIB;
/// Files larger than this omit small records by default.
const CROSS_OVER_FILE: u64 = 16 * MIB;
/// Records smaller than this are small in that sense.
const CROSS_OVER_RECORD: u64 = 64 * KIB;

/// A file size and a record size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a record.
    pub record_bytes: u64,
}

impl Cell {
    /// Returns the number of whole records of the file; a remainder is not touched.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.file_bytes / self.record_bytes
    }
}

/// Sizes from the smallest to the largest, each a multiple of the one before; or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// From `least` to `most`, bytes.
    Range {
        /// The smallest size.
        least: u64,
        /// The upper bound of the sizes.
        most: u64,
    },
    /// These sizes, in any order.
    List(Vec<u64>),
}

impl Sizes {
    /// Returns the sizes in ascending order, each once; `factor` is at least 2.
    fn all(&self, factor: u64) -> BTreeSet<u64> {
        match self {
            Sizes::Range { least, most } => {
                let next = |size: &u64| size.checked_mul(factor);
                std::iter::successors(Some(*least), next).take_while(|size| size <= most).collect()
            }
            Sizes::List(sizes) => sizes.iter().copied().collect(),
        }
    }
}

/// The cells to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// File sizes.
    pub files: Sizes,
    /// Record sizes.
    pub records: Sizes,
    /// Factor from one size of a range to the next.
    pub factor: u64,
    /// True if large files omit small records.
    pub cross_over: bool,
}

impl Default for Grid {
    /// The grid of IOzone's automatic mode: files of 64 KiB to 512 MiB, records of 4 KiB to 16 MiB.
    fn default() -> Self {
        Grid {
            files: Sizes::Range { least: 64 * KIB, most: 512 * MIB },
            records: Sizes::Range { least: 4 * KIB, most: RECORD_MAX },
            factor: 2,
            cross_over: true,
        }
    }
}

impl Grid {
    /// Returns every cell of the table, and true if it is measured.
    #[must_use]
    pub fn table(&self) -> Vec<(Cell, bool)> {
        let factor = self.factor.max(2);
        let records = self.records.all(factor);
        let cells = self.files.all(factor).into_iter().flat_map(|file_bytes| {
            records.iter().map(move |&record_bytes| Cell { file_bytes, record_bytes })
        });
        cells.map(|cell| (cell, self.is_measured(&cell))).collect()
    }

    /// Returns the cells to measure.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        self.table().into_iter().filter_map(|(cell, measured)| measured.then_some(cell)).collect()
    }

    /// Small records of large files take long and show little.
    fn is_measured(&self, cell: &Cell) -> bool {
        let is_crossed_over = self.cross_over
            && cell.file_bytes > CROSS_OVER_FILE
            && cell.record_bytes < CROSS_OVER_RECORD;
        cell.record_bytes <= cell.file_bytes && !is_crossed_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_grid_has_126_cells_and_146_without_the_cross_over() {
        let grid = Grid::default();
        assert_eq!(grid.cells().len(), 126);
        assert_eq!(Grid { cross_over: false, ..grid }.cells().len(), 146);
    }

    #[test]
    fn cells_rise_and_those_that_do_not_fit_are_left_out() {
        let grid = Grid {
            files: Sizes::List(vec![32 * MIB, 8 * KIB]),
            records: Sizes::Range { least: 4 * KIB, most: 16 * KIB },
            ..Grid::default()
        };
        let cell = |file_bytes, record_bytes| Cell { file_bytes, record_bytes };
        let table = grid.table();
        assert_eq!(table.len(), 6);
        assert_eq!(table[0], (cell(8 * KIB, 4 * KIB), true));
        assert_eq!(table[2], (cell(8 * KIB, 16 * KIB), false));
        assert_eq!(table[3], (cell(32 * MIB, 4 * KIB), false));
        assert_eq!(grid.cells(), [cell(8 * KIB, 4 * KIB), cell(8 * KIB, 8 * KIB)]);
        assert_eq!(cell(10, 4).records(), 2);
    }

    #[test]
    fn a_factor_makes_wider_steps_and_never_less_than_two() {
        let sizes = Sizes::Range { least: 1, most: 100 };
        assert_eq!(sizes.all(4).into_iter().collect::<Vec<_>>(), [1, 4, 16, 64]);
        let grid = Grid { files: sizes.clone(), records: sizes, factor: 0, cross_over: true };
        assert_eq!(grid.cells().len(), 28);
        let edge = Sizes::Range { least: 1 << 62, most: u64::MAX };
        assert_eq!(edge.all(4).len(), 1, "no overflow");
    }
}
