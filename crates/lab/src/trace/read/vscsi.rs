//! vscsi: traces of vscsiStats on ESX, in two versions.
//!
//! v1, 32 bytes: sequence u32, length u32 (bytes), scatter-gather elements u32, command u16,
//! version u16 (high byte 1), block u64 (512 B), time u64 (us). v2, 40 bytes: command u16, version
//! u16 (high byte 2), sequence u32, length u32, scatter-gather elements u32, block u64, time u64
//! (us), response u64 (us).

use super::{Decode, DecodeOutput, Decoded, Op, Record, TraceError, bytes, sectors, time};

/// vscsi of one version.
#[derive(Debug)]
pub(in super::super) struct Vscsi {
    is_v2: bool,
    /// Number of commands that do not access data, such as INQUIRY.
    others: u64,
}

impl Vscsi {
    pub(in super::super) fn new(is_v2: bool) -> Self {
        Vscsi { is_v2, others: 0 }
    }

    fn record_bytes(&self) -> usize {
        if self.is_v2 { 40 } else { 32 }
    }

    /// Returns true if the first records are plausible: the version in each, and a disk command.
    pub(in super::super) fn looks_like(&self, head: &[u8]) -> bool {
        let (command, version) = self.field_offsets();
        let mut records = head.chunks_exact(self.record_bytes()).take(16).peekable();
        records.peek().is_some()
            && records.all(|record| {
                record[version + 1] == self.version_byte()
                    && op(bytes::u16_at(record, command)).is_some()
            })
    }

    /// Returns the offsets of the command and the version.
    fn field_offsets(&self) -> (usize, usize) {
        if self.is_v2 { (0, 2) } else { (12, 14) }
    }

    fn version_byte(&self) -> u8 {
        if self.is_v2 { 2 } else { 1 }
    }

    fn record(&mut self, record: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let (command, version) = self.field_offsets();
        if record[version + 1] != self.version_byte() {
            return Err("the version of the record is not that of the trace");
        }
        let Some(op) = op(bytes::u16_at(record, command)) else {
            self.others += 1;
            return Ok(());
        };
        let len = bytes::u32_at(record, if self.is_v2 { 8 } else { 4 });
        let latency = if self.is_v2 { bytes::u64_at(record, 32) } else { 0 };
        out.push(Record {
            time_ns: time(bytes::u64_at(record, 24), 1_000)?,
            offset: sectors(bytes::u64_at(record, 16))?,
            len: u64::from(len),
            latency_ns: time(latency, 1_000)?,
            op,
            ..Record::default()
        })
    }
}

/// Returns the operation of a SCSI command.
fn op(command: u16) -> Option<Op> {
    match command {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(Op::Read),
        0x0a | 0x2a | 0x2e | 0x8a | 0x8e | 0xaa => Some(Op::Write),
        0x35 | 0x91 => Some(Op::Flush),
        0x42 => Some(Op::Discard),
        0x41 | 0x93 => Some(Op::Zero),
        _ => None,
    }
}

impl Decode for Vscsi {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        out.fixed_size(bytes, self.record_bytes(), |bytes, out| self.record(bytes, out))
    }

    fn notes(&self) -> Vec<String> {
        let skipped = format!("skipped {} commands that move no data", self.others);
        if self.others > 0 { vec![skipped] } else { Vec::new() }
    }
}
