//! oracleGeneral of libCacheSim, 24 packed bytes: time u32 (s), object u64, size u32, and the
//! number of the next request for the object, i64 (-1 or the largest number: never). No operation,
//! no volume: all are reads of objects.

use super::{Decode, DecodeOutput, Record, TraceError, bytes};

pub(super) const BYTES: usize = 24;

/// oracleGeneral.
#[derive(Debug)]
pub(in super::super) struct OracleGeneral;

impl OracleGeneral {
    /// Returns true if the first records are plausible: times in order, next requests after this
    /// one.
    pub(in super::super) fn looks_like(head: &[u8]) -> bool {
        let (mut count, mut previous_time) = (0_u64, 0);
        for record in head.chunks_exact(BYTES).take(32) {
            let (time, size) = (bytes::u32_at(record, 0), bytes::u32_at(record, 12));
            let next = bytes::u64_at(record, 16);
            let is_last = next == u64::MAX || next == i64::MAX.unsigned_abs();
            // The limit on the difference is one year; the limit on `next` exceeds the requests of
            // any trace.
            let is_ordered =
                count == 0 || (time >= previous_time && time - previous_time < 31_536_000);
            if !(is_ordered && (is_last || (next > count && next < 1 << 40)) && size < 1 << 31) {
                return false;
            }
            (count, previous_time) = (count + 1, time);
        }
        count > 0
    }
}

impl Decode for OracleGeneral {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        out.fixed_size(bytes, BYTES, |record, out| {
            if bytes::u64_at(record, 16) == 0 {
                return Err("the next request for the object is the first one of the trace");
            }
            out.push(Record {
                time_ns: u64::from(bytes::u32_at(record, 0)) * 1_000_000_000,
                offset: bytes::u64_at(record, 4),
                len: u64::from(bytes::u32_at(record, 12)),
                ..Record::default()
            })
        })
    }
}
