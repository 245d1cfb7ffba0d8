//! blkparse text with its default columns: `maj,min cpu sequence s.ns pid action rwbs sector + n
//! [command]`. The reader selects the action that represents a request as in `blktrace`. It skips
//! the summary that blkparse prints at the end.

use super::text::{LineFormat, Words, leading_decimal, whole_number};
use super::{BlockEvent, DecodeOutput, Decoded, Op, Record, sectors};

/// Letters of the actions, in the order of [`BlockEvent`].
const ACTIONS: [u8; 3] = *b"QDC";

/// blkparse text.
#[derive(Debug)]
pub(in super::super) struct Blkparse {
    event: BlockEvent,
    in_summary: bool,
}

impl Blkparse {
    /// Selects the action that represents a request from the first lines of a file.
    pub(in super::super) fn from_head(head: &[u8]) -> Self {
        let mut found = [false; 3];
        for line in head.split(|&byte| byte == b'\n') {
            let mut fields = Words::of(line);
            let action = (0..6).map(|_| fields.text()).last().unwrap_or_default();
            for (found, letter) in found.iter_mut().zip(ACTIONS) {
                *found |= action == [letter];
            }
        }
        Blkparse { event: BlockEvent::select(found), in_summary: false }
    }

    /// Returns true if a line is an event.
    pub(in super::super) fn looks_like(line: &[u8]) -> bool {
        let mut fields = Words::of(line);
        is_device(fields.text())
            && (0..2).all(|_| fields.number("").is_ok())
            && leading_decimal(fields.text(), b'.', 9).is_some()
    }
}

/// Returns true if a word is a device such as `8,0`.
fn is_device(word: &[u8]) -> bool {
    let comma = word.iter().position(|&byte| byte == b',');
    comma.is_some_and(|at| {
        whole_number(&word[..at]).is_some() && whole_number(&word[at + 1..]).is_some()
    })
}

/// Returns the operation of an RWBS field such as `R`, `WS`, `FWFS` or `D`.
fn operation(rwbs: &[u8], has_range: bool) -> Option<Op> {
    let has = |letter| rwbs.contains(&letter);
    match () {
        () if has(b'D') => Some(Op::Discard),
        () if has(b'R') => Some(Op::Read),
        () if has(b'W') && (has_range || !has(b'F')) => Some(Op::Write),
        () if has(b'F') => Some(Op::Flush),
        () => None,
    }
}

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let mut fields = Words::of(line);
        let device = fields.text();
        if !is_device(device) {
            self.in_summary |= device.starts_with(b"CPU") || device == b"Total";
            let skip = self.in_summary || device.is_empty();
            return if skip { Ok(()) } else { Err("the line does not begin with a device") };
        }
        fields.number("the CPU is not a number")?;
        fields.number("the sequence is not a number")?;
        let at = fields.text();
        let time = leading_decimal(at, b'.', 9).filter(|(_, len)| *len == at.len());
        let (time_ns, _) = time.ok_or("the time is not a number")?;
        let pid = fields.digits("the process is not a number")?;
        if fields.text() != [ACTIONS[self.event as usize]] {
            return Ok(());
        }
        let rwbs = fields.text();
        let (mut offset, mut len) = (0, 0);
        let mut word = fields.text();
        let first_sector = whole_number(word);
        if let Some(sector) = first_sector {
            if fields.text() != b"+" {
                return Err("no + behind the sector");
            }
            offset = sectors(sector)?;
            len = sectors(fields.number("the number of sectors is not a number")?)?;
            word = fields.text();
        }
        let Some(op) = operation(rwbs, first_sector.is_some()) else {
            // A command that transfers no data (N).
            return if rwbs.contains(&b'N') { Ok(()) } else { Err("neither R, W, D nor F") };
        };
        if op != Op::Flush && first_sector.is_none() {
            return Err("no sector");
        }
        let process = out.names.processes.number_with_name(pid, |pid| {
            let command = word.strip_prefix(b"[").unwrap_or(word);
            let command = command.strip_suffix(b"]").unwrap_or(command);
            let [command, pid] = [command, pid].map(String::from_utf8_lossy);
            if command.is_empty() { pid.into_owned() } else { format!("{command} ({pid})") }
        });
        out.push_in(device, Record { time_ns, offset, len, process, op, ..Record::default() })
    }

    fn notes(&self) -> Vec<String> {
        self.event.notes()
    }
}
