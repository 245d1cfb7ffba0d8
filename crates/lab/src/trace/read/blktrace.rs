//! blktrace, binary, version 7: 48 bytes followed by `pdu_len` bytes, in either byte order.
//!
//! magic u32 (0x65617400 | 7), sequence u32, time u64 (ns), sector u64, bytes u32, action u32, pid
//! u32, device u32, cpu u32, error u16, `pdu_len` u16. The lower half of the action is the event,
//! the upper half describes the request. A request is represented by one of its events: when it was
//! queued; if a trace has no such events, when it was issued to the driver, or completed.

use super::{
    BlockEvent, Decode, DecodeOutput, Decoded, FormatError, Op, Record, TraceError, bytes, sectors,
};

const BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

/// Events in the lower half of an action, in the order of [`BlockEvent`].
const EVENTS: [u32; 3] = [1, 7, 8];
/// Flag of events that belong to a control group, whose number is then in the PDU.
const CGROUP: u32 = 1 << 15;
/// Flags in the upper half of an action.
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;
/// A notification that names a process.
const NOTIFY_PROCESS: u32 = 0;

/// blktrace of one byte order.
#[derive(Debug)]
pub(in super::super) struct Blktrace {
    big_endian: bool,
    event: BlockEvent,
}

/// The header of one event.
#[derive(Clone, Copy, Debug)]
struct Event {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
    pdu_len: usize,
}

impl Blktrace {
    /// Detects the format from the first bytes of a file; `None` if it is not blktrace.
    pub(in super::super) fn from_head(head: &[u8]) -> Option<Self> {
        let magic = head.get(..4).map(|_| bytes::u32_at(head, 0))?;
        let big_endian = match (magic & !0xff == MAGIC, magic.swap_bytes() & !0xff == MAGIC) {
            (true, _) => false,
            (_, true) => true,
            _ => return None,
        };
        let mut trace = Blktrace { big_endian, event: BlockEvent::Queued };
        let (mut at, mut found) = (0, [false; 3]);
        while let Some(Ok(event)) = head[at..].get(..BYTES).map(|head| trace.event(head)) {
            for (found, kind) in found.iter_mut().zip(EVENTS) {
                *found |= event.action & NOTIFY == 0 && event.event_kind() == kind;
            }
            at = head.len().min(at + BYTES + event.pdu_len);
        }
        trace.event = BlockEvent::select(found);
        Some(trace)
    }

    fn event(&self, head: &[u8]) -> Result<Event, FormatError> {
        let wide = |at| {
            let value = bytes::u64_at(head, at);
            if self.big_endian { value.swap_bytes() } else { value }
        };
        let word = |at| {
            let value = bytes::u32_at(head, at);
            if self.big_endian { value.swap_bytes() } else { value }
        };
        let pdu = bytes::u16_at(head, 46);
        if word(0) & !0xff != MAGIC {
            return Err("no event of blktrace begins here");
        }
        if word(0) & 0xff != VERSION {
            return Err("an event of another version than 7");
        }
        Ok(Event {
            time_ns: wide(8),
            sector: wide(16),
            bytes: word(24),
            action: word(28),
            pid: word(32),
            device: word(36),
            pdu_len: usize::from(if self.big_endian { pdu.swap_bytes() } else { pdu }),
        })
    }

    fn push(&self, event: &Event, pdu: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        if event.action & NOTIFY != 0 {
            if event.action & 0xffff & !CGROUP == NOTIFY_PROCESS && event.action & CGROUP == 0 {
                let number = process(event.pid, out);
                let command = pdu.split(|&byte| byte == 0).next().unwrap_or(pdu);
                let command = String::from_utf8_lossy(command);
                if number > 0 {
                    out.names.processes.set(number, &format!("{command} ({})", event.pid));
                }
            }
            return Ok(());
        }
        if event.event_kind() != EVENTS[self.event as usize] {
            return Ok(());
        }
        let op = match event.action {
            kind if kind & DISCARD != 0 => Op::Discard,
            kind if kind & FLUSH != 0 && event.bytes == 0 => Op::Flush,
            kind if kind & WRITE != 0 => Op::Write,
            _ => Op::Read,
        };
        if op == Op::Read && event.bytes == 0 {
            // A command that transfers no data, such as those of smartctl.
            return Ok(());
        }
        let volume = out.names.volumes.number_with_name(&event.device.to_le_bytes(), |key| {
            let device = bytes::u32_at(key, 0);
            format!("{},{}", device >> 20, device & 0xf_ffff)
        });
        // A flush has no offset; the kernel writes -1.
        let offset = if op == Op::Flush { 0 } else { sectors(event.sector)? };
        let (time_ns, len, process) =
            (event.time_ns, u64::from(event.bytes), process(event.pid, out));
        out.push(Record { time_ns, offset, len, volume, process, op, ..Record::default() })
    }
}

impl Event {
    fn event_kind(&self) -> u32 {
        self.action & 0xffff & !CGROUP
    }
}

fn process(pid: u32, out: &mut DecodeOutput<'_>) -> u32 {
    let name = |key: &[u8]| bytes::u32_at(key, 0).to_string();
    out.names.processes.number_with_name(&pid.to_le_bytes(), name)
}

impl Decode for Blktrace {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        let mut at = 0;
        while let Some(head) = bytes[at..].get(..BYTES) {
            let position = out.position + at as u64;
            let event = match self.event(head) {
                Ok(event) => event,
                Err(reason) => {
                    out.bad_byte(position, reason)?;
                    // The next event begins at its magic.
                    let magic = MAGIC | VERSION;
                    let magic =
                        if self.big_endian { magic.to_be_bytes() } else { magic.to_le_bytes() };
                    let next = memchr::memmem::find(&bytes[at + 1..], &magic);
                    at = next.map_or(bytes.len() - 3, |found| at + 1 + found);
                    continue;
                }
            };
            let Some(pdu) = bytes[at + BYTES..].get(..event.pdu_len) else { break };
            if let Err(reason) = self.push(&event, pdu, out) {
                out.bad_byte(position, reason)?;
            }
            at += BYTES + event.pdu_len;
        }
        Ok(at)
    }

    fn notes(&self) -> Vec<String> {
        self.event.notes()
    }
}
