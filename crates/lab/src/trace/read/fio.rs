//! fio iolog: `file action offset length` after a first line with the version. In version 3 a
//! timestamp (us, as fio 3.33 writes it) precedes each line; version 2 has `file wait us` lines
//! instead.
//!
//! Each file is a separate volume, because offsets are relative to the file.

use super::text::{LineFormat, Words};
use super::{DecodeOutput, Decoded, Op, Record, time};

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
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let mut fields = Words::of(line);
        let at = if self.is_v3 {
            fields.number("the timestamp is not a number")?
        } else {
            self.waited_us
        };
        let file = fields.text();
        let op = match fields.text() {
            b"add" | b"open" | b"close" => return Ok(()),
            b"wait" if !self.is_v3 => {
                let wait = fields.number("the wait is not a number")?;
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
            offset = fields.number("the offset is not a number")?;
            len = fields.number("the length is not a number")?;
        }
        let time_ns = time(at, 1_000)?;
        let number = out.names.files.number(file);
        out.push_in(file, Record { time_ns, offset, len, file: number, op, ..Record::default() })
    }

    fn has_header(&self) -> bool {
        true
    }
}
