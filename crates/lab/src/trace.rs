//! Traces: what was asked of a volume, request by request, whoever recorded it.
//!
//! [`Record`] is what all formats are read into; a [`Source`] hands records out in batches, so that
//! a trace larger than memory streams through. Volumes, files and processes are small numbers here,
//! whose names the source knows.

mod bytes;
mod csv;
mod decode;
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
pub mod summary;
pub mod synth;
#[cfg(test)]
mod tests;
mod text;

pub use csv::CsvWriter;
pub use filter::Filter;
pub use footprint::Footprint;
pub use format::Format;
pub use merge::Merge;
pub use observe::Observer;
pub use open::{BoxedSource, OpenOptions, open, open_stream};
#[cfg(feature = "parquet")]
pub use parquet::ParquetWriter;
pub use record::{Op, Record};
pub use sink::{Sink, Target};

/// The longest read or write, in bytes: no block protocol has longer ones, and whoever walks the
/// pages of a request relies on it.
pub const LEN_MAX: u64 = 4 << 30;
/// The latest time of a record, in nanoseconds: 146 years, so that no sum of times overflows.
pub const TIME_NS_MAX: u64 = 1 << 62;
/// The largest volume number: consumers keep state for each number up to it.
pub const VOLUME_MAX: u32 = (1 << 20) - 1;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameOf {
    /// [`Record::volume`].
    Volume,
    /// [`Record::file`].
    File,
    /// [`Record::process`].
    Process,
}

/// What [`Record::offset`] and [`Record::len`] count in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Bytes of a volume. A request touches the pages that its range meets.
    #[default]
    Bytes,
    /// Bytes of a volume as well, but the trace was recorded in pages of `bytes` (the `.lis` traces
    /// of ARC: 512), all offsets and lengths are multiples of it, and published figures count one
    /// reference for each such page. Who is not told another page size takes this one.
    Pages {
        /// Bytes of one page of the trace, a power of two.
        bytes: u32,
    },
    /// `offset` is the key of an object (any 64 bits, not bytes: keys side by side are strangers)
    /// and `len` is the object's size in bytes, 0 where the format has none. A request is one
    /// reference to one object and is never split.
    Objects,
}

/// Something that yields a trace.
///
/// Records come in the order of the file. Times count from the first record; one that is earlier
/// than the first has time 0, and none is above [`TIME_NS_MAX`]. No volume is above [`VOLUME_MAX`].
/// In reads and writes of a trace that is not of objects `len` is at most [`LEN_MAX`], and
/// `offset + len` never overflows.
pub trait Source {
    /// Appends the next records to `batch`, as many as are cheap to have at once; none at the end.
    ///
    /// # Errors
    /// The input is bad beyond the limit that was set, or cannot be read.
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError>;

    /// Replaces what `batch` holds by the next records; false at the end.
    ///
    /// # Errors
    /// As [`Source::read_batch`].
    fn next_batch(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        batch.clear();
        self.read_batch(batch)?;
        Ok(!batch.is_empty())
    }

    /// The name of a number, if it has one. Complete once the end has been reached.
    fn name(&self, of: NameOf, number: u32) -> Option<&str>;

    /// What offsets and lengths count; the same from the first call on.
    fn addressing(&self) -> Addressing {
        Addressing::Bytes
    }

    /// Of so many pages one is in the trace, each with all of its references or with none; 1 if all
    /// are. The same from the first call on.
    fn sample(&self) -> u32 {
        1
    }

    /// What the user should know about the reading, a sentence each: what was guessed, what was
    /// passed over, that the file was cut short. Complete once the end has been reached.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        (**self).read_batch(batch)
    }

    fn name(&self, of: NameOf, number: u32) -> Option<&str> {
        (**self).name(of, number)
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
