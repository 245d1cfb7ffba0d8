//! Errors of a run: one clear sentence each, which can follow "failed to".

use larder_schema::run::trial::Start;
use std::io;
use std::path::PathBuf;

/// An operation on the host that failed: a sentence that can follow "failed to".
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// The reason for which a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The user stopped the run.
    #[error("go on: it was stopped")]
    Stopped,
    /// The workload got an error from the system.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The workload cannot continue for a reason of its own.
    #[error("{0}")]
    Workload(String),
    /// The machine could not be queried or changed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is not enough free space.
    #[error(
        "run in {}: it needs {} and {} are free",
        directory.display(),
        larder_schema::format::bytes(*needs),
        larder_schema::format::bytes(*free)
    )]
    NoSpace {
        /// The directory.
        directory: PathBuf,
        /// Bytes that the workload needs.
        needs: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Pages stayed in memory.
    #[error(
        "start cold: {resident} of {pages} pages stay in memory; {} has {of_file} of them, and \
         {why}",
        file.display()
    )]
    NotCold {
        /// Resident pages of all files.
        resident: u64,
        /// All pages.
        pages: u64,
        /// The first file with resident pages.
        file: PathBuf,
        /// Its number of resident pages.
        of_file: u64,
        /// The reason for which they stay.
        why: String,
    },
    /// Pages are missing from memory.
    #[error(
        "start warm: {resident} of {pages} pages are in memory after everything was read; {} lacks \
         {of_file}, and {why}",
        file.display()
    )]
    NotWarm {
        /// Resident pages of all files.
        resident: u64,
        /// All pages.
        pages: u64,
        /// The first file that lacks pages.
        file: PathBuf,
        /// Its number of missing pages.
        of_file: u64,
        /// The reason for which they are missing.
        why: String,
    },
    /// A target with its own cache does not have the requested share of its blocks cached.
    #[error("start {}: {resident} of {pages} blocks are cached", start.name())]
    NotStarted {
        /// The requested start.
        start: Start,
        /// Blocks that are cached.
        resident: u64,
        /// All blocks.
        pages: u64,
    },
    /// The start can be neither prepared nor verified.
    #[error("start {}: {why}; say --start as-is", start.name())]
    NoStart {
        /// The requested start.
        start: Start,
        /// The reason.
        why: String,
    },
    /// A thread of the workload panicked.
    #[error("go on: thread {worker} panicked in phase \"{phase}\"")]
    Panicked {
        /// The number of the thread, from 0.
        worker: usize,
        /// The phase.
        phase: String,
    },
    /// An announced series has no value, or one that is not a number.
    #[error("record trial {trial}: series \"{series}\" has {what}")]
    NoValue {
        /// The trial, from 1.
        trial: u64,
        /// The series.
        series: String,
        /// The value found instead.
        what: String,
    },
    /// The run ended with an error, and its files could not be removed.
    #[error("{first}; and what it made could not be removed: {second}")]
    LeftBehind {
        /// The error that ended the run.
        first: Box<BenchError>,
        /// The error of the removal.
        second: Box<BenchError>,
    },
}

impl BenchError {
    /// Returns a function that adds the failed operation, such as `"write /x"`, to an error of the
    /// system.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let what = what.into();
        move |source| BenchError::Io { what, source }
    }

    /// Combines the results of a run and of the cleanup after it, so that no error is lost.
    pub(crate) fn first_of<T>(
        result: Result<T, BenchError>,
        clean_up: Result<(), BenchError>,
    ) -> Result<T, BenchError> {
        match (result, clean_up) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
            (Err(first), Err(second)) => {
                Err(BenchError::LeftBehind { first: Box::new(first), second: Box::new(second) })
            }
        }
    }

    /// Returns true if the run ended because the user stopped it.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        matches!(self, BenchError::Stopped)
    }
}
