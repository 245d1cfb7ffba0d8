//! Frames of sections: kind, lengths, checksums; compression and decompression of payloads.

use super::super::bytes;
use super::{FRAME_BYTES, PAYLOAD_BYTES_MAX};
use std::cell::RefCell;
use std::io;

thread_local! {
    /// Shared, because creating a decompressor takes longer than unpacking a short section.
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default();
}

/// The contents of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Records,
    Names,
    Index,
    /// Number of requests that the recorder lost.
    Lost,
    /// A kind of a later version; skipped.
    Unknown,
}

impl Kind {
    pub(super) fn code(self) -> [u8; 4] {
        match self {
            Kind::Records => *b"RECS",
            Kind::Names => *b"NAME",
            Kind::Index => *b"INDX",
            Kind::Lost => *b"LOST",
            Kind::Unknown => *b"????",
        }
    }

    pub(super) fn from_code(code: [u8; 4]) -> Kind {
        let known = [Kind::Records, Kind::Names, Kind::Index, Kind::Lost];
        known.into_iter().find(|kind| kind.code() == code).unwrap_or(Kind::Unknown)
    }
}

/// The header of a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) packed_bytes: usize,
    pub(super) raw_bytes: usize,
    pub(super) count: u32,
    pub(super) first: u64,
    payload_crc: u32,
}

impl Frame {
    /// Reads a frame of [`FRAME_BYTES`].
    pub(super) fn from_bytes(frame: &[u8]) -> Result<Self, &'static str> {
        if crc32c::crc32c(&frame[..28]) != bytes::u32_at(frame, 28) {
            return Err("the checksum of a section's frame is wrong");
        }
        let length = |at| usize::try_from(bytes::u32_at(frame, at)).unwrap_or(usize::MAX);
        let (packed_bytes, raw_bytes) = (length(4), length(8));
        if packed_bytes.max(raw_bytes) > PAYLOAD_BYTES_MAX {
            return Err("a section is longer than 8 MiB");
        }
        Ok(Frame {
            kind: Kind::from_code(bytes::array(frame, 0)),
            packed_bytes,
            raw_bytes,
            count: bytes::u32_at(frame, 12),
            first: bytes::u64_at(frame, 16),
            payload_crc: bytes::u32_at(frame, 24),
        })
    }

    /// Returns the bytes of the whole section.
    pub(super) fn section_bytes(&self) -> usize {
        FRAME_BYTES + self.packed_bytes
    }

    /// Unpacks the payload into `raw`; a length that differs from the frame is an error.
    pub(super) fn unpack(&self, packed: &[u8], raw: &mut Vec<u8>) -> Result<(), &'static str> {
        if crc32c::crc32c(packed) != self.payload_crc {
            return Err("the checksum of a section is wrong");
        }
        raw.clear();
        raw.resize(self.raw_bytes, 0);
        match DECOMPRESSOR.with_borrow_mut(|it| it.decompress_to_buffer(packed, &mut raw[..])) {
            Ok(length) if length == self.raw_bytes => Ok(()),
            _ => Err("a section does not unpack to the length it states"),
        }
    }
}

/// Packs a payload, and writes its frame and the packed payload to `section`.
pub(super) fn pack(
    (kind, count, first): (Kind, u32, u64),
    raw: &[u8],
    compressor: &mut zstd::bulk::Compressor<'static>,
    section: &mut Vec<u8>,
) -> io::Result<()> {
    let payload = compressor.compress(raw)?;
    let length = |length: usize| u32::try_from(length).expect("a payload within its limit");
    section.clear();
    section.extend_from_slice(&kind.code());
    section.extend_from_slice(&length(payload.len()).to_le_bytes());
    section.extend_from_slice(&length(raw.len()).to_le_bytes());
    section.extend_from_slice(&count.to_le_bytes());
    section.extend_from_slice(&first.to_le_bytes());
    section.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    section.extend_from_slice(&crc32c::crc32c(section).to_le_bytes());
    section.extend_from_slice(&payload);
    Ok(())
}
