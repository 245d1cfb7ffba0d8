//! lcs of libCacheSim: a header of 8,192 bytes and records by its version.
//!
//! Header: magic u64, version u64, statistics, magic u64 in the last 8 bytes. v1: as oracleGeneral.
//! v2, 28 bytes: time u32 (s), object u64, size u32, operation u8, tenant u24, next i64. v3, 36
//! bytes: time u32, object u64, size i64, operation u8, tenant u24, time to live u32, next i64. v4
//! to v8 are v3 followed by 1, 2, 4, 8 or 16 features of 32 bits.

use super::{
    Decode, DecodeOutput, Decoded, FormatError, Op, Record, TraceError, bytes, oracle_general,
};

pub(in super::super) const HEADER_BYTES: usize = 8192;
/// The magic of files that libCacheSim writes, and the documented magic of older files.
const MAGICS: [u64; 2] = [0x1234_5678_9abc_def0, 0x0123_4567_89ab_cdef];
/// Bytes of a record by version, from 1.
const RECORD_BYTES: [usize; 8] = [oracle_general::BYTES, 28, 36, 40, 44, 52, 68, 100];

/// lcs of one version.
#[derive(Debug)]
pub(in super::super) struct Lcs {
    version: usize,
}

impl Lcs {
    /// Returns true if `head` begins with the magic.
    pub(in super::super) fn looks_like(head: &[u8]) -> bool {
        head.len() >= 8 && MAGICS.contains(&bytes::u64_at(head, 0))
    }

    /// Reads the header.
    pub(in super::super) fn from_header(head: &[u8]) -> Result<Self, String> {
        if head.len() < HEADER_BYTES {
            return Err(format!("the file ends within the header of {HEADER_BYTES} bytes"));
        }
        if !Self::looks_like(head) || !MAGICS.contains(&bytes::u64_at(head, HEADER_BYTES - 8)) {
            return Err("the header does not begin and end with the magic of lcs".to_owned());
        }
        let version = bytes::u64_at(head, 8);
        match usize::try_from(version) {
            Ok(version @ 1..=8) => Ok(Lcs { version }),
            _ => Err(format!("lcs of version {version} is not known; 1 to 8 are")),
        }
    }
}

impl Decode for Lcs {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        out.fixed_size(bytes, RECORD_BYTES[self.version - 1], |bytes, out| self.record(bytes, out))
    }
}

impl Lcs {
    fn record(&self, record: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let wide = self.version >= 3;
        let size = if wide { bytes::u64_at(record, 12) } else { bytes::u32_at(record, 12).into() };
        if size > i64::MAX.unsigned_abs() {
            return Err("the size of the object is negative");
        }
        let extra = if wide { bytes::u32_at(record, 20) } else { bytes::u32_at(record, 16) };
        let [op, tenant] = if self.version == 1 { [0, 0] } else { [extra & 0xff, extra >> 8] };
        let volume = match self.version {
            1 => 0,
            _ => out.names.volumes.number_with_name(&tenant.to_le_bytes(), |key| {
                format!("tenant {}", bytes::u32_at(key, 0))
            }),
        };
        out.push(Record {
            time_ns: u64::from(bytes::u32_at(record, 0)) * 1_000_000_000,
            offset: bytes::u64_at(record, 4),
            len: size,
            volume,
            op: operation(op)?,
            ..Record::default()
        })
    }
}

/// Returns the operation of a libCacheSim number; 0 is "unspecified", and 255 "invalid", which some
/// traces have in every record.
fn operation(number: u32) -> Result<Op, FormatError> {
    match number {
        // get, gets, read
        0..=2 | 12 | 255 => Ok(Op::Read),
        // set, add, cas, replace, append, prepend; incr, decr; write, update
        3..=8 | 10 | 11 | 13 | 14 => Ok(Op::Write),
        9 => Ok(Op::Discard),
        _ => Err("an operation that lcs does not have"),
    }
}
