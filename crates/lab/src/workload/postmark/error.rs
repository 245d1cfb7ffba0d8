//! Why a run of PostMark fails. Every message can follow "failed to".

use super::engine::TooLarge;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a run fails.
#[derive(Debug, thiserror::Error)]
pub enum PostmarkError {
    /// Something was asked of a file or directory and not done.
    #[error("{doing} {}: {source}", .path.display())]
    File {
        /// What was asked, as "create".
        doing: &'static str,
        /// Of which file or directory.
        path: PathBuf,
        /// Why it was not done.
        source: Errno,
    },
    /// A file system is full.
    #[error(
        "{doing} {}: the file system is full; what was written has been removed", .path.display()
    )]
    Full {
        /// What was asked.
        doing: &'static str,
        /// Of which file.
        path: PathBuf,
    },
    /// A read or write did less than it was asked for, without an error.
    #[error("{doing} {}: only {done} of {asked} bytes", .path.display())]
    Short {
        /// What was asked.
        doing: &'static str,
        /// Of which file.
        path: PathBuf,
        /// Bytes that were done.
        done: usize,
        /// Bytes that were asked for.
        asked: usize,
    },
    /// There is less room than the files will take.
    #[error("start in {}: the files need {what}, and {free} are free", .path.display())]
    NoRoom {
        /// A directory on the file system.
        path: PathBuf,
        /// How much they need.
        what: String,
        /// How much there is.
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
        /// Transactions that were asked for.
        all: u64,
    },
    /// The memory that the run needs.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A thread could not be started.
    #[error("start thread {number}: {source}")]
    Thread {
        /// Which.
        number: u32,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody asked for it.
    #[error("finish: it was stopped, and what it made has been removed")]
    Stopped,
    /// A thread panicked.
    #[error("finish: a thread broke an invariant; please report what was printed")]
    Panicked,
    /// Something was left behind.
    #[error("{first}; {} is left behind, since it could not be removed ({why})", .path.display())]
    Left {
        /// What was wrong before.
        first: String,
        /// What is left.
        path: PathBuf,
        /// Why it could not be removed.
        why: String,
    },
}

impl PostmarkError {
    /// What became of a call.
    pub(super) fn of(doing: &'static str, path: impl Into<PathBuf>, source: Errno) -> Self {
        let path = path.into();
        if matches!(source, Errno::NOSPC | Errno::DQUOT) {
            PostmarkError::Full { doing, path }
        } else {
            PostmarkError::File { doing, path, source }
        }
    }
}
