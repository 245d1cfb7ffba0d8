//! UMass SPC: ASU, LBA (512 B), size (bytes), operation, timestamp (s); further fields are ignored.
//! A volume is an ASU, an application storage unit.

use super::text::{LineFormat, read_or_write, take_decimal, take_field, take_number, whole_number};
use super::{DecodeOutput, FormatError, Record, sectors};

/// UMass SPC.
#[derive(Debug)]
pub(in super::super) struct Spc;

impl LineFormat for Spc {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let asu = take_field(rest, b',');
        whole_number(asu).ok_or("the ASU is not a number")?;
        let lba = take_number(rest, b',').ok_or("the LBA is not a number")?;
        let len = take_number(rest, b',').ok_or("the size is not a number")?;
        let op = read_or_write(take_field(rest, b',')).ok_or("neither r nor w")?;
        let time_ns = take_decimal(rest, b',', 9).ok_or("the timestamp is not a number")?;
        let volume = out.names.volumes.number(asu);
        out.push(Record { time_ns, offset: sectors(lba)?, len, volume, op, ..Record::default() })
    }
}
