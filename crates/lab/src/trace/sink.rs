//! Output of traces: one interface for all formats that can be written.
//!
//! Invariant: the reader of each format returns the same records as the source, with the exceptions
//! for CSV in docs/FORMATS.md.

use super::csv::CsvWriter;
#[cfg(feature = "parquet")]
use super::parquet::ParquetWriter;
use super::{NameKind, Record, Source, ltr};
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Larder's format.
    Larder,
    /// Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
    /// CSV.
    Csv,
}

/// Format, name on the command line, and file name extension.
const TABLE: &[(Target, &str, &str)] = &[
    (Target::Larder, "larder", "ltr"),
    #[cfg(feature = "parquet")]
    (Target::Parquet, "parquet", "parquet"),
    (Target::Csv, "csv", "csv"),
];

impl Target {
    /// Returns all formats, each with its name and its extension.
    #[must_use]
    pub fn all() -> &'static [(Target, &'static str, &'static str)] {
        TABLE
    }

    /// Returns the format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Target> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the format of a file name extension.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Target> {
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        TABLE.iter().find(|row| row.2 == extension).map(|row| row.0)
    }

    /// Begins a trace in this format with the addressing of `source`. Only Larder's format stores
    /// the sampling divisor.
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin<W: Write + Send + 'static>(
        self,
        output: W,
        source: &dyn Source,
    ) -> io::Result<Box<dyn Sink>> {
        let (output, addressing) = (BufWriter::new(output), source.addressing());
        Ok(match self {
            Target::Larder => {
                let sample = source.sample();
                let options =
                    ltr::WriterOptions { addressing, sample, ..ltr::WriterOptions::default() };
                let writer = ltr::Writer::new(output, options)?;
                Box::new(LtrSink { writer, named_numbers: HashSet::new(), last: [None; 3] })
            }
            #[cfg(feature = "parquet")]
            Target::Parquet => Box::new(ParquetWriter::new(output, addressing)?),
            Target::Csv => Box::new(CsvWriter::new(output, addressing)?),
        })
    }
}

/// A writer of a trace.
pub trait Sink {
    /// Appends records of `source`, which provides the names.
    ///
    /// # Errors
    /// Writing failed.
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()>;

    /// Writes buffered data and ends the trace.
    ///
    /// # Errors
    /// Writing failed.
    fn finish(self: Box<Self>, source: &dyn Source) -> io::Result<()>;
}

/// Writer of Larder's format, which writes names before their first use.
struct LtrSink<W: Write> {
    writer: ltr::Writer<W>,
    named_numbers: HashSet<(NameKind, u32)>,
    /// Previous number of each kind: most records have the same one.
    last: [Option<u32>; 3],
}

impl<W: Write> Sink for LtrSink<W> {
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()> {
        for record in records {
            for (kind, last) in NameKind::ALL.into_iter().zip(&mut self.last) {
                let number = record.number_of(kind);
                if last.replace(number) != Some(number)
                    && let Some(name) = source.name(kind, number)
                    && self.named_numbers.insert((kind, number))
                {
                    self.writer.name(kind, number, name)?;
                }
            }
        }
        self.writer.append(records)
    }

    fn finish(self: Box<Self>, _source: &dyn Source) -> io::Result<()> {
        self.writer.finish().map(drop)
    }
}
