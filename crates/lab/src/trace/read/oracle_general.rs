//! oracleGeneral of libCacheSim, 24 bytes packed: time u32 (s), object u64, size u32, and i64 when
//! the object is asked for next, as the number of the request (-1 or the largest number: never).
//! No operation, no volume: all are reads of objects.

use super::{Addressing, FixedRecord, FormatError, Out, Record, bytes};

pub(super) const BYTES: usize = 24;

/// oracleGeneral.
#[derive(Debug)]
pub(in super::super) struct OracleGeneral;

impl OracleGeneral {
    /// Whether the first records look like it: times in order, next requests after this one.
    pub(in super::super) fn looks_like(head: &[u8]) -> bool {
        let (mut count, mut before) = (0_u64, 0);
        for record in head.chunks_exact(BYTES).take(32) {
            let (time, size) = (bytes::u32_at(record, 0), bytes::u32_at(record, 12));
            let next = bytes::u64_at(record, 16);
            let never = next == u64::MAX || next == i64::MAX.unsigned_abs();
            // The second limit is a year of a trace; the third more requests than any has.
            let ordered = count == 0 || (time >= before && time - before < 31_536_000);
            if !(ordered && (never || (next > count && next < 1 << 40)) && size < 1 << 31) {
                return false;
            }
            (count, before) = (count + 1, time);
        }
        count > 0
    }
}

impl FixedRecord for OracleGeneral {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn record(&mut self, record: &[u8], out: &mut Out<'_>) -> Result<(), FormatError> {
        let next = bytes::u64_at(record, 16);
        if next == 0 {
            return Err("the next request for the object is the first one of the trace");
        }
        out.push(Record {
            time_ns: u64::from(bytes::u32_at(record, 0)) * 1_000_000_000,
            offset: bytes::u64_at(record, 4),
            len: u64::from(bytes::u32_at(record, 12)),
            ..Record::default()
        })
    }

    fn addressing(&self) -> Addressing {
        Addressing::Objects
    }
}
