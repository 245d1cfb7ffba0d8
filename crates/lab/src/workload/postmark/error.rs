//! Errors of a PostMark run. Every message can follow "failed to".

use super::engine::TooLarge;
use rustix::io::Errno;
use std::path::PathBuf;

/// The reason for which a run fails.
#[derive(Debug, thiserror::Error)]
pub enum PostmarkError {
    /// An operation on a file or directory failed.
    #[error("{operation} {}: {source}", .path.display())]
    File {
        /// The operation, such as "create".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: Errno,
    },
    /// A file system is full.
    #[error(
        "{operation} {}: the file system is full; what was written has been removed",
        .path.display()
    )]
    Full {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A read or write did less than requested, without an error.
    #[error("{operation} {}: only {done} of {requested} bytes", .path.display())]
    Short {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Bytes done.
        done: usize,
        /// Bytes requested.
        requested: usize,
    },
    /// There is less free space than the files need.
    #[error("start in {}: the files need {what}, and {free} are free", .path.display())]
    NoRoom {
        /// A directory on the file system.
        path: PathBuf,
        /// Required space.
        what: String,
        /// Free space.
        free: String,
    },
    /// There would be no file left before the last transaction.
    #[error(
        "do all transactions: after {done} of {all} no file is left; begin with more files, do \
         fewer transactions, or create more often than delete"
    )]
    OutOfFiles {
        /// Transactions until then.
        done: u64,
        /// Requested transactions.
        all: u64,
    },
    /// The run needs more memory than there is.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A thread could not be started.
    #[error("start thread {number}: {source}")]
    Thread {
        /// The number of the thread.
        number: u32,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The user stopped the run.
    #[error("finish: it was stopped, and what it made has been removed")]
    Stopped,
    /// A thread panicked.
    #[error("finish: a thread broke an invariant; please report what was printed")]
    Panicked,
    /// A directory could not be removed.
    #[error("{first}; {} is left behind, since it could not be removed ({why})", .path.display())]
    Left {
        /// The first error.
        first: String,
        /// The directory.
        path: PathBuf,
        /// The reason for which it could not be removed.
        why: String,
    },
}

impl PostmarkError {
    /// Returns the error of an operation.
    pub(super) fn of(operation: &'static str, path: impl Into<PathBuf>, source: Errno) -> Self {
        let path = path.into();
        if matches!(source, Errno::NOSPC | Errno::DQUOT) {
            PostmarkError::Full { operation, path }
        } else {
            PostmarkError::File { operation, path, source }
        }
    }
}
