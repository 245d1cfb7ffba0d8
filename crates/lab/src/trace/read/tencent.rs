//! Tencent CBS: time (s), offset (sectors), size (sectors), 0 for a read or 1 for a write, volume.
//!
//! Some copies have bytes instead of sectors. The reader assumes bytes if all values of a field at
//! the beginning of the file are multiples of 512: traces with only requests of multiples of 256
//! KiB do not occur in practice. A note reports the assumption.

use super::text::{LineFormat, is_heading, take_field, take_number, whole_number};
use super::{DecodeOutput, FormatError, Op, Record, SECTOR_BYTES, sectors, time};

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
            let rest = &mut line.strip_suffix(b"\r").unwrap_or(line);
            let numbers = [(); 3].map(|()| take_number(rest, b','));
            // An incomplete or invalid line is no evidence, nor is a zero.
            let [Some(_), Some(offset), Some(size)] = numbers else { continue };
            if rest.is_empty() || is_heading(line) {
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
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let at = take_number(rest, b',').ok_or("the time is not a number")?;
        let offset = take_number(rest, b',').ok_or("the offset is not a number")?;
        let size = take_number(rest, b',').ok_or("the size is not a number")?;
        let op = match take_field(rest, b',') {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err("neither 0 (read) nor 1 (write)"),
        };
        let volume = take_field(rest, b',');
        whole_number(volume).ok_or("the volume is not a number")?;
        let record = Record {
            time_ns: time(at, 1_000_000_000)?,
            offset: if self.offset_in_bytes { offset } else { sectors(offset)? },
            len: if self.size_in_bytes { size } else { sectors(size)? },
            volume: out.names.volumes.number(volume),
            op,
            ..Record::default()
        };
        out.push(record)
    }

    fn notes(&self) -> Vec<String> {
        let unit = |bytes| if bytes { "bytes" } else { "sectors of 512 bytes" };
        let (offsets, sizes) = (unit(self.offset_in_bytes), unit(self.size_in_bytes));
        vec![format!("offsets were taken for {offsets} and sizes for {sizes}, by what they are")]
    }
}
