//! Larder's own trace format, `.ltr`; docs/FORMATS.md specifies it byte by byte.
//!
//! [`Writer`] appends; `source` decodes from front to back and needs no index; `Index` finds
//! blocks by time or record in a complete file. Invariants: a reader sees a block either whole or
//! not at all; no length in a file makes a reader allocate more than the limits.

mod columns;
mod index;
mod read;
mod section;
#[cfg(test)]
mod tests;
mod write;

pub(super) use index::{Index, RangeReader};
pub(super) use read::source;
pub use write::{BLOCK_RECORDS_MAX, Writer, WriterOptions};

use super::Addressing;
use super::bytes;

/// First bytes of a file.
pub(super) const MAGIC: [u8; 8] = *b"LARDERT\n";
/// First bytes of the trailer.
const END_MAGIC: [u8; 8] = *b"LARDEND\n";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 32;
const TRAILER_BYTES: usize = 40;
/// Maximum payload, packed and unpacked.
const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// Contents of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    addressing: Addressing,
    begun_unix_ns: u64,
    /// Sampling divisor `n`: the trace has one of `n` pages; 0 and 1 for all.
    sample: u32,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let (kind, page_bytes) = match self.addressing {
            Addressing::Bytes => (0, 0),
            Addressing::Pages { bytes } => (1, bytes),
            Addressing::Objects => (2, 0),
        };
        head[10] = kind;
        head[12..16].copy_from_slice(&page_bytes.to_le_bytes());
        head[16..24].copy_from_slice(&self.begun_unix_ns.to_le_bytes());
        head[24..28].copy_from_slice(&self.sample.to_le_bytes());
        let crc = crc32c::crc32c(&head[..28]);
        head[28..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    fn from_bytes(head: &[u8]) -> Result<Self, String> {
        let Some(head) = head.get(..HEADER_BYTES) else {
            return Err(format!("the file ends within the header of {HEADER_BYTES} bytes"));
        };
        if head[..8] != MAGIC {
            return Err("the file does not begin with LARDERT, as Larder's traces do".to_owned());
        }
        if crc32c::crc32c(&head[..28]) != bytes::u32_at(head, 28) {
            return Err("the checksum of the header is wrong".to_owned());
        }
        let version = bytes::u16_at(head, 8);
        if version != VERSION {
            return Err(format!("version {version} of the format is not known; {VERSION} is"));
        }
        let page_bytes = bytes::u32_at(head, 12);
        let addressing = match head[10] {
            0 => Addressing::Bytes,
            1 if page_bytes.is_power_of_two() => Addressing::Pages { bytes: page_bytes },
            2 => Addressing::Objects,
            kind => return Err(format!("addressing {kind} with pages of {page_bytes} bytes")),
        };
        let (begun_unix_ns, sample) = (bytes::u64_at(head, 16), bytes::u32_at(head, 24));
        Ok(Header { addressing, begun_unix_ns, sample })
    }
}
