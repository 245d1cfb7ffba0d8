//! Replay of a trace: sends its requests to exports, and measures the latencies.
//!
//! The threads take requests from one [`RequestSource`], in the order of the trace.

mod outcome;
mod requests;
#[cfg(test)]
mod tests;
mod worker;

pub use outcome::Outcome;
pub use requests::{Export, Exports, RecordFilter, RequestSource};
pub use worker::{ReplayOptions, SentRequest, run};

use crate::connection::ConnectionError;
use crate::trace::TraceError;

/// A replay that failed, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace does not fit its exports.
    #[error("{0}")]
    Refused(String),
    /// A connection failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}
