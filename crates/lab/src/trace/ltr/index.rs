//! The index at the end of a whole file: which block holds which records and times.

use super::super::bytes;
use super::section::{Frame, Kind};
use super::{END_MAGIC, FRAME_BYTES, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, TRAILER_BYTES};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

const ENTRY_BYTES: usize = 40;
/// Entries of one section.
pub(super) const ENTRIES_MAX: usize = PAYLOAD_BYTES_MAX / ENTRY_BYTES / 2;

/// Where a section is, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it begins in the file.
    pub offset: u64,
    /// `RECS` or `NAME`, in ASCII.
    pub kind: [u8; 4],
    /// Records or names in it.
    pub count: u32,
    /// Number of its first record, from 0.
    pub first: u64,
    /// Earliest time of its records.
    pub time_min_ns: u64,
    /// Latest time of its records.
    pub time_max_ns: u64,
}

impl Entry {
    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&self.offset.to_le_bytes());
        entry[8..12].copy_from_slice(&self.kind);
        entry[12..16].copy_from_slice(&self.count.to_le_bytes());
        entry[16..24].copy_from_slice(&self.first.to_le_bytes());
        entry[24..32].copy_from_slice(&self.time_min_ns.to_le_bytes());
        entry[32..].copy_from_slice(&self.time_max_ns.to_le_bytes());
        entry
    }

    fn from_bytes(entry: &[u8]) -> Self {
        Entry {
            offset: bytes::u64_at(entry, 0),
            kind: bytes::array(entry, 8),
            count: bytes::u32_at(entry, 12),
            first: bytes::u64_at(entry, 16),
            time_min_ns: bytes::u64_at(entry, 24),
            time_max_ns: bytes::u64_at(entry, 32),
        }
    }

    /// Whether it holds records.
    #[must_use]
    pub fn is_records(&self) -> bool {
        Kind::from_code(self.kind) == Kind::Records
    }
}

/// The index of a whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// All sections but those of the index, in the order of the file.
    pub entries: Vec<Entry>,
    /// Records in the file.
    pub records: u64,
    /// Where the last block ends.
    pub end: u64,
}

impl Index {
    /// Reads the index; none if the file has no whole one, because it was cut short, is damaged, or
    /// is no such file. It can be read from front to back then.
    ///
    /// # Errors
    /// Reading failed.
    pub fn read(file: &mut (impl Read + Seek)) -> io::Result<Option<Index>> {
        let length = file.seek(SeekFrom::End(0))?;
        if length < (HEADER_BYTES + TRAILER_BYTES) as u64 {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        file.rewind()?;
        file.read_exact(&mut header)?;
        let mut trailer = [0; TRAILER_BYTES];
        file.seek(SeekFrom::Start(length - TRAILER_BYTES as u64))?;
        file.read_exact(&mut trailer)?;
        let whole = Header::from_bytes(&header).is_ok()
            && trailer[..8] == END_MAGIC
            && crc32c::crc32c(&trailer[..36]) == bytes::u32_at(&trailer, 36);
        if !whole {
            return Ok(None);
        }
        let (end, records) = (bytes::u64_at(&trailer, 8), bytes::u64_at(&trailer, 16));
        let sections = bytes::u64_at(&trailer, 24);
        if sections > length / FRAME_BYTES as u64 {
            return Ok(None);
        }
        let mut entries = Vec::new();
        file.seek(SeekFrom::Start(end.min(length)))?;
        while (entries.len() as u64) < sections {
            match read_section(file)? {
                Some(more) if !more.is_empty() => entries.extend(more),
                _ => return Ok(None),
            }
        }
        let index = Index { entries, records, end };
        Ok(index.is_in_order(length).then_some(index))
    }

    /// Returns whether the sections lie behind one another in a file of this length, so that no byte
    /// is read twice.
    fn is_in_order(&self, length: u64) -> bool {
        let mut behind = HEADER_BYTES as u64;
        for entry in &self.entries {
            if entry.offset < behind {
                return false;
            }
            behind = entry.offset.saturating_add(FRAME_BYTES as u64);
        }
        behind <= self.end && self.end <= length
    }

    /// The sections of names, one behind the other.
    ///
    /// # Errors
    /// Reading failed.
    pub(in super::super) fn names(&self, file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
        let mut names = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if Kind::from_code(entry.kind) == Kind::Names {
                let end = self.entries.get(at + 1).map_or(self.end, |next| next.offset);
                file.seek(SeekFrom::Start(entry.offset))?;
                file.by_ref().take(end.saturating_sub(entry.offset)).read_to_end(&mut names)?;
            }
        }
        Ok(names)
    }

    /// What of the file is needed for the records of these times, in bytes and in order: the
    /// header, all names, and the blocks that may hold such records.
    #[must_use]
    pub fn pieces(&self, times: &Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = Vec::with_capacity(self.entries.len() + 1);
        pieces.push(0..HEADER_BYTES as u64);
        for (at, entry) in self.entries.iter().enumerate() {
            let needed = !entry.is_records()
                || (entry.time_max_ns >= times.start && entry.time_min_ns < times.end);
            if needed {
                let end = self.entries.get(at + 1).map_or(self.end, |next| next.offset);
                pieces.push(entry.offset..end);
            }
        }
        pieces
    }
}

/// The entries of the section at which the file stands; none if it is damaged.
fn read_section(file: &mut impl Read) -> io::Result<Option<Vec<Entry>>> {
    let mut frame = [0; FRAME_BYTES];
    if let Err(error) = file.read_exact(&mut frame) {
        let short = error.kind() == io::ErrorKind::UnexpectedEof;
        return if short { Ok(None) } else { Err(error) };
    }
    let Ok(frame) = Frame::from_bytes(&frame) else { return Ok(None) };
    let mut packed = Vec::new();
    file.take(frame.packed_bytes as u64).read_to_end(&mut packed)?;
    let mut raw = Vec::new();
    let whole = frame.kind == Kind::Index && frame.unpack(&packed, &mut raw).is_ok();
    let entries = raw.chunks_exact(ENTRY_BYTES).map(Entry::from_bytes);
    Ok(whole.then(|| entries.collect()))
}

/// Pieces of a file as one stream.
#[derive(Debug)]
pub(in super::super) struct Pieces<F> {
    file: F,
    coming: std::vec::IntoIter<Range<u64>>,
    /// Bytes left of the current one, at whose next byte the file stands.
    left: u64,
}

impl<F: Read + Seek> Pieces<F> {
    pub(in super::super) fn new(file: F, pieces: Vec<Range<u64>>) -> Self {
        Pieces { file, coming: pieces.into_iter(), left: 0 }
    }
}

impl<F: Read + Seek> Read for Pieces<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some(piece) = self.coming.next() else { return Ok(0) };
            self.file.seek(SeekFrom::Start(piece.start))?;
            self.left = piece.end.saturating_sub(piece.start);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let got = self.file.read(&mut buf[..most])?;
        self.left = if got == 0 { 0 } else { self.left - got as u64 };
        Ok(got)
    }
}
