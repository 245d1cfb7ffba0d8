//! Writing `.ltr`: records and names are collected and leave as whole blocks.
//!
//! Made so that a server can record with it: one thread appends what others hand it, and calls
//! [`Writer::cut`] now and then, so that little is lost when the process is killed. Nothing is ever
//! rewritten; memory is one block, and 40 bytes for the index of each block that was written.

use super::super::names::NAME_BYTES_MAX;
use super::super::{Addressing, NameOf, Record};
use super::index::{ENTRIES_MAX, Entry};
use super::section::{Kind, pack};
use super::{END_MAGIC, HEADER_BYTES, Header, TRAILER_BYTES, columns};
use std::io::{self, Write};

/// The most records in a block.
pub const BLOCK_RECORDS_MAX: usize = 65_536;
/// Names are written when so many bytes of them are waiting.
const NAMES_BYTES_MAX: usize = 1 << 20;
/// Level of zstd: 3 packs a quarter better than 1 and is still faster than the readers of text.
const LEVEL: i32 = 3;

/// What a trace says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// What offsets and lengths count.
    pub addressing: Addressing,
    /// When time 0 was, in nanoseconds since 1970 in UTC; 0 if that is not known.
    pub begun_unix_ns: u64,
    /// Only one page of so many is written, chosen once for the whole trace; 0 and 1 for all. Who
    /// reads the trace is told.
    pub sample: u32,
}

/// Appends to a trace. Dropped without [`Writer::finish`] it leaves a file that is cut short.
pub struct Writer<W: Write> {
    to: W,
    /// Bytes written.
    position: u64,
    /// Records in blocks that are written.
    written: u64,
    records: Vec<Record>,
    names: Vec<u8>,
    names_count: u32,
    /// Requests that were lost and that the file does not say yet.
    lost: u64,
    index: Vec<Entry>,
    packer: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    section: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Writer");
        shown
            .field("written", &self.written)
            .field("waiting", &self.records.len())
            .finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(mut to: W, options: WriterOptions) -> io::Result<Self> {
        let WriterOptions { addressing, begun_unix_ns, sample } = options;
        to.write_all(&Header { addressing, begun_unix_ns, sample }.to_bytes())?;
        Ok(Writer {
            to,
            position: HEADER_BYTES as u64,
            written: 0,
            records: Vec::with_capacity(BLOCK_RECORDS_MAX),
            names: Vec::new(),
            names_count: 0,
            lost: 0,
            index: Vec::new(),
            packer: zstd::bulk::Compressor::new(LEVEL)?,
            raw: Vec::new(),
            section: Vec::new(),
        })
    }

    /// Names a number, before the records that use it. A name longer than 4,096 bytes is cut.
    ///
    /// # Errors
    /// Writing failed.
    pub fn name(&mut self, of: NameOf, number: u32, name: &str) -> io::Result<()> {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        self.names.push(match of {
            NameOf::Volume => 0,
            NameOf::File => 1,
            NameOf::Process => 2,
        });
        self.names.extend_from_slice(&number.to_le_bytes());
        let length = u16::try_from(name.len()).expect("at most 4,096");
        self.names.extend_from_slice(&length.to_le_bytes());
        self.names.extend_from_slice(name.as_bytes());
        self.names_count += 1;
        if self.names.len() >= NAMES_BYTES_MAX { self.write_names() } else { Ok(()) }
    }

    /// Says that so many requests more were lost, at about this place; the next block says it.
    pub fn lost(&mut self, requests: u64) {
        self.lost = self.lost.saturating_add(requests);
    }

    /// Appends records.
    ///
    /// # Errors
    /// Writing failed.
    pub fn append(&mut self, mut records: &[Record]) -> io::Result<()> {
        while !records.is_empty() {
            let room = BLOCK_RECORDS_MAX - self.records.len();
            let (now, later) = records.split_at(room.min(records.len()));
            self.records.extend_from_slice(now);
            records = later;
            if self.records.len() == BLOCK_RECORDS_MAX {
                self.cut()?;
            }
        }
        Ok(())
    }

    /// Writes what is waiting as a block of its own, so that it survives the process.
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

    /// Writes a section in one piece and remembers it for the index.
    fn write(
        &mut self,
        kind: Kind,
        (count, first): (u32, u64),
        (time_min_ns, time_max_ns): (u64, u64),
        raw: &[u8],
    ) -> io::Result<()> {
        let offset = self.position;
        pack((kind, count, first), raw, &mut self.packer, &mut self.section)?;
        self.to.write_all(&self.section)?;
        self.position += self.section.len() as u64;
        if kind != Kind::Index {
            let kind = kind.code();
            self.index.push(Entry { offset, kind, count, first, time_min_ns, time_max_ns });
        }
        Ok(())
    }

    /// Writes what is waiting, the index and the trailer.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.cut()?;
        let begins = self.position;
        let index = std::mem::take(&mut self.index);
        for entries in index.chunks(ENTRIES_MAX) {
            let raw: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
            let count = u32::try_from(entries.len()).expect("entries of one section");
            self.write(Kind::Index, (count, 0), (0, 0), &raw)?;
        }
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&END_MAGIC);
        trailer[8..16].copy_from_slice(&begins.to_le_bytes());
        trailer[16..24].copy_from_slice(&self.written.to_le_bytes());
        trailer[24..32].copy_from_slice(&(index.len() as u64).to_le_bytes());
        let crc = crc32c::crc32c(&trailer[..36]);
        trailer[36..].copy_from_slice(&crc.to_le_bytes());
        self.to.write_all(&trailer)?;
        self.to.flush()?;
        Ok(self.to)
    }
}
