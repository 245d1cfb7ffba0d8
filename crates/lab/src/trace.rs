//! Traces: what was asked of a volume, request by request, whoever recorded it.
//!
//! [`Record`] is what all formats are read into; a [`Source`] hands records out in batches, so that
//! a trace larger than memory streams through. Volumes, files and processes are small numbers here,
//! whose names the source knows.

mod record;

pub use record::{Op, Record};

/// Why a trace cannot be read, in one sentence with the place.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input is not what its format says.
    #[error("{name}: {place}: {reason}")]
    Bad {
        /// File, or what stands for it.
        name: String,
        /// `line 17`, `byte 4096`, `record 12`.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// Reading it failed.
    #[error("{name}: {source}")]
    Io {
        /// File, or what stands for it.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Which names of a source are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOf {
    /// [`Record::volume`].
    Volume,
    /// [`Record::file`].
    File,
    /// [`Record::process`].
    Process,
}

/// Something that yields a trace.
pub trait Source {
    /// Appends the next records to `batch`, as many as are cheap to have at once; none at the end.
    ///
    /// # Errors
    /// The input is bad beyond the limit that was set, or cannot be read.
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError>;

    /// The name of a number, if it has one. Complete once the end has been reached.
    fn name(&self, of: NameOf, number: u32) -> Option<&str>;
}
