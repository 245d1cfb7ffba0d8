//! The index at the end of a complete file: the records and times of each block.

use super::super::bytes;
use super::section::{Frame, Kind};
use super::{END_MAGIC, FRAME_BYTES, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, TRAILER_BYTES};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

const ENTRY_BYTES: usize = 40;
/// Maximum entries of one section.
pub(super) const ENTRIES_MAX: usize = PAYLOAD_BYTES_MAX / ENTRY_BYTES / 2;

/// The position and contents of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// Offset of its first byte in the file.
    pub(super) offset: u64,
    /// `RECS` or `NAME`, in ASCII.
    pub(super) kind: [u8; 4],
    /// Number of its records or names.
    pub(super) count: u32,
    /// Number of its first record, from 0.
    pub(super) first: u64,
    /// Earliest time of its records.
    pub(super) time_min_ns: u64,
    /// Latest time of its records.
    pub(super) time_max_ns: u64,
}

impl IndexEntry {
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
        IndexEntry {
            offset: bytes::u64_at(entry, 0),
            kind: bytes::array(entry, 8),
            count: bytes::u32_at(entry, 12),
            first: bytes::u64_at(entry, 16),
            time_min_ns: bytes::u64_at(entry, 24),
            time_max_ns: bytes::u64_at(entry, 32),
        }
    }

    pub(super) fn is_records(&self) -> bool {
        Kind::from_code(self.kind) == Kind::Records
    }
}

/// The index of a complete file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Index {
    /// All sections except those of the index, in the order of the file.
    pub(super) entries: Vec<IndexEntry>,
    /// Records in the file.
    pub(super) records: u64,
    /// End of the last block.
    pub(super) end: u64,
}

impl Index {
    /// Reads the index; `None` if the file has no valid index, because it was truncated, is
    /// damaged, or is not an `.ltr` file. Such a file can still be read from front to back.
    pub(in super::super) fn read(file: &mut (impl Read + Seek)) -> io::Result<Option<Index>> {
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
        let mut entries = Vec::new();
        let mut free = HEADER_BYTES as u64..end.min(length);
        file.seek(SeekFrom::Start(end.min(length)))?;
        while (entries.len() as u64) < sections {
            match read_section(file)? {
                Some(more) if !more.is_empty() && are_disjoint(&more, &mut free) => {
                    entries.extend(more);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(Index { entries, records, end }))
    }

    /// Returns the sections of names, concatenated.
    pub(in super::super) fn names(&self, file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
        let mut names = Vec::new();
        for (entry, bytes) in self.sections() {
            if Kind::from_code(entry.kind) == Kind::Names {
                file.seek(SeekFrom::Start(bytes.start))?;
                let length = bytes.end.saturating_sub(bytes.start);
                file.by_ref().take(length).read_to_end(&mut names)?;
            }
        }
        Ok(names)
    }

    /// Returns the sections with their bytes in the file.
    fn sections(&self) -> impl Iterator<Item = (&IndexEntry, Range<u64>)> {
        let starts = self.entries.iter().map(|entry| entry.offset);
        let ends = starts.clone().skip(1).chain([self.end]);
        self.entries.iter().zip(starts.zip(ends).map(|(start, end)| start..end))
    }

    /// Returns the byte ranges that a reader of the records of these times needs, in order: the
    /// header, all names, and the blocks that may hold such records.
    pub(in super::super) fn pieces(&self, times: &Range<u64>) -> Vec<Range<u64>> {
        let is_needed = |entry: &IndexEntry| {
            !entry.is_records()
                || (entry.time_max_ns >= times.start && entry.time_min_ns < times.end)
        };
        let needed = self.sections().filter(|(entry, _)| is_needed(entry)).map(|(_, bytes)| bytes);
        std::iter::once(0..HEADER_BYTES as u64).chain(needed).collect()
    }
}

/// Takes the frame of each section from the front of the `free` bytes. Returns false if sections
/// overlap, are not in the order of the file, or lie outside. So a file has at most one entry for
/// each [`FRAME_BYTES`] of its length, and none of its bytes is read for two entries.
fn are_disjoint(entries: &[IndexEntry], free: &mut Range<u64>) -> bool {
    entries.iter().all(|entry| {
        let frame_end = entry.offset.saturating_add(FRAME_BYTES as u64);
        let is_free = entry.offset >= free.start && frame_end <= free.end;
        free.start = frame_end;
        is_free
    })
}

/// Reads the entries of the index section at the file position; `None` if the section is damaged.
fn read_section(file: &mut impl Read) -> io::Result<Option<Vec<IndexEntry>>> {
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
    let entries = raw.chunks_exact(ENTRY_BYTES).map(IndexEntry::from_bytes);
    Ok(whole.then(|| entries.collect()))
}

/// Byte ranges of a file as one stream.
#[derive(Debug)]
pub(in super::super) struct RangeReader<F> {
    file: F,
    ranges: std::vec::IntoIter<Range<u64>>,
    /// Remaining bytes of the current range; the file position is at the next of them.
    left: u64,
}

impl<F: Read + Seek> RangeReader<F> {
    pub(in super::super) fn new(file: F, pieces: Vec<Range<u64>>) -> Self {
        RangeReader { file, ranges: pieces.into_iter(), left: 0 }
    }
}

impl<F: Read + Seek> Read for RangeReader<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some(piece) = self.ranges.next() else { return Ok(0) };
            self.file.seek(SeekFrom::Start(piece.start))?;
            self.left = piece.end.saturating_sub(piece.start);
        }
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let count = self.file.read(&mut buf[..len])?;
        self.left = if count == 0 { 0 } else { self.left - count as u64 };
        Ok(count)
    }
}
