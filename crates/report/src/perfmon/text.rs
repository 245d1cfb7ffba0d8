//! Decoding of log files: UTF-8, UTF-16 (from a PowerShell redirection) or Windows-1252 (from
//! Perfmon itself in western countries).
//!
//! Invariants: any bytes become text; a line that is not UTF-8, in a log without a UTF-16 byte
//! order mark, is read as Windows-1252, in which every byte is a character. Decoding uses bounded
//! memory.

use std::io::{self, BufRead, Read};

/// Characters of Windows-1252 from 0x80 to 0x9f (Microsoft's table cp1252 of the Unicode
/// Consortium); five code points are unused.
const FROM_80: [u16; 32] = [
    0x20ac, 0xfffd, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039,
    0x0152, 0xfffd, 0x017d, 0xfffd, 0xfffd, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
    0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0xfffd, 0x017e, 0x0178,
];

/// Returns the log as UTF-8, without its byte order mark; a log with a UTF-16 mark is converted.
pub(super) fn to_utf8<'a>(mut from: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut head = Vec::new();
    from.by_ref().take(3).read_to_end(&mut head)?;
    let (unit, mark): (fn([u8; 2]) -> u16, usize) = match head[..] {
        [0xef, 0xbb, 0xbf] => return Ok(Box::new(from)),
        [0xff, 0xfe, ..] => (u16::from_le_bytes, 2),
        [0xfe, 0xff, ..] => (u16::from_be_bytes, 2),
        _ => return Ok(Box::new(io::Cursor::new(head).chain(from))),
    };
    let from = io::Cursor::new(head.split_off(mark)).chain(from);
    Ok(Box::new(io::BufReader::new(Utf8 { from, unit, high: None, ready: Vec::new(), taken: 0 })))
}

/// Converter from UTF-16 to UTF-8; invalid units become U+FFFD.
struct Utf8<R> {
    from: R,
    unit: fn([u8; 2]) -> u16,
    /// High surrogate whose low surrogate is not read yet.
    high: Option<u16>,
    /// Converted bytes; the caller has read those before `taken`.
    ready: Vec<u8>,
    taken: usize,
}

/// Bytes of UTF-16 per conversion.
const PIECE_BYTES: u64 = 8192;

impl<R: Read> Utf8<R> {
    fn refill(&mut self) -> io::Result<()> {
        let mut piece = Vec::new();
        self.from.by_ref().take(PIECE_BYTES).read_to_end(&mut piece)?;
        // A single byte at the end of the file is half a code unit.
        let (pairs, _odd) = piece.as_chunks::<2>();
        let mut units: Vec<u16> = self.high.take().into_iter().collect();
        units.extend(pairs.iter().map(|pair| (self.unit)(*pair)));
        let at_end = (piece.len() as u64) < PIECE_BYTES;
        self.high = units.pop_if(|last| !at_end && (0xd800..0xdc00).contains(last));
        self.ready = String::from_utf16_lossy(&units).into_bytes();
        self.taken = 0;
        Ok(())
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.ready.len() {
            self.refill()?;
        }
        let count = into.len().min(self.ready.len() - self.taken);
        into[..count].copy_from_slice(&self.ready[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

/// Returns the text of one line of a log from [`to_utf8`].
pub(super) fn decode_line(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_not_utf8) => line.iter().map(|&byte| windows_1252(byte)).collect(),
    }
}

fn windows_1252(byte: u8) -> char {
    match byte {
        0x80..=0x9f => char::from_u32(FROM_80[usize::from(byte - 0x80)].into())
            .unwrap_or(char::REPLACEMENT_CHARACTER),
        _ => char::from(byte),
    }
}

/// Normalizes a name for comparisons: no accents, lower case, one kind of blank and apostrophe.
pub(super) fn fold(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for character in name.chars().flat_map(char::to_lowercase) {
        match character {
            '\u{e0}'..='\u{e5}' => folded.push('a'),
            '\u{e7}' => folded.push('c'),
            '\u{e8}'..='\u{eb}' => folded.push('e'),
            '\u{ec}'..='\u{ef}' => folded.push('i'),
            '\u{f1}' => folded.push('n'),
            '\u{f2}'..='\u{f6}' => folded.push('o'),
            '\u{f9}'..='\u{fc}' => folded.push('u'),
            '\u{df}' => folded.push_str("ss"),
            '\u{2018}' | '\u{2019}' => folded.push('\''),
            '\u{2013}' | '\u{2014}' => folded.push('-'),
            blank if blank.is_whitespace() => {
                if !folded.ends_with(' ') {
                    folded.push(' ');
                }
            }
            other => folded.push(other),
        }
    }
    folded.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_in_every_encoding() {
        let text = "Verf\u{fc}gbare Bytes";
        let mut little = vec![0xff, 0xfe];
        let mut big = vec![0xfe, 0xff];
        for unit in text.encode_utf16() {
            little.extend(unit.to_le_bytes());
            big.extend(unit.to_be_bytes());
        }
        let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
        let ansi: &[u8] = b"Verf\xfcgbare Bytes";
        for bytes in [text.as_bytes(), &marked, &little, &big, ansi] {
            assert_eq!(decoded(bytes), text);
        }
        // An odd length, and an apostrophe and an unused code point of Windows-1252.
        assert_eq!(decoded(b"\xff\xfea\0b"), "a");
        assert_eq!(decoded(b"d\x92inactivit\xe9\x81"), "d\u{2019}inactivit\u{e9}\u{fffd}");
    }

    fn decoded(bytes: &[u8]) -> String {
        let mut line = Vec::new();
        to_utf8(bytes).unwrap().read_to_end(&mut line).unwrap();
        decode_line(&line)
    }

    #[test]
    fn a_pair_of_utf_16_may_lie_across_two_pieces() {
        let text = format!("{}\u{1f600}\u{1f600}", "x".repeat(4095));
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
        assert_eq!(decoded(&bytes), text);
        assert_eq!(decoded(&bytes[..bytes.len() - 2]).chars().last(), Some('\u{fffd}'));
    }

    #[test]
    fn names_are_compared_without_accents_capitals_and_kinds_of_blanks() {
        let pairs = [
            ("\u{c9}critures disque/s", "ecritures disque/s"),
            ("% d\u{2019}inactivit\u{e9}", "% d'inactivite"),
            ("Verz\u{f6}gertes  Schreiben \u{2013} Seiten/s ", "verzogertes schreiben - seiten/s"),
            ("P\u{e1}ginas/s", "paginas/s"),
            ("Gr\u{f6}\u{df}e\u{a0}x", "grosse x"),
        ];
        for (name, folded) in pairs {
            assert_eq!(fold(name), folded);
        }
    }
}
