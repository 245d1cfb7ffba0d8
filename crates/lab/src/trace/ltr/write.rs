//! Writer of `.ltr`: records and names are collected and written as whole blocks.
//!
//! The design suits recording in a server: one thread appends the records of the others and calls
//! [`Writer::cut`] from time to time, so that little is lost if the process is killed. Nothing is
//! ever rewritten; memory is limited to one block, plus 40 bytes of index for each block written.

use super::super::names::NAME_BYTES_MAX;
use super::super::{Addressing, NameKind, Record};
use super::index::{ENTRIES_MAX, IndexEntry};
use super::section::{Kind, pack};
use super::{END_MAGIC, HEADER_BYTES, Header, TRAILER_BYTES, columns};
use std::io::{self, Write};

/// Maximum records in a block.
pub const BLOCK_RECORDS_MAX: usize = 65_536;
/// Bytes of buffered names at which they are written.
const NAMES_BYTES_MAX: usize = 1 << 20;
/// Compression level of zstd: 3 compresses a quarter better than 1 and is still faster than the
/// readers of text.
const LEVEL: i32 = 3;

/// Properties of a trace, stored in its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// Unit of offsets and lengths.
    pub addressing: Addressing,
    /// Time 0 of the trace, in nanoseconds since 1970 in UTC; 0 if unknown.
    pub begun_unix_ns: u64,
    /// Sampling divisor `n`: one of `n` pages is written, selected once for the whole trace; 0 and
    /// 1 for all. The header stores it for the reader.
    pub sample: u32,
}

/// Appends to a trace. A writer that is dropped without [`Writer::finish`] leaves a truncated file.
pub struct Writer<W: Write> {
    output: W,
    /// Bytes written.
    position: u64,
    /// Number of records in written blocks.
    written: u64,
    records: Vec<Record>,
    names: Vec<u8>,
    names_count: u32,
    /// Number of lost requests that are not in the file yet.
    lost: u64,
    index: Vec<IndexEntry>,
    compressor: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    section: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Writer");
        debug
            .field("written", &self.written)
            .field("waiting", &self.records.len())
            .finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Creates a trace and writes its header.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(mut output: W, options: WriterOptions) -> io::Result<Self> {
        let WriterOptions { addressing, begun_unix_ns, sample } = options;
        output.write_all(&Header { addressing, begun_unix_ns, sample }.to_bytes())?;
        Ok(Writer {
            output,
            position: HEADER_BYTES as u64,
            written: 0,
            records: Vec::with_capacity(BLOCK_RECORDS_MAX),
            names: Vec::new(),
            names_count: 0,
            lost: 0,
            index: Vec::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            raw: Vec::new(),
            section: Vec::new(),
        })
    }

    /// Names a number, before the records that use it. A name longer than 4,096 bytes is truncated.
    ///
    /// # Errors
    /// Writing failed.
    pub fn name(&mut self, kind: NameKind, number: u32, name: &str) -> io::Result<()> {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        self.names.push(kind as u8);
        self.names.extend_from_slice(&number.to_le_bytes());
        let length = u16::try_from(name.len()).expect("at most 4,096");
        self.names.extend_from_slice(&length.to_le_bytes());
        self.names.extend_from_slice(name.as_bytes());
        self.names_count += 1;
        if self.names.len() >= NAMES_BYTES_MAX { self.write_names() } else { Ok(()) }
    }

    /// Adds to the number of requests that were lost at about this position; it is written with the
    /// next block.
    pub fn lost(&mut self, requests: u64) {
        self.lost = self.lost.saturating_add(requests);
    }

    /// Appends records.
    ///
    /// # Errors
    /// Writing failed.
    pub fn append(&mut self, mut records: &[Record]) -> io::Result<()> {
        while !records.is_empty() {
            let free = BLOCK_RECORDS_MAX - self.records.len();
            let (first, rest) = records.split_at(free.min(records.len()));
            self.records.extend_from_slice(first);
            records = rest;
            if self.records.len() == BLOCK_RECORDS_MAX {
                self.cut()?;
            }
        }
        Ok(())
    }

    /// Writes the buffered data as a separate block, so that it survives the process.
    ///
    /// # Errors
    /// Writing failed.
    pub fn cut(&mut self) -> io::Result<()> {
        self.write_names()?;
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            self.write(Kind::Lost, (1, 0), (0, 0), &lost.to_le_bytes())?;
        }
        if self.records.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(self.records.len()).expect("at most 65,536");
        let times = self.records.iter().map(|record| record.time_ns);
        let time_min_ns = times.clone().min().unwrap_or(0);
        let time_max_ns = times.max().unwrap_or(0);
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        columns::encode(&self.records, &mut raw);
        self.write(Kind::Records, (count, self.written), (time_min_ns, time_max_ns), &raw)?;
        self.raw = raw;
        self.written += u64::from(count);
        self.records.clear();
        Ok(())
    }

    fn write_names(&mut self) -> io::Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let names = std::mem::take(&mut self.names);
        let count = std::mem::take(&mut self.names_count);
        self.write(Kind::Names, (count, 0), (0, 0), &names)
    }

    /// Writes a section with one call and adds it to the index.
    fn write(
        &mut self,
        kind: Kind,
        (count, first): (u32, u64),
        (time_min_ns, time_max_ns): (u64, u64),
        raw: &[u8],
    ) -> io::Result<()> {
        let offset = self.position;
        pack((kind, count, first), raw, &mut self.compressor, &mut self.section)?;
        self.output.write_all(&self.section)?;
        self.position += self.section.len() as u64;
        if kind != Kind::Index {
            let kind = kind.code();
            self.index.push(IndexEntry { offset, kind, count, first, time_min_ns, time_max_ns });
        }
        Ok(())
    }

    /// Writes the buffered data, the index and the trailer.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.cut()?;
        let index_start = self.position;
        let index = std::mem::take(&mut self.index);
        for entries in index.chunks(ENTRIES_MAX) {
            let raw: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
            let count = u32::try_from(entries.len()).expect("entries of one section");
            self.write(Kind::Index, (count, 0), (0, 0), &raw)?;
        }
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&END_MAGIC);
        trailer[8..16].copy_from_slice(&index_start.to_le_bytes());
        trailer[16..24].copy_from_slice(&self.written.to_le_bytes());
        trailer[24..32].copy_from_slice(&(index.len() as u64).to_le_bytes());
        let crc = crc32c::crc32c(&trailer[..36]);
        trailer[36..].copy_from_slice(&crc.to_le_bytes());
        self.output.write_all(&trailer)?;
        self.output.flush()?;
        Ok(self.output)
    }
}
