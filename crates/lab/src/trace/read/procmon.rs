//! Process Monitor CSV: columns by their names in the first line, in any order; numbers with
//! thousands separators of any kind; `Offset: n, Length: n` in the column Detail.
//!
//! Each file is a volume of its own, since its offsets are those within the file; the process is
//! its name and number. Times are of the day; one that jumps back by more than half a day is the
//! next day's. Only reads, writes and flushes that succeeded are requests.

use super::text::{LineFormat, leading_decimal, leading_number, take_decimal};
use super::{FormatError, Op, Out, Record};
use memchr::memchr;
use memchr::memmem;

/// The columns that are used.
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
/// Their places in the list.
const TIME: usize = 0;
const PROCESS: usize = 1;
const PID: usize = 2;
const OPERATION: usize = 3;
const PATH: usize = 4;
const RESULT: usize = 5;
const DETAIL: usize = 6;
const DURATION: usize = 7;
/// More columns than Process Monitor has.
const COLUMNS_MAX: usize = 64;
const DAY_NS: u64 = 86_400_000_000_000;

/// Process Monitor CSV.
#[derive(Debug)]
pub(in super::super) struct Procmon {
    /// For each column of the file which of ours it is.
    columns: Vec<Option<usize>>,
    days: u64,
    last_ns: u64,
    /// Reads and writes that failed, or that say no offset.
    failed: u64,
    placeless: u64,
}

impl Procmon {
    /// Reads the first line; none if it is not one.
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
            days: 0,
            last_ns: 0,
            failed: 0,
            placeless: 0,
        })
    }

    /// A time of the day as one that does not jump back.
    fn absolute(&mut self, time_ns: u64) -> u64 {
        if time_ns + DAY_NS / 2 < self.last_ns {
            self.days += 1;
        }
        self.last_ns = time_ns;
        self.days.saturating_mul(DAY_NS).saturating_add(time_ns)
    }
}

/// Takes a field of a CSV line, with or without quotes; a doubled quote stays doubled. None if the
/// quotes do not match.
fn take_quoted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let whole: &'a [u8] = rest;
    if whole.first() != Some(&b'"') {
        let end = memchr(b',', whole).unwrap_or(whole.len());
        *rest = whole.get(end + 1..).unwrap_or_default();
        return Some(&whole[..end]);
    }
    let mut end = 1;
    loop {
        end += memchr(b'"', whole.get(end..)?)?;
        match whole.get(end + 1) {
            Some(b'"') => end += 2,
            Some(b',') => {
                *rest = &whole[end + 2..];
                return Some(&whole[1..end]);
            }
            None => {
                *rest = &[];
                return Some(&whole[1..end]);
            }
            Some(_) => return None,
        }
    }
}

/// `9:15:32.1234567 AM`, `21:15:32,1234567`.
fn time_of_day(field: &[u8]) -> Option<u64> {
    let (hours, len) = leading_number(field)?;
    let rest = field[len..].strip_prefix(b":")?;
    let (minutes, len) = leading_number(rest)?;
    let rest = rest[len..].strip_prefix(b":")?;
    let point = if memchr(b',', rest).is_some() { b',' } else { b'.' };
    let (seconds_ns, len) = leading_decimal(rest, point, 9)?;
    let half = rest[len..].trim_ascii();
    let hours = match half {
        b"" => hours,
        b"AM" | b"am" => hours % 12,
        b"PM" | b"pm" => hours % 12 + 12,
        _ => return None,
    };
    let valid = hours < 24 && minutes < 60 && seconds_ns < 61_000_000_000;
    valid.then(|| (hours * 60 + minutes) * 60_000_000_000 + seconds_ns)
}

/// The number behind a key such as `Offset: `, with thousands separators.
fn number_behind(detail: &[u8], key: &[u8]) -> Option<u64> {
    let at = memmem::find(detail, key)? + key.len();
    let (mut value, len) = leading_number(&detail[at..])?;
    let mut rest = &detail[at + len..];
    // A separator is one that three digits follow, and no fourth: a comma before the next key is
    // followed by a space.
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

/// What follows a thousands separator: comma, point, apostrophe, space, or one of the two spaces
/// that do not break (in UTF-8, or one byte of a Windows code page).
fn separator(rest: &[u8]) -> Option<&[u8]> {
    let separators: [&[u8]; 7] = [b",", b".", b"'", b" ", b"\xc2\xa0", b"\xe2\x80\xaf", b"\xa0"];
    separators.into_iter().find_map(|separator| rest.strip_prefix(separator))
}

impl LineFormat for Procmon {
    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Result<(), FormatError> {
        let mut fields = [&[][..]; COLUMNS.len()];
        let mut rest = line;
        for column in &self.columns {
            let field = take_quoted(&mut rest).ok_or("the quotes do not match")?;
            if let Some(column) = column {
                fields[*column] = field;
            }
        }
        let at = time_of_day(fields[TIME]).ok_or("the time of day is not one")?;
        let time_ns = self.absolute(at);
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
            let place = number_behind(fields[DETAIL], b"Offset: ");
            let Some(place) = place else {
                self.placeless += 1;
                return Ok(());
            };
            offset = place;
            len = number_behind(fields[DETAIL], b"Length: ").ok_or("the detail has no length")?;
        }
        let file = out.names.files.number(fields[PATH]);
        let volume = out.names.volumes.number(fields[PATH]);
        let process = process(&fields, out);
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
            notes.push(format!("{} requests that failed were passed over", self.failed));
        }
        if self.placeless > 0 {
            notes.push(format!("{} requests without an offset were passed over", self.placeless));
        }
        notes
    }
}

/// The process: its name and number, which lie in different columns.
fn process(fields: &[&[u8]; COLUMNS.len()], out: &mut Out<'_>) -> u32 {
    const KEY_BYTES: usize = 128;
    if fields[PROCESS].is_empty() && fields[PID].is_empty() {
        return 0;
    }
    let mut key = [0; KEY_BYTES];
    let mut len = 0;
    for part in [fields[PROCESS], b" (", fields[PID], b")"] {
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
            let number = |key: &str| number_behind(text.as_bytes(), key.as_bytes());
            assert_eq!(number("Offset: "), Some(1_234_567), "{text}");
            assert_eq!(number("Length: "), Some(4_096), "{text}");
        }
        assert_eq!(number_behind(b"Offset: -1, Length: 8", b"Offset: "), None);
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
