//! Tencent CBS: time (s), offset (sectors), size (sectors), 0 for a read or 1 for a write, volume.
//!
//! Some copies have bytes instead of sectors. The reader assumes bytes if all values of a field at
//! the beginning of the file are multiples of 512: traces with only requests of multiples of 256
//! KiB do not occur in practice. A note reports the assumption.

use super::text::{Commas, LineFormat, is_heading};
use super::{DecodeOutput, Decoded, Record, SECTOR_BYTES, sectors, time};

/// Minimum number of offsets, all multiples of 512, from which the offsets alone show bytes.
const EVIDENCE_LINES: usize = 8;

/// Tencent CSV.
#[derive(Debug)]
pub(in super::super) struct Tencent {
    offset_in_bytes: bool,
    size_in_bytes: bool,
}

impl Tencent {
    /// Infers the units from the beginning of a file.
    pub(in super::super) fn guess(head: &[u8]) -> Self {
        let (mut offsets, mut sizes) = ((true, 0), (true, 0));
        for line in head.split(|&byte| byte == b'\n').take(10_000) {
            let mut fields = Commas::of(line.strip_suffix(b"\r").unwrap_or(line));
            let numbers = [(); 3].map(|()| fields.number(""));
            // An incomplete or invalid line is no evidence, nor is a zero.
            let [Ok(_), Ok(offset), Ok(size)] = numbers else { continue };
            if fields.rest.is_empty() || is_heading(line) {
                continue;
            }
            for (evidence, value) in [(&mut offsets, offset), (&mut sizes, size)] {
                evidence.0 &= value.is_multiple_of(SECTOR_BYTES);
                evidence.1 += usize::from(value > 0);
            }
        }
        let size_in_bytes = sizes.0 && sizes.1 > 0;
        let enough = if size_in_bytes { 1 } else { EVIDENCE_LINES };
        Tencent { offset_in_bytes: offsets.0 && offsets.1 >= enough, size_in_bytes }
    }
}

impl LineFormat for Tencent {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let mut fields = Commas::of(line);
        let time_ns = time(fields.number("the time is not a number")?, 1_000_000_000)?;
        let offset = fields.number("the offset is not a number")?;
        let size = fields.number("the size is not a number")?;
        let op = fields.one_of([b"0", b"1"], "neither 0 (read) nor 1 (write)")?;
        let volume = fields.digits("the volume is not a number")?;
        let offset = if self.offset_in_bytes { offset } else { sectors(offset)? };
        let len = if self.size_in_bytes { size } else { sectors(size)? };
        out.push_in(volume, Record { time_ns, offset, len, op, ..Record::default() })
    }

    fn notes(&self) -> Vec<String> {
        let unit = |bytes| if bytes { "bytes" } else { "sectors of 512 bytes" };
        let (offsets, sizes) = (unit(self.offset_in_bytes), unit(self.size_in_bytes));
        vec![format!("offsets were taken for {offsets} and sizes for {sizes}, by what they are")]
    }
}
