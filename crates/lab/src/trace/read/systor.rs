//! Systor '17: timestamp (s), response (s, may be empty), type (`R` or `W`), LUN, offset (bytes),
//! size (bytes).

use super::text::{LineFormat, read_or_write, take_decimal, take_field, take_number};
use super::{DecodeOutput, FormatError, Record};

/// Decimal places of a second: nanoseconds.
const SCALE: usize = 9;

/// Systor CSV.
#[derive(Debug)]
pub(in super::super) struct Systor;

impl LineFormat for Systor {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let time_ns = take_decimal(rest, b',', SCALE).ok_or("the timestamp is not a number")?;
        let latency_ns = if rest.first() == Some(&b',') {
            *rest = &rest[1..];
            0
        } else {
            take_decimal(rest, b',', SCALE).ok_or("the response time is not a number")?
        };
        let op = read_or_write(take_field(rest, b',')).ok_or("neither R nor W")?;
        let lun = take_field(rest, b',');
        if lun.is_empty() {
            return Err("no LUN");
        }
        let offset = take_number(rest, b',').ok_or("the offset is not a number")?;
        let len = take_number(rest, b',').ok_or("the size is not a number")?;
        let volume = out.names.volumes.number(lun);
        out.push(Record { time_ns, offset, len, latency_ns, volume, op, ..Record::default() })
    }
}
