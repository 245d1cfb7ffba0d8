//! Alibaba block traces: device, `R` or `W`, offset (bytes), length (bytes), time (us).

use super::text::{LineFormat, read_or_write, take_field, take_number, whole_number};
use super::{DecodeOutput, FormatError, Record, time};

/// Alibaba CSV.
#[derive(Debug)]
pub(in super::super) struct Alibaba;

impl LineFormat for Alibaba {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let device = take_field(rest, b',');
        whole_number(device).ok_or("the device is not a number")?;
        let op = read_or_write(take_field(rest, b',')).ok_or("neither R nor W")?;
        let offset = take_number(rest, b',').ok_or("the offset is not a number")?;
        let len = take_number(rest, b',').ok_or("the length is not a number")?;
        let at = take_number(rest, b',').ok_or("the time is not a number")?;
        let record = Record {
            time_ns: time(at, 1_000)?,
            offset,
            len,
            volume: out.names.volumes.number(device),
            op,
            ..Record::default()
        };
        out.push(record)
    }
}
