//! Text formats with the same fields in each line: one function for each format, which takes the
//! fields in their order.

use super::text::{Commas, Words, leading_decimal, whole_number};
use super::{DecodeOutput, Decoded, Record, sectors, time};
use memchr::memchr;

/// Alibaba block traces: device, `R` or `W`, offset (bytes), length (bytes), time (us).
pub(in super::super) fn alibaba(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let mut fields = Commas::of(line);
    let device = fields.digits("the device is not a number")?;
    let record = Record {
        op: fields.op("neither R nor W")?,
        offset: fields.number("the offset is not a number")?,
        len: fields.number("the length is not a number")?,
        time_ns: time(fields.number("the time is not a number")?, 1_000)?,
        ..Record::default()
    };
    out.push_in(device, record)
}

/// MSR Cambridge: Windows filetime (100 ns since 1601), host, disk number, `Read` or `Write`,
/// offset (bytes), size (bytes), response (100 ns). A volume is a host and a disk.
pub(in super::super) fn msr(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let mut fields = Commas::of(line);
    let time_ns = time(fields.number("the timestamp is not a number")?, 100)?;
    let after_time = fields.rest;
    let (host, disk) = (fields.text(), fields.text());
    if host.is_empty() || disk.is_empty() {
        return Err("no host or no disk");
    }
    let record = Record {
        time_ns,
        op: fields.op("neither Read nor Write")?,
        offset: fields.number("the offset is not a number")?,
        len: fields.number("the size is not a number")?,
        latency_ns: time(fields.number("the response time is not a number")?, 100)?,
        ..Record::default()
    };
    let key = &after_time[..host.len() + 1 + disk.len()];
    let name = |key: &[u8]| String::from_utf8_lossy(key).replace(',', "_");
    let volume = out.names.volumes.number_with_name(key, name);
    out.push(Record { volume, ..record })
}

/// Systor '17: timestamp (s), response (s, may be empty), type (`R` or `W`), LUN, offset (bytes),
/// size (bytes).
pub(in super::super) fn systor(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let mut fields = Commas::of(line);
    let time_ns = fields.seconds("the timestamp is not a number")?;
    let latency_ns = if let Some(rest) = fields.rest.strip_prefix(b",") {
        fields.rest = rest;
        0
    } else {
        fields.seconds("the response time is not a number")?
    };
    let op = fields.op("neither R nor W")?;
    let lun = fields.text();
    if lun.is_empty() {
        return Err("no LUN");
    }
    let offset = fields.number("the offset is not a number")?;
    let len = fields.number("the size is not a number")?;
    out.push_in(lun, Record { time_ns, offset, len, latency_ns, op, ..Record::default() })
}

/// UMass SPC: ASU, LBA (512 B), size (bytes), operation, timestamp (s); further fields are ignored.
/// A volume is an ASU, an application storage unit.
pub(in super::super) fn spc(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let mut fields = Commas::of(line);
    let asu = fields.digits("the ASU is not a number")?;
    let record = Record {
        offset: sectors(fields.number("the LBA is not a number")?)?,
        len: fields.number("the size is not a number")?,
        op: fields.op("neither r nor w")?,
        time_ns: fields.seconds("the timestamp is not a number")?,
        ..Record::default()
    };
    out.push_in(asu, record)
}

/// DiskSim and MQSim ASCII: arrival, device, sector, sectors, 0 for a write or 1 for a read. MQSim
/// writes arrivals as whole nanoseconds, DiskSim as milliseconds with a decimal point; the point
/// distinguishes them.
pub(in super::super) fn disksim(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let mut fields = Words::of(line);
    let arrival = fields.text();
    let time_ns = match memchr(b'.', arrival) {
        None => whole_number(arrival),
        // Milliseconds with six decimal places are nanoseconds.
        Some(_) => leading_decimal(arrival, b'.', 6)
            .and_then(|(value, len)| (len == arrival.len()).then_some(value)),
    };
    let time_ns = time_ns.ok_or("the arrival is not a number")?;
    let device = fields.digits("the device is not a number")?;
    let record = Record {
        time_ns,
        offset: sectors(fields.number("the sector is not a number")?)?,
        len: sectors(fields.number("the number of sectors is not a number")?)?,
        op: fields.one_of([b"1", b"0"], "neither 0 (write) nor 1 (read)")?,
        ..Record::default()
    };
    if !fields.text().is_empty() {
        return Err("more than five fields");
    }
    out.push_in(device, record)
}

/// `.lis` of the ARC papers: start page, number of pages, a number that is ignored, request number.
/// Pages of 512 bytes; a request has `pages` references. No times, no operations: all are reads.
pub(in super::super) fn lis(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let mut fields = Words::of(line);
    let offset = sectors(fields.number("the start page is not a number")?)?;
    let len = sectors(fields.number("the number of pages is not a number")?)?;
    fields.number("the third field is not a number")?;
    fields.number("the number of the request is not a number")?;
    if !fields.text().is_empty() {
        return Err("more than four fields");
    }
    out.push(Record { offset, len, ..Record::default() })
}
