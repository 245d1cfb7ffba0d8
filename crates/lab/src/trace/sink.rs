//! Where traces are written to: one seam over the formats that can be written.
//!
//! Invariant: what a source hands out is read back from any of them as the same records, but for
//! what docs/FORMATS.md says of CSV.

use super::{CsvWriter, NameOf, Record, Source, ltr};
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Larder's own.
    Larder,
    /// Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
    /// CSV.
    Csv,
}

impl Target {
    /// All of them.
    pub const ALL: &[Target] = &[
        Target::Larder,
        #[cfg(feature = "parquet")]
        Target::Parquet,
        Target::Csv,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Target::Larder => "larder",
            #[cfg(feature = "parquet")]
            Target::Parquet => "parquet",
            Target::Csv => "csv",
        }
    }

    /// The end of the names of its files.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Target::Larder => "ltr",
            #[cfg(feature = "parquet")]
            Target::Parquet => "parquet",
            Target::Csv => "csv",
        }
    }

    /// The format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.iter().copied().find(|target| target.name() == name)
    }

    /// The format that the end of a file name stands for.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Target> {
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        Target::ALL.iter().copied().find(|target| target.extension() == extension)
    }

    /// Begins a trace in this format that counts what `source` counts. Only our own keeps that it
    /// is a sample.
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin<W: Write + Send + 'static>(
        self,
        to: W,
        source: &dyn Source,
    ) -> io::Result<Box<dyn Sink>> {
        let addressing = source.addressing();
        Ok(match self {
            Target::Larder => {
                let sample = source.sample();
                let options =
                    ltr::WriterOptions { addressing, sample, ..ltr::WriterOptions::default() };
                let writer = ltr::Writer::new(BufWriter::new(to), options)?;
                Box::new(LtrSink { writer, named: HashSet::new(), last: [None; 3] })
            }
            #[cfg(feature = "parquet")]
            Target::Parquet => Box::new(super::ParquetWriter::new(BufWriter::new(to), addressing)?),
            Target::Csv => Box::new(CsvWriter::new(BufWriter::new(to), addressing)?),
        })
    }
}

/// Something that takes a trace.
pub trait Sink {
    /// Appends records of `source`, which knows the names.
    ///
    /// # Errors
    /// Writing failed.
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()>;

    /// Writes everything out and ends the trace.
    ///
    /// # Errors
    /// Writing failed.
    fn finish(self: Box<Self>, source: &dyn Source) -> io::Result<()>;
}

/// Our own format, with the names written before they are used.
struct LtrSink<W: Write> {
    writer: ltr::Writer<W>,
    named: HashSet<(u8, u32)>,
    /// The number that came last, of each kind: most records have the same one.
    last: [Option<u32>; 3],
}

impl<W: Write> LtrSink<W> {
    fn name(&mut self, which: u8, number: u32, source: &dyn Source) -> io::Result<()> {
        let kinds = [NameOf::Volume, NameOf::File, NameOf::Process];
        let of = kinds[usize::from(which)];
        let last = &mut self.last[usize::from(which)];
        if *last == Some(number) {
            return Ok(());
        }
        *last = Some(number);
        match source.name(of, number) {
            Some(name) if self.named.insert((which, number)) => self.writer.name(of, number, name),
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
