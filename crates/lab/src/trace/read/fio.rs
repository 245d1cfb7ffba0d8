//! fio iolog: `file action offset length` behind a first line that says the version. Version 3 has
//! a timestamp (us, as fio 3.33 writes it) in front; version 2 has `file wait us` lines instead.
//!
//! Each file is a volume of its own, since its offsets are those within the file.

use super::text::{LineFormat, take_word, take_word_number};
use super::{FormatError, Op, Out, Record, time};

/// fio iolog of one version.
#[derive(Debug)]
pub(in super::super) struct Fio {
    third: bool,
    /// What the waits of version 2 came to.
    waited_us: u64,
}

impl Fio {
    /// Reads the first line; none if it is not one.
    pub(in super::super) fn from_head(head: &[u8]) -> Option<Self> {
        let third = match head.get(..19)? {
            b"fio version 2 iolog" => false,
            b"fio version 3 iolog" => true,
            _ => return None,
        };
        Some(Fio { third, waited_us: 0 })
    }
}

impl LineFormat for Fio {
    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let at = if self.third {
            take_word_number(rest).ok_or("the timestamp is not a number")?
        } else {
            self.waited_us
        };
        let file = take_word(rest);
        let op = match take_word(rest) {
            b"add" | b"open" | b"close" => return Ok(()),
            b"wait" if !self.third => {
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
