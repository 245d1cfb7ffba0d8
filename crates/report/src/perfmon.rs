//! Perfmon logs: file cache activity of a Windows machine, with correctly weighted ratios, from the
//! CSV files of Perfmon, logman, relog and typeperf.
//!
//! The mean of a hit ratio over intervals is a mean of means: an interval with ten requests counts
//! as much as one with ten thousand. Here the number of requests weights each interval. The four
//! cache interfaces are reported separately and never added up: those for mapping and pinning count
//! calls, not transfers.
//!
//! Invariants: values that a log lacks are missing in the result, which says so; nothing is guessed
//! silently. Ratios are from 0 to 1, times seconds, sizes bytes.

mod columns;
mod counters;
mod fields;
mod log;
mod names;
mod number;
mod observation;
mod show;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod weighting;

use crate::lines::{LINE_BYTES_MAX, LineError};
use larder_schema::perfmon::Summary;
use std::io::BufRead;

pub use log::Options;
pub use names::Names;
pub use number::Decimal;
pub use show::{to_csv, to_html, to_text};

/// An error reading a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerfmonError {
    /// The file is not a Perfmon log.
    #[error("it is not a Perfmon log: its first line does not begin with (PDH-CSV")]
    NoLog,
    /// The file cannot be read.
    #[error("{reason}")]
    Read {
        /// The operating system's error.
        reason: String,
    },
    /// The log ends after its first line.
    #[error("the log has no samples")]
    NoSamples,
    /// A line is invalid.
    #[error("line {line}: {reason}")]
    Line {
        /// Line number, counting from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
    /// No heading names a known counter.
    #[error(
        "none of its counters (the first are {headings}) has a name that is known in English, \
         German, French or Spanish; add --names with the names of that machine (docs/perfmon.md)"
    )]
    NothingKnown {
        /// The first headings.
        headings: String,
    },
}

/// Returns true if a file starts like a Perfmon log, in any supported encoding.
#[must_use]
pub fn is_log(head: &[u8]) -> bool {
    // The start is ASCII; in UTF-16 every other byte of it is zero.
    let non_zero = head.iter().copied().filter(|&byte| byte != 0);
    let begin: Vec<u8> = non_zero
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

/// Reads and summarizes a log.
///
/// # Errors
/// The file is not a log, has no samples or an invalid line, or no known counter.
pub fn read(log: impl BufRead, options: &Options<'_>) -> Result<Summary, PerfmonError> {
    Ok(summary::summarize(&log::read(log, options)?))
}
