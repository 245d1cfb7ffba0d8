//! Validation of page headers before the crate `parquet` reads them.
//!
//! The crate unpacks a page of up to 2 GiB at once, and 60 KiB are enough to store it packed. So a
//! short file could exhaust memory. This check limits a page to [`PAGE_BYTES_MAX`].

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Maximum length of a page, unpacked. Writers begin a new page after 1 MiB, or put a row group of
/// some 100,000 rows into one.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of a header. It may hold the minimum and the maximum of its page.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Length of most headers.
const HEADER_BYTES: u64 = 512;
/// Maximum depth of structures in a header.
const DEPTH_MAX: u32 = 8;

/// Checks the headers of all pages in `range`.
///
/// # Errors
/// A header is damaged, or a page is too long; or the file cannot be read.
pub(super) fn check(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let header = match read_header(file, at..range.end.min(at + HEADER_BYTES))? {
            Some(header) => header,
            None => read_header(file, at..range.end.min(at + HEADER_BYTES_MAX))?
                .ok_or_else(|| io::Error::other("the header of a page is damaged or too long"))?,
        };
        let Header { bytes, unpacked_bytes, packed_bytes } = header;
        if unpacked_bytes > PAGE_BYTES_MAX {
            let text = format!("a page has {unpacked_bytes} bytes, more than {PAGE_BYTES_MAX}");
            return Err(io::Error::other(text));
        }
        at = at.saturating_add(bytes).saturating_add(packed_bytes);
    }
    Ok(())
}

/// The lengths in a header, and the length of the header.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    bytes: u64,
    unpacked_bytes: u64,
    packed_bytes: u64,
}

/// Reads the header at the start of a range; `None` if it is damaged or longer than the range.
fn read_header(file: &File, range: Range<u64>) -> io::Result<Option<Header>> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], range.start + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    let mut rest = Thrift(&bytes[..filled]);
    let lengths = rest.lengths();
    let bytes = (filled - rest.0.len()) as u64;
    Ok(lengths.map(|(unpacked_bytes, packed_bytes)| Header { bytes, unpacked_bytes, packed_bytes }))
}

/// Types of Thrift's compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// Fields of `PageHeader`.
const UNPACKED: u64 = 2;
const PACKED: u64 = 3;

/// Reader of Thrift's compact protocol. Each function takes a value from the front; `None` if it is
/// incomplete.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    /// Takes a page header. Returns the unpacked and the packed length of its page.
    fn lengths(&mut self) -> Option<(u64, u64)> {
        let (mut unpacked, mut packed, mut field) = (None, None, 0);
        loop {
            match (self.field(&mut field)?, field) {
                (0, _) => return unpacked.zip(packed),
                (I32, UNPACKED) => unpacked = Some(self.length()?),
                (I32, PACKED) => packed = Some(self.length()?),
                (kind, _) => self.skip(kind, 0)?,
            }
        }
    }

    /// Takes the header of a field, and sets its number. Returns its type, or 0 at the end.
    fn field(&mut self, number: &mut u64) -> Option<u8> {
        let head = self.byte()?;
        if head != 0 {
            let step = u64::from(head >> 4);
            *number = if step == 0 { self.length()? } else { number.checked_add(step)? };
        }
        Some(head & 15)
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.number()?),
            DOUBLE => self.skip_bytes(8)?,
            BINARY => {
                let length = self.number()?;
                self.skip_bytes(length)?;
            }
            LIST | SET => {
                let head = self.byte()?;
                let short = u64::from(head >> 4);
                let count = if short == 15 { self.number()? } else { short };
                for _ in 0..count {
                    match head & 15 {
                        TRUE | FALSE => drop(self.byte()?),
                        kind => self.skip(kind, depth)?,
                    }
                }
            }
            STRUCT if depth < DEPTH_MAX => {
                let mut number = 0;
                loop {
                    match self.field(&mut number)? {
                        0 => break,
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte & 128 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Takes a signed number that must not be negative.
    fn length(&mut self) -> Option<u64> {
        let number = self.number()?;
        (number & 1 == 0).then_some(number >> 1)
    }

    fn skip_bytes(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn check_bytes(bytes: &[u8]) -> Result<(), String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        check(&file, 0..bytes.len() as u64).map_err(|error| error.to_string())
    }

    /// Returns the header of a data page with these lengths, and a minimum of `text_bytes`.
    fn header(unpacked: &[u8], packed: u8, text_bytes: u8) -> Vec<u8> {
        let lengths = [&[0x15, 0, 0x15], unpacked, &[0x15, packed * 2]].concat();
        let page = [0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6];
        let statistics = [&[0x1c, 0x68, text_bytes], &[7; 10][..], &[0]].concat();
        [&lengths, &page[..], &statistics, &[0, 0]].concat()
    }

    #[test]
    fn pages_that_a_reader_has_room_for_are_fine() {
        let one = [header(&[8], 5, 10), vec![0; 5]].concat();
        assert_eq!(check_bytes(&one), Ok(()));
        assert_eq!(check_bytes(&[one.clone(), one].concat()), Ok(()));
        assert_eq!(check_bytes(b""), Ok(()));
    }

    #[test]
    fn a_page_that_states_a_length_beyond_all_memory_is_refused() {
        let two_gib = [0xfe, 0xff, 0xff, 0xff, 0x0f];
        let error = check_bytes(&[header(&two_gib, 5, 10), vec![0; 5]].concat()).unwrap_err();
        assert!(error.contains("2147483647 bytes, more than"), "{error}");
    }

    #[test]
    fn a_damaged_header_is_refused() {
        let fine = header(&[8], 0, 10);
        let text_too_long = header(&[8], 0, 100);
        let negative = header(&[7], 0, 10);
        let nested = [&fine[..5], &[0x1c; 1000]].concat();
        let list = [&fine[..5], &[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x7f]].concat();
        let number = [&fine[..3], &[0xff; 20]].concat();
        for wrong in [&fine[..fine.len() - 1], &text_too_long, &negative, &nested, &list, &number] {
            let error = check_bytes(wrong).unwrap_err();
            assert!(error.contains("damaged"), "{error}");
        }
    }
}
