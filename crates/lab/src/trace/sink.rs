//! Output of traces: one interface for all formats that can be written.
//!
//! Invariant: the reader of each format returns the same records as the source, with the exceptions
//! for CSV in docs/FORMATS.md.

use super::{CsvWriter, NameOf, Record, Source, ltr};
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

impl Target {
    /// All formats.
    pub const ALL: &[Target] = &[
        Target::Larder,
        #[cfg(feature = "parquet")]
        Target::Parquet,
        Target::Csv,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Target::Larder => "larder",
            #[cfg(feature = "parquet")]
            Target::Parquet => "parquet",
            Target::Csv => "csv",
        }
    }

    /// Returns the file name extension.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Target::Larder => "ltr",
            #[cfg(feature = "parquet")]
            Target::Parquet => "parquet",
            Target::Csv => "csv",
        }
    }

    /// Returns the format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.iter().copied().find(|target| target.name() == name)
    }

    /// Returns the format of a file name extension.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Target> {
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        Target::ALL.iter().copied().find(|target| target.extension() == extension)
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
        let addressing = source.addressing();
        Ok(match self {
            Target::Larder => {
                let sample = source.sample();
                let options =
                    ltr::WriterOptions { addressing, sample, ..ltr::WriterOptions::default() };
                let writer = ltr::Writer::new(BufWriter::new(output), options)?;
                Box::new(LtrSink { writer, named_numbers: HashSet::new(), last: [None; 3] })
            }
            #[cfg(feature = "parquet")]
            Target::Parquet => {
                Box::new(super::ParquetWriter::new(BufWriter::new(output), addressing)?)
            }
            Target::Csv => Box::new(CsvWriter::new(BufWriter::new(output), addressing)?),
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
    named_numbers: HashSet<(u8, u32)>,
    /// Previous number of each kind: most records have the same one.
    last: [Option<u32>; 3],
}

impl<W: Write> LtrSink<W> {
    fn name(&mut self, index: u8, number: u32, source: &dyn Source) -> io::Result<()> {
        let kinds = [NameOf::Volume, NameOf::File, NameOf::Process];
        let kind = kinds[usize::from(index)];
        let last = &mut self.last[usize::from(index)];
        if *last == Some(number) {
            return Ok(());
        }
        *last = Some(number);
        match source.name(kind, number) {
            Some(name) if self.named_numbers.insert((index, number)) => {
                self.writer.name(kind, number, name)
            }
            _ => Ok(()),
        }
    }
}

impl<W: Write> Sink for LtrSink<W> {
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()> {
        for record in records {
            self.name(0, record.volume, source)?;
            self.name(1, record.file, source)?;
            self.name(2, record.process, source)?;
        }
        self.writer.append(records)
    }

    fn finish(self: Box<Self>, _source: &dyn Source) -> io::Result<()> {
        self.writer.finish().map(drop)
    }
}

#[cfg(feature = "parquet")]
impl<W: Write + Send> Sink for super::ParquetWriter<W> {
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()> {
        self.append(records, source)
    }

    fn finish(self: Box<Self>, source: &dyn Source) -> io::Result<()> {
        super::ParquetWriter::finish(*self, source)?.flush()
    }
}

impl<W: Write> Sink for CsvWriter<W> {
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()> {
        self.append(records, source)
    }

    fn finish(self: Box<Self>, _source: &dyn Source) -> io::Result<()> {
        CsvWriter::finish(*self).map(drop)
    }
}
