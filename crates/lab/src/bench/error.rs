//! Errors of a run: one clear sentence each, which can follow "cannot".

use std::io;

/// The reason for which a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The user stopped the run.
    #[error("go on: it was stopped")]
    Stopped,
    /// The system reported an error.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The workload or the machine cannot continue: the operation and the reason.
    #[error("{0}")]
    Failed(String),
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
