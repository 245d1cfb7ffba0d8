//! Raw keys: numbers of 32 or 64 bits, in either byte order, one reference each; objects without a
//! size. The content does not identify the format, so the extension or `--format` must.

use super::{Decode, DecodeOutput, Record, TraceError, bytes};

/// Raw keys of one width and byte order.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Keys {
    pub(in super::super) wide: bool,
    pub(in super::super) big_endian: bool,
}

impl Decode for Keys {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        let Keys { wide, big_endian } = *self;
        out.fixed_size(bytes, if wide { 8 } else { 4 }, |key, out| {
            let offset = match (wide, big_endian) {
                (true, false) => bytes::u64_at(key, 0),
                (true, true) => bytes::u64_at(key, 0).swap_bytes(),
                (false, false) => bytes::u32_at(key, 0).into(),
                (false, true) => bytes::u32_at(key, 0).swap_bytes().into(),
            };
            out.push(Record { offset, ..Record::default() })
        })
    }
}
