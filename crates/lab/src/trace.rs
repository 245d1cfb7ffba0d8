//! Block traces: the requests to volumes, recorded by Larder or by other tools.
//!
//! All formats are converted to [`Record`]s; a [`Source`] returns records in batches, so that a
//! trace larger than memory can be streamed. Records identify volumes, files and processes by small
//! numbers, and the source has their names.

mod anonymous;
mod bytes;
mod csv;
mod decode;
mod describe;
mod filter;
mod footprint;
mod format;
mod input;
pub mod ltr;
mod merge;
mod names;
mod observe;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod read;
mod record;
mod sink;
mod summary;
pub mod synth;
#[cfg(test)]
mod tests;
mod text;

pub use anonymous::{Anonymized, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, FirstReading, KeyedHash};
pub use describe::Description;
pub use filter::Filter;
pub(crate) use footprint::Footprint;
pub use format::Format;
pub use merge::Merge;
use observe::Observer;
pub use open::{BoxedSource, OpenOptions, open, open_stream};
pub use record::{NameKind, Op, Record};
pub use sink::{Sink, Target};

use std::fmt;

/// Maximum length of a read or write, in bytes: no block protocol has longer ones, and code that
/// iterates over the pages of a request relies on it.
pub const LEN_MAX: u64 = 4 << 30;
/// Maximum time of a record, in nanoseconds: 146 years, so that no sum of times overflows.
pub const TIME_NS_MAX: u64 = 1 << 62;
/// Maximum volume number: consumers keep state for each number up to it.
pub const VOLUME_MAX: u32 = (1 << 20) - 1;

/// A trace that cannot be read, with the position. The message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input violates its format.
    #[error("read {name}: {place}: {reason}")]
    Bad {
        /// Name of the file, or of another input.
        name: String,
        /// `line 17`, `byte 4096`, `record 12`.
        place: String,
        /// Description of the defect.
        reason: String,
    },
    /// Reading it failed.
    #[error("read {name}: {source}")]
    Io {
        /// Name of the file, or of another input.
        name: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// The unit of [`Record::offset`] and [`Record::len`] in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Bytes of a volume. A request touches the pages that its range meets.
    #[default]
    Bytes,
    /// Bytes of a volume as well, but the trace was recorded in pages of `bytes` (the `.lis` traces
    /// of ARC: 512), all offsets and lengths are multiples of it, and published figures count one
    /// reference for each such page. It is the default page size of a simulation.
    Pages {
        /// Bytes of one page of the trace, a power of two.
        bytes: u32,
    },
    /// `offset` is the key of an object (any 64 bits, not bytes: adjacent keys are unrelated) and
    /// `len` is the object's size in bytes, 0 if the format has none. A request is one reference to
    /// one object and is never split.
    Objects,
}

impl fmt::Display for Addressing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addressing::Bytes => f.write_str("bytes"),
            Addressing::Pages { bytes } => write!(f, "pages:{bytes}"),
            Addressing::Objects => f.write_str("objects"),
        }
    }
}

/// A reader of a trace.
///
/// Records come in the order of the file. Times count from the first record; one that is earlier
/// than the first has time 0, and none is above [`TIME_NS_MAX`]. No volume is above [`VOLUME_MAX`].
/// In reads and writes of a trace that is not of objects `len` is at most [`LEN_MAX`], and
/// `offset + len` never overflows.
pub trait Source {
    /// Appends the next records to `batch`, as many as are cheap to read at once; none at the end.
    ///
    /// # Errors
    /// The input has more errors than the limit allows, or cannot be read.
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError>;

    /// Replaces the contents of `batch` with the next records. Returns false at the end.
    ///
    /// # Errors
    /// As [`Source::read_batch`].
    fn next_batch(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        batch.clear();
        self.read_batch(batch)?;
        Ok(!batch.is_empty())
    }

    /// Returns the name of a number, if it has one. Complete at the end of the trace.
    fn name(&self, kind: NameKind, number: u32) -> Option<&str>;

    /// Returns the unit of offsets and lengths; constant from the first call on.
    fn addressing(&self) -> Addressing {
        Addressing::Bytes
    }

    /// Returns the sampling divisor `n`: the trace has one of `n` pages, each with all of its
    /// references; 1 if it has all pages. Constant from the first call on.
    fn sample(&self) -> u32 {
        1
    }

    /// Returns notes on the reading for the user, one sentence each: assumptions, skipped records,
    /// a truncated file. Complete at the end of the trace.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        (**self).read_batch(batch)
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        (**self).name(kind, number)
    }

    fn addressing(&self) -> Addressing {
        (**self).addressing()
    }

    fn sample(&self) -> u32 {
        (**self).sample()
    }

    fn notes(&self) -> Vec<String> {
        (**self).notes()
    }
}
