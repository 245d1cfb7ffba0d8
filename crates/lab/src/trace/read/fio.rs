//! fio iolog: `file action offset length` after a first line with the version. In version 3 a
//! timestamp (us, as fio 3.33 writes it) precedes each line; version 2 has `file wait us` lines
//! instead.
//!
//! Each file is a separate volume, because offsets are relative to the file.

use super::text::{LineFormat, take_word, take_word_number};
use super::{DecodeOutput, FormatError, Op, Record, time};

/// fio iolog of one version.
#[derive(Debug)]
pub(in super::super) struct Fio {
    is_v3: bool,
    /// Sum of the waits of version 2.
    waited_us: u64,
}

impl Fio {
    /// Reads the first line; `None` if it is not that of an iolog.
    pub(in super::super) fn from_head(head: &[u8]) -> Option<Self> {
        let is_v3 = match head.get(..19)? {
            b"fio version 2 iolog" => false,
            b"fio version 3 iolog" => true,
            _ => return None,
        };
        Some(Fio { is_v3, waited_us: 0 })
    }
}

impl LineFormat for Fio {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let at = if self.is_v3 {
            take_word_number(rest).ok_or("the timestamp is not a number")?
        } else {
            self.waited_us
        };
        let file = take_word(rest);
        let op = match take_word(rest) {
            b"add" | b"open" | b"close" => return Ok(()),
            b"wait" if !self.is_v3 => {
                let wait = take_word_number(rest).ok_or("the wait is not a number")?;
                self.waited_us = at.checked_add(wait).ok_or("waits beyond 2^64 us")?;
                return Ok(());
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"sync" | b"datasync" => Op::Flush,
            b"trim" => Op::Discard,
            _ => return Err("an action that iolog does not have"),
        };
        let (mut offset, mut len) = (0, 0);
        if op != Op::Flush {
            offset = take_word_number(rest).ok_or("the offset is not a number")?;
            len = take_word_number(rest).ok_or("the length is not a number")?;
        }
        let volume = out.names.volumes.number(file);
        let file = out.names.files.number(file);
        let time_ns = time(at, 1_000)?;
        out.push(Record { time_ns, offset, len, volume, file, op, ..Record::default() })
    }

    fn has_header(&self) -> bool {
        true
    }
}
