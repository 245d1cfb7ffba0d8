//! blkparse text with its default columns: `maj,min cpu sequence s.ns pid action rwbs sector + n
//! [command]`. The reader selects the action that represents a request as in `blktrace`. It skips
//! the summary that blkparse prints at the end.

use super::text::{LineFormat, leading_decimal, take_word, take_word_number, whole_number};
use super::{DecodeOutput, FormatError, Op, Record, sectors};

/// blkparse text.
#[derive(Debug)]
pub(in super::super) struct Blkparse {
    /// Letter of the action that represents a request.
    action: u8,
    in_summary: bool,
}

impl Blkparse {
    /// Selects the action that represents a request from the first lines of a file.
    pub(in super::super) fn from_head(head: &[u8]) -> Self {
        let mut found = [false; 3];
        for line in head.split(|&byte| byte == b'\n') {
            let rest = &mut &*line;
            let action = (0..6).map(|_| take_word(rest)).last().unwrap_or_default();
            for (found, letter) in found.iter_mut().zip([b'Q', b'D', b'C']) {
                *found |= action == [letter];
            }
        }
        let action = match found {
            [true, _, _] | [_, false, false] => b'Q',
            [_, true, _] => b'D',
            _ => b'C',
        };
        Blkparse { action, in_summary: false }
    }

    /// Returns true if a line is an event.
    pub(in super::super) fn looks_like(line: &[u8]) -> bool {
        let rest = &mut &*line;
        is_device(take_word(rest))
            && (0..2).all(|_| take_word_number(rest).is_some())
            && leading_decimal(take_word(rest), b'.', 9).is_some()
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
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let device = take_word(rest);
        if !is_device(device) {
            self.in_summary |= device.starts_with(b"CPU") || device == b"Total";
            let skip = self.in_summary || device.is_empty();
            return if skip { Ok(()) } else { Err("the line does not begin with a device") };
        }
        take_word_number(rest).ok_or("the CPU is not a number")?;
        take_word_number(rest).ok_or("the sequence is not a number")?;
        let at = take_word(rest);
        let (time_ns, len) = leading_decimal(at, b'.', 9).ok_or("the time is not a number")?;
        if len != at.len() {
            return Err("the time is not a number");
        }
        let pid = take_word(rest);
        whole_number(pid).ok_or("the process is not a number")?;
        if take_word(rest) != [self.action] {
            return Ok(());
        }
        let rwbs = take_word(rest);
        let mut range = (0, 0);
        let mut word = take_word(rest);
        let has_range = whole_number(word).is_some();
        if let Some(sector) = whole_number(word) {
            if take_word(rest) != b"+" {
                return Err("no + behind the sector");
            }
            let count = take_word_number(rest).ok_or("the number of sectors is not a number")?;
            range = (sectors(sector)?, sectors(count)?);
            word = take_word(rest);
        }
        let Some(op) = operation(rwbs, has_range) else {
            // A command that transfers no data (N).
            return if rwbs.contains(&b'N') { Ok(()) } else { Err("neither R, W, D nor F") };
        };
        if op != Op::Flush && !has_range {
            return Err("no sector");
        }
        let volume = out.names.volumes.number(device);
        let process = out.names.processes.number_with_name(pid, |pid| {
            let command = word.strip_prefix(b"[").unwrap_or(word);
            let command = command.strip_suffix(b"]").unwrap_or(command);
            let [command, pid] = [command, pid].map(String::from_utf8_lossy);
            if command.is_empty() { pid.into_owned() } else { format!("{command} ({pid})") }
        });
        let (offset, len) = range;
        out.push(Record { time_ns, offset, len, volume, process, op, ..Record::default() })
    }

    fn notes(&self) -> Vec<String> {
        let action = match self.action {
            b'D' => "issued (D)",
            b'C' => "completed (C)",
            _ => return Vec::new(),
        };
        vec![format!("no request is seen being queued (Q); taken are those being {action}")]
    }
}
