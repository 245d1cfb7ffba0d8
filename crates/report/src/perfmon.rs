//! Logs of Perfmon: what the file cache of a Windows machine did, with ratios weighted as they
//! should be, from the CSV that Perfmon, logman, relog and typeperf write.
//!
//! A monitor that averages a hit ratio over intervals averages averages: an interval with ten
//! requests counts as much as one with ten thousand. Here each interval counts by its requests. The
//! four interfaces of the cache are told apart and never added up: those of mapping and pinning
//! count calls, not transfers.
//!
//! Invariants: what is missing in a log is missing in the result and said; nothing is guessed
//! silently. Ratios are from 0 to 1, times seconds, sizes bytes.

mod columns;
mod counters;
mod fields;
mod log;
mod names;
mod number;
mod show;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod weighting;

use crate::lines::{LINE_BYTES_MAX, LineError};
use std::io::BufRead;

pub use log::Options;
pub use names::Names;
pub use number::Decimal;
pub use summary::{Bursts, Disk, Interface, Line, Memory, Process, Summary};

/// The name of the JSON form.
pub const SCHEMA: &str = "larder-perfmon";
/// Its version.
pub const VERSION: u32 = 1;

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerfmonError {
    /// It is something else.
    #[error("this is no log of Perfmon: its first line does not begin with (PDH-CSV")]
    NoLog,
    /// The file cannot be read.
    #[error("{reason}")]
    Read {
        /// The operating system's error.
        reason: String,
    },
    /// It ends behind its first line.
    #[error("the log has no samples")]
    NoSamples,
    /// One line is wrong.
    #[error("line {line}: {reason}")]
    Line {
        /// Counting from 1.
        line: u64,
        /// What is wrong there.
        reason: String,
    },
    /// No heading means one of our counters.
    #[error(
        "none of its counters has a name that is known in English, German, French or Spanish \
         (the first are {headings}); counters of the objects Cache, Memory, LogicalDisk, \
         PhysicalDisk and Process are looked for, and --names takes a list of the names of that \
         machine"
    )]
    NothingKnown {
        /// The first of them.
        headings: String,
    },
}

/// Whether a file begins as a log of Perfmon does, in any of the encodings that are read.
#[must_use]
pub fn is_log(head: &[u8]) -> bool {
    // The beginning is ASCII; in UTF-16 every other byte of it is zero.
    let plain = head.iter().copied().filter(|&byte| byte != 0);
    let begin: Vec<u8> = plain
        .skip_while(|byte| [0xef, 0xbb, 0xbf, 0xff, 0xfe, b'"'].contains(byte))
        .take(8)
        .collect();
    begin == b"(PDH-CSV" || begin == b"(PDH-TSV"
}

impl From<LineError> for PerfmonError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::TooLong { line } => {
                let reason = format!("it is longer than {LINE_BYTES_MAX} bytes");
                PerfmonError::Line { line, reason }
            }
            LineError::Io(error) => PerfmonError::Read { reason: error.to_string() },
        }
    }
}

/// Reads a log and adds it up.
///
/// # Errors
/// It is no log, has no samples, a line of it is wrong, or none of its counters is known.
pub fn read(log: impl BufRead, options: &Options<'_>) -> Result<Summary, PerfmonError> {
    Ok(Summary::of(&log::read(log, options)?))
}
