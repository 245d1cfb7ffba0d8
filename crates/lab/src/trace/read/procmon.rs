//! Process Monitor CSV: the first line names the columns, in any order; numbers have thousands
//! separators of any kind; the column Detail has `Offset: n, Length: n`.
//!
//! Each file is a separate volume, because offsets are relative to the file; a process is
//! identified by name and number. Times are times of day; a time that is more than half a day
//! before the previous one belongs to the next day. Only successful reads, writes and flushes are
//! requests.

use super::text::{LineFormat, leading_decimal, leading_number, take_decimal, take_quoted};
use super::{DecodeOutput, Decoded, Op, Record};
use memchr::memchr;
use memchr::memmem;

/// The columns in use.
const COLUMNS: [&[u8]; 8] = [
    b"Time of Day",
    b"Process Name",
    b"PID",
    b"Operation",
    b"Path",
    b"Result",
    b"Detail",
    b"Duration",
];
/// Indexes into [`COLUMNS`].
const TIME: usize = 0;
const PROCESS: usize = 1;
const PID: usize = 2;
const OPERATION: usize = 3;
const PATH: usize = 4;
const RESULT: usize = 5;
const DETAIL: usize = 6;
const DURATION: usize = 7;
/// Maximum number of columns; Process Monitor has fewer.
const COLUMNS_MAX: usize = 64;
const DAY_NS: u64 = 86_400_000_000_000;

/// Process Monitor CSV.
#[derive(Debug)]
pub(in super::super) struct Procmon {
    /// For each column of the file, its index in [`COLUMNS`].
    columns: Vec<Option<usize>>,
    clock: DayClock,
    /// Number of reads and writes that failed, and of those without an offset.
    failed: u64,
    without_offset: u64,
}

impl Procmon {
    /// Reads the first line; `None` if it is not that of Process Monitor.
    pub(in super::super) fn from_head(head: &[u8]) -> Option<Self> {
        let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let line = head.split(|&byte| byte == b'\n').next()?;
        let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
        let mut columns = Vec::new();
        while !rest.is_empty() && columns.len() < COLUMNS_MAX {
            let name = take_quoted(&mut rest)?;
            columns.push(COLUMNS.iter().position(|known| *known == name));
        }
        let has = |column| columns.contains(&Some(column));
        [TIME, OPERATION, PATH, DETAIL].into_iter().all(has).then_some(Procmon {
            columns,
            clock: DayClock::default(),
            failed: 0,
            without_offset: 0,
        })
    }
}

/// Times of day in their order; a time that is more than half a day before the previous one belongs
/// to the next day.
#[derive(Debug, Default)]
pub(super) struct DayClock {
    days: u64,
    last_ns: u64,
}

impl DayClock {
    /// Converts a time of day to a time since the first day.
    pub(super) fn absolute(&mut self, time_ns: u64) -> u64 {
        if time_ns + DAY_NS / 2 < self.last_ns {
            self.days += 1;
        }
        self.last_ns = time_ns;
        self.days.saturating_mul(DAY_NS).saturating_add(time_ns)
    }
}

/// Parses a time such as `9:15:32.1234567 AM` or `21:15:32,1234567`.
pub(super) fn time_of_day(field: &[u8]) -> Option<u64> {
    let (hours, len) = leading_number(field)?;
    let rest = field[len..].strip_prefix(b":")?;
    let (minutes, len) = leading_number(rest)?;
    let rest = rest[len..].strip_prefix(b":")?;
    let point = if memchr(b',', rest).is_some() { b',' } else { b'.' };
    let (seconds_ns, len) = leading_decimal(rest, point, 9)?;
    let am_pm = rest[len..].trim_ascii();
    let hours = match am_pm {
        b"" => hours,
        b"AM" | b"am" => hours % 12,
        b"PM" | b"pm" => hours % 12 + 12,
        _ => return None,
    };
    let valid = hours < 24 && minutes < 60 && seconds_ns < 61_000_000_000;
    valid.then(|| (hours * 60 + minutes) * 60_000_000_000 + seconds_ns)
}

/// Returns the number after a key such as `Offset: `, with thousands separators.
pub(super) fn number_after(detail: &[u8], key: &[u8]) -> Option<u64> {
    let at = memmem::find(detail, key)? + key.len();
    let (mut value, len) = leading_number(&detail[at..])?;
    let mut rest = &detail[at + len..];
    // Exactly three digits follow a thousands separator; a space follows the comma before the next
    // key.
    while let Some(digits) = separator(rest) {
        match leading_number(digits) {
            Some((group, 3)) => {
                value = value.checked_mul(1000)?.checked_add(group)?;
                rest = &digits[3..];
            }
            _ => break,
        }
    }
    Some(value)
}

/// Returns the bytes after a thousands separator: comma, point, apostrophe, space, or one of the
/// two no-break spaces (in UTF-8, or one byte of a Windows code page).
fn separator(rest: &[u8]) -> Option<&[u8]> {
    let separators: [&[u8]; 7] = [b",", b".", b"'", b" ", b"\xc2\xa0", b"\xe2\x80\xaf", b"\xa0"];
    separators.into_iter().find_map(|separator| rest.strip_prefix(separator))
}

impl LineFormat for Procmon {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let mut fields = [&[][..]; COLUMNS.len()];
        let mut rest = line;
        for column in &self.columns {
            let field = take_quoted(&mut rest).ok_or("the quotes do not match")?;
            if let Some(column) = column {
                fields[*column] = field;
            }
        }
        let at = time_of_day(fields[TIME]).ok_or("the time of day is not one")?;
        let time_ns = self.clock.absolute(at);
        let op = match fields[OPERATION] {
            b"ReadFile" => Op::Read,
            b"WriteFile" => Op::Write,
            b"FlushBuffersFile" => Op::Flush,
            b"" => return Err("no operation"),
            _ => return Ok(()),
        };
        if !fields[RESULT].is_empty() && fields[RESULT] != b"SUCCESS" {
            self.failed += 1;
            return Ok(());
        }
        let (mut offset, mut len) = (0, 0);
        if op.transfers() {
            let parsed_offset = number_after(fields[DETAIL], b"Offset: ");
            let Some(parsed_offset) = parsed_offset else {
                self.without_offset += 1;
                return Ok(());
            };
            offset = parsed_offset;
            len = number_after(fields[DETAIL], b"Length: ").ok_or("the detail has no length")?;
        }
        let file = out.names.files.number(fields[PATH]);
        let volume = out.names.volumes.number(fields[PATH]);
        let process = process_number(fields[PROCESS], fields[PID], out);
        let latency_ns = take_decimal(&mut &*fields[DURATION], b' ', 9).unwrap_or(0);
        let class = 0;
        out.push(Record { time_ns, offset, len, latency_ns, volume, file, process, op, class })
    }

    fn has_header(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.failed > 0 {
            notes.push(format!("skipped {} requests that failed", self.failed));
        }
        if self.without_offset > 0 {
            notes.push(format!("skipped {} requests without an offset", self.without_offset));
        }
        notes
    }
}

/// Returns the process, identified by name and number.
pub(super) fn process_number(name: &[u8], number: &[u8], out: &mut DecodeOutput<'_>) -> u32 {
    const KEY_BYTES: usize = 128;
    if name.is_empty() && number.is_empty() {
        return 0;
    }
    let mut key = [0; KEY_BYTES];
    let mut len = 0;
    for part in [name, b" (", number, b")"] {
        let part = &part[..part.len().min(KEY_BYTES - len)];
        key[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    out.names.processes.number(&key[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_separators_of_any_locale() {
        for text in [
            "Offset: 1,234,567, Length: 4,096, Priority: Normal",
            "Offset: 1.234.567, Length: 4.096",
            "Offset: 1 234 567, Length: 4 096",
            "Offset: 1'234'567, Length: 4'096",
            "Offset: 1\u{a0}234\u{a0}567, Length: 4\u{a0}096, I/O Flags: Non-cached",
            "Length: 4096, Offset: 1234567",
        ] {
            let number = |key: &str| number_after(text.as_bytes(), key.as_bytes());
            assert_eq!(number("Offset: "), Some(1_234_567), "{text}");
            assert_eq!(number("Length: "), Some(4_096), "{text}");
        }
        assert_eq!(number_after(b"Offset: -1, Length: 8", b"Offset: "), None);
    }

    #[test]
    fn times_of_the_day_of_two_locales() {
        let afternoon = (21 * 60 + 15) * 60_000_000_000 + 32_123_456_700;
        assert_eq!(time_of_day(b"9:15:32.1234567 PM"), Some(afternoon));
        assert_eq!(time_of_day(b"21:15:32,1234567"), Some(afternoon));
        assert_eq!(time_of_day(b"12:00:00.0000000 AM"), Some(0));
        for wrong in ["25:00:00.0", "9:15", "9:61:00", "9:15:32.1 XM", ""] {
            assert_eq!(time_of_day(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
