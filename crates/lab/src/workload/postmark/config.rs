//! What a run of PostMark is asked to do, with the defaults of the original.
//!
//! Invariants: every number that can be set is within the range that its command allows, sizes are
//! bytes, `size_low` is at least 1 and at most `size_high`. Paths are bytes, as in the scripts.

use std::ffi::OsString;
use std::path::Path;

/// A directory for work files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Where it is; put before the name of each file with a slash between.
    pub path: OsString,
    /// How often it is chosen among all: at least 1.
    pub weight: u32,
}

impl Location {
    /// The directory as a path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.path)
    }
}

/// How the result of a run is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Several lines for people.
    Verbose,
    /// Thirteen numbers on one line.
    Terse,
}

impl ReportFormat {
    /// All of them.
    pub const ALL: [ReportFormat; 2] = [ReportFormat::Verbose, ReportFormat::Terse];

    /// The word of the script.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReportFormat::Verbose => "verbose",
            ReportFormat::Terse => "terse",
        }
    }
}

/// The largest chance that a bias can give, and the numbers that are drawn against it.
pub const BIAS_MAX: u32 = 10;

/// The largest file: the buffer of data is twice as long, and the original counts it in an int.
pub const SIZE_MAX: u32 = 1 << 30;

/// Everything that can be set.
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
    /// Where the random numbers come from.
    pub seed: u32,
    /// Directories for the files; none for the current one.
    pub locations: Vec<Location>,
    /// Subdirectories in each location; 0 and 1 mean none.
    pub subdirectories: u32,
    /// Bytes of one read.
    pub read_block: u32,
    /// Bytes of one write.
    pub write_block: u32,
    /// Whether reads and writes go through a buffer as those of C's stdio do.
    pub buffered: bool,
    /// How many of ten times a file is read and not appended to; none for neither.
    pub bias_read: Option<u32>,
    /// How many of ten times a file is created and not deleted; none for neither.
    pub bias_create: Option<u32>,
    /// How the result is printed.
    pub report: ReportFormat,
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
            report: ReportFormat::Verbose,
        }
    }
}

impl Config {
    /// How many subdirectories each location really gets: one is none.
    #[must_use]
    pub fn directories(&self) -> u32 {
        if self.subdirectories > 1 { self.subdirectories } else { 0 }
    }
}
