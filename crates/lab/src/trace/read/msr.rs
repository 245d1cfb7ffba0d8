//! MSR Cambridge: Windows filetime (100 ns since 1601), host, disk number, `Read` or `Write`,
//! offset (bytes), size (bytes), response (100 ns). A volume is a host and a disk.

use super::text::{LineFormat, read_or_write, take_field, take_number};
use super::{DecodeOutput, FormatError, Record, time};

/// MSR Cambridge CSV.
#[derive(Debug)]
pub(in super::super) struct Msr;

impl LineFormat for Msr {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let at = take_number(rest, b',').ok_or("the timestamp is not a number")?;
        let after_time = *rest;
        let host = take_field(rest, b',');
        let disk = take_field(rest, b',');
        if host.is_empty() || disk.is_empty() {
            return Err("no host or no disk");
        }
        let key = &after_time[..host.len() + 1 + disk.len()];
        let op = read_or_write(take_field(rest, b',')).ok_or("neither Read nor Write")?;
        let offset = take_number(rest, b',').ok_or("the offset is not a number")?;
        let len = take_number(rest, b',').ok_or("the size is not a number")?;
        let latency = take_number(rest, b',').ok_or("the response time is not a number")?;
        let name = |key: &[u8]| String::from_utf8_lossy(key).replace(',', "_");
        let record = Record {
            time_ns: time(at, 100)?,
            offset,
            len,
            latency_ns: time(latency, 100)?,
            volume: out.names.volumes.number_with_name(key, name),
            op,
            ..Record::default()
        };
        out.push(record)
    }
}
