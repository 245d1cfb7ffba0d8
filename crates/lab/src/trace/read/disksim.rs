//! DiskSim and MQSim ASCII: arrival, device, sector, sectors, 0 for a write or 1 for a read. MQSim
//! writes arrivals as whole nanoseconds, DiskSim as milliseconds with a decimal point; the point
//! distinguishes them.

use super::text::{LineFormat, leading_decimal, take_word, take_word_number, whole_number};
use super::{DecodeOutput, FormatError, Op, Record, sectors};
use memchr::memchr;

/// DiskSim or MQSim ASCII.
#[derive(Debug)]
pub(in super::super) struct DiskSim;

impl LineFormat for DiskSim {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let arrival = take_word(rest);
        let time_ns = match memchr(b'.', arrival) {
            None => whole_number(arrival),
            // Milliseconds with six decimal places are nanoseconds.
            Some(_) => leading_decimal(arrival, b'.', 6)
                .and_then(|(value, len)| (len == arrival.len()).then_some(value)),
        };
        let time_ns = time_ns.ok_or("the arrival is not a number")?;
        let device = take_word(rest);
        whole_number(device).ok_or("the device is not a number")?;
        let sector = take_word_number(rest).ok_or("the sector is not a number")?;
        let count = take_word_number(rest).ok_or("the number of sectors is not a number")?;
        let op = match take_word(rest) {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err("neither 0 (write) nor 1 (read)"),
        };
        if !take_word(rest).is_empty() {
            return Err("more than five fields");
        }
        let (offset, len) = (sectors(sector)?, sectors(count)?);
        let volume = out.names.volumes.number(device);
        out.push(Record { time_ns, offset, len, volume, op, ..Record::default() })
    }
}
