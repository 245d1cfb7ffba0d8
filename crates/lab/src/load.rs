//! A load on an export: writes, reads and flushes over several connections, and a check of the data
//! after a crash.
//!
//! The load runs until a connection breaks or its time is up, and fails when a read returns wrong
//! data. [`check()`] compares an image with the log of a load, without the cache.

mod area;
mod check;
mod connection;
mod log;
mod sector;

pub use check::{CheckResult, check};
pub use connection::{LoadOperation, LoadOptions, LoadTotals, run};
pub use log::Log;

use crate::connection::ConnectionError;
use std::io;

/// A load or a check that failed, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read or written.
    #[error("{operation}: {error}")]
    Io {
        /// The operation.
        operation: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The input is invalid, or the server returned wrong data.
    #[error("{0}")]
    Refused(String),
    /// A connection or a request failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Adds the operation to an error of a file.
fn io_error(operation: impl Into<String>) -> impl FnOnce(io::Error) -> LoadError {
    |error| LoadError::Io { operation: operation.into(), error }
}
