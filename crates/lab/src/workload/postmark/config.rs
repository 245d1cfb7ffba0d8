//! Configuration of a PostMark run, with the defaults of the original.
//!
//! Invariants: every number that can be set is within the range that its command allows, sizes are
//! bytes, `size_low` is at least 1 and at most `size_high`. Paths are bytes, as in the scripts.

use std::ffi::OsString;
use std::path::Path;

/// A directory for work files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The path; put before the name of each file with a slash between.
    pub path: OsString,
    /// Weight with which it is chosen among all locations: at least 1.
    pub weight: u32,
}

impl Location {
    /// The directory as a path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.path)
    }
}

/// The largest chance of a bias, and the bound of the numbers that are drawn against it.
pub const BIAS_MAX: u32 = 10;

/// The largest file: the data buffer is twice as long, and the original counts it in an int.
pub const SIZE_MAX: u32 = 1 << 30;

/// All settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Files that are created before the transactions; the table holds twice as many.
    pub number: u32,
    /// Transactions: each reads or appends, and creates or deletes.
    pub transactions: u32,
    /// Smallest size of a new file, bytes.
    pub size_low: u32,
    /// New files are smaller than this, appended ones at most this long, bytes.
    pub size_high: u32,
    /// The seed of the random numbers.
    pub seed: u32,
    /// Directories for the files; none for the current one.
    pub locations: Vec<Location>,
    /// Subdirectories in each location; 0 and 1 mean none.
    pub subdirectories: u32,
    /// Bytes of one read.
    pub read_block: u32,
    /// Bytes of one write.
    pub write_block: u32,
    /// True if reads and writes go through a buffer like that of C's stdio.
    pub buffered: bool,
    /// Chance in ten that a file is read and not appended to; `None` for neither.
    pub bias_read: Option<u32>,
    /// Chance in ten that a file is created and not deleted; `None` for neither.
    pub bias_create: Option<u32>,
    /// True for a result of several lines for people, and not of thirteen numbers on one line.
    pub is_verbose: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            number: 500,
            transactions: 500,
            size_low: 500,
            size_high: 10_000,
            seed: 42,
            locations: Vec::new(),
            subdirectories: 0,
            read_block: 512,
            write_block: 512,
            buffered: true,
            bias_read: Some(5),
            bias_create: Some(5),
            is_verbose: true,
        }
    }
}

impl Config {
    /// Returns the number of subdirectories that each location gets: a setting of 1 means none.
    #[must_use]
    pub fn directories(&self) -> u32 {
        if self.subdirectories > 1 { self.subdirectories } else { 0 }
    }
}
