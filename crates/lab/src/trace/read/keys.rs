//! Raw keys: numbers of 32 or 64 bits, in either byte order, one reference each; objects without a
//! size. The content does not identify the format, so the extension or `--format` must.

use super::{Addressing, DecodeOutput, FixedRecord, FormatError, Record, bytes};

/// Raw keys of one width and byte order.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Keys {
    pub(in super::super) wide: bool,
    pub(in super::super) big_endian: bool,
}

impl FixedRecord for Keys {
    fn bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    fn record(&mut self, record: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let key =
            if self.wide { bytes::u64_at(record, 0) } else { bytes::u32_at(record, 0).into() };
        let key = match (self.big_endian, self.wide) {
            (false, _) => key,
            (true, true) => key.swap_bytes(),
            // The swapped 32 bits are in the upper half.
            (true, false) => key.swap_bytes() >> 32,
        };
        out.push(Record { offset: key, ..Record::default() })
    }

    fn addressing(&self) -> Addressing {
        Addressing::Objects
    }
}
