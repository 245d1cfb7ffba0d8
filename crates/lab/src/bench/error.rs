//! What can go wrong in a run: one clear sentence each, which can follow "failed to".

use larder_report::run::trial::Start;
use std::io;
use std::path::PathBuf;

/// What the surroundings could not do: a sentence that can follow "failed to".
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Somebody asked for it.
    #[error("go on: it was stopped")]
    Stopped,
    /// The workload met an error of the system.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and where.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The workload cannot go on for a reason of its own.
    #[error("{0}")]
    Workload(String),
    /// The machine could not be asked or changed.
    #[error(transparent)]
    Surroundings(#[from] HostError),
    /// There is not enough room.
    #[error(
        "run in {}: it needs {} and {} are free",
        directory.display(),
        larder_report::format::bytes(*needs),
        larder_report::format::bytes(*free)
    )]
    NoSpace {
        /// Where.
        directory: PathBuf,
        /// Bytes that the workload needs.
        needs: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Pages stayed.
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
        /// How many it has.
        of_file: u64,
        /// Why they stay.
        why: String,
    },
    /// Pages are missing.
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
        /// How many it lacks.
        of_file: u64,
        /// Why they are missing.
        why: String,
    },
    /// What keeps its own cache has not the share that was asked for.
    #[error("start {}: {resident} of {pages} blocks are cached", start.name())]
    NotStarted {
        /// What was asked for.
        start: Start,
        /// Blocks that are cached.
        resident: u64,
        /// All blocks.
        pages: u64,
    },
    /// Nobody can tell how it starts.
    #[error("start {}: {why}; say --start as-is", start.name())]
    NoStart {
        /// What was asked for.
        start: Start,
        /// Why it can neither be made nor checked.
        why: String,
    },
    /// A thread of the workload panicked.
    #[error("go on: thread {worker} panicked in phase \"{phase}\"")]
    Panicked {
        /// Its number, from 0.
        worker: usize,
        /// Where it was.
        phase: String,
    },
    /// A series that was announced has no value, or one that is no number.
    #[error("record trial {trial}: series \"{series}\" has {what}")]
    NoValue {
        /// Counted from 1.
        trial: u64,
        /// Which series.
        series: String,
        /// What was there instead.
        what: String,
    },
    /// It ended with an error, and what it made is still there.
    #[error("{first}; and what it made could not be removed: {second}")]
    LeftBehind {
        /// Why it ended.
        first: Box<BenchError>,
        /// Why it is still there.
        second: Box<BenchError>,
    },
}

impl BenchError {
    /// An error of the system with what was being done, as in `"write /x"`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let what = what.into();
        move |source| BenchError::Io { what, source }
    }

    /// What became of a run and of cleaning up after it, as one; no error is lost.
    pub(crate) fn first_of<T>(
        ended: Result<T, BenchError>,
        cleaned: Result<(), BenchError>,
    ) -> Result<T, BenchError> {
        match (ended, cleaned) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(error)) | (Err(error), Ok(())) => Err(error),
            (Err(first), Err(second)) => {
                Err(BenchError::LeftBehind { first: Box::new(first), second: Box::new(second) })
            }
        }
    }

    /// Whether it ended because somebody asked for it.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        matches!(self, BenchError::Stopped)
    }
}
