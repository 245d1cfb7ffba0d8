//! Parsing of text lines, byte by byte: no allocation, no conversion to strings, no floating point.
//!
//! Invariant: a field that is not exactly a number gives `None`; nothing is guessed or truncated.

use super::decode::{Decode, DecodeOutput, Decoded, FormatError};
use super::{Op, TraceError};
use memchr::{memchr, memchr_iter};

/// Decoder from the lines of a text format to records. A function that decodes a line is one.
pub(super) trait LineFormat: Send {
    /// Decodes one non-empty line without its line ending; adds nothing if it is not a request.
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded;

    /// Returns true if the first line is always a header, whatever its content.
    fn has_header(&self) -> bool {
        false
    }

    /// Emits buffered records at the end of the file.
    fn end(&mut self, _out: &mut DecodeOutput<'_>) -> Decoded {
        Ok(())
    }

    /// Returns notes for the user on the reading.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<F: FnMut(&[u8], &mut DecodeOutput<'_>) -> Decoded + Send> LineFormat for F {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        self(line, out)
    }
}

/// A decoder of a [`LineFormat`].
pub(super) struct Lines<F> {
    format: F,
    /// Number of lines before the window.
    line: u64,
}

impl<F: LineFormat> Lines<F> {
    pub(super) fn new(format: F) -> Self {
        Lines { format, line: 0 }
    }

    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), TraceError> {
        self.line += 1;
        let number = self.line;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_header = || number == 1 && (self.format.has_header() || is_heading(line));
        if line.is_empty() || is_header() {
            return Ok(());
        }
        match self.format.line(line, out) {
            Ok(()) => Ok(()),
            Err(reason) => out.bad.add(|| format!("line {number}"), reason),
        }
    }
}

impl<F: LineFormat> Decode for Lines<F> {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        let mut from = 0;
        for end in memchr_iter(b'\n', bytes) {
            self.line(&bytes[from..end], out)?;
            from = end + 1;
        }
        if out.at_end && from < bytes.len() {
            self.line(&bytes[from..], out)?;
            from = bytes.len();
        }
        Ok(from)
    }

    fn end(&mut self, out: &mut DecodeOutput<'_>) -> Result<(), TraceError> {
        match self.format.end(out) {
            Ok(()) => Ok(()),
            Err(reason) => out.bad.add(|| "the end".to_owned(), reason),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.format.notes()
    }
}

/// Fields of a line that are to be taken: between commas, or between blanks.
pub(super) struct Fields<'a, const DELIMITER: u8> {
    /// The bytes behind the fields that were taken.
    pub(super) rest: &'a [u8],
}

/// Fields between commas.
pub(super) type Commas<'a> = Fields<'a, b','>;
/// Words between spaces or tabs.
pub(super) type Words<'a> = Fields<'a, b' '>;

impl<'a, const DELIMITER: u8> Fields<'a, DELIMITER> {
    #[inline]
    pub(super) fn of(line: &'a [u8]) -> Self {
        Fields { rest: line }
    }

    /// Takes a field as it is; empty at the end of the line.
    #[inline]
    pub(super) fn text(&mut self) -> &'a [u8] {
        match DELIMITER {
            b' ' => take_word(&mut self.rest),
            _ => take_field(&mut self.rest, DELIMITER),
        }
    }

    /// Takes a whole number.
    #[inline]
    pub(super) fn number(&mut self, reason: FormatError) -> Result<u64, FormatError> {
        let number = match DELIMITER {
            b' ' => whole_number(self.text()),
            _ => take_number(&mut self.rest, DELIMITER),
        };
        number.ok_or(reason)
    }

    /// Takes a whole number that is a name.
    #[inline]
    pub(super) fn digits(&mut self, reason: FormatError) -> Result<&'a [u8], FormatError> {
        let field = self.text();
        whole_number(field).map(|_| field).ok_or(reason)
    }

    /// Takes seconds with decimals as nanoseconds.
    #[inline]
    pub(super) fn seconds(&mut self, reason: FormatError) -> Result<u64, FormatError> {
        take_decimal(&mut self.rest, DELIMITER, 9).ok_or(reason)
    }

    /// Takes `R`, `r`, `Read`, `W`, `w`, `Write`.
    #[inline]
    pub(super) fn op(&mut self, reason: FormatError) -> Result<Op, FormatError> {
        read_or_write(self.text()).ok_or(reason)
    }

    /// Takes one of two texts: that of a read, or that of a write.
    #[inline]
    pub(super) fn one_of(
        &mut self,
        ops: [&[u8]; 2],
        reason: FormatError,
    ) -> Result<Op, FormatError> {
        let field = self.text();
        let at = ops.iter().position(|op| *op == field).ok_or(reason)?;
        Ok([Op::Read, Op::Write][at])
    }
}

/// Returns true if a first line names columns: it begins with a letter or a quote and has no digit.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let first = line.first().copied().unwrap_or_default();
    (first.is_ascii_alphabetic() || first == b'"') && !line.iter().any(u8::is_ascii_digit)
}

/// Number of digits that never overflow 64 bits.
const SAFE_DIGITS: usize = 19;

/// Returns the number at the front of `rest`, and its length; `None` if there is none or it is too
/// large.
#[inline]
pub(super) fn leading_number(rest: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut len) = (0_u64, 0);
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = if len < SAFE_DIGITS {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))?
        };
        len += 1;
    }
    (len > 0).then_some((value, len))
}

/// Takes a number and the delimiter after it, unless the line ends there.
#[inline]
pub(super) fn take_number(rest: &mut &[u8], delimiter: u8) -> Option<u64> {
    let (value, len) = leading_number(rest)?;
    skip_past(rest, len, delimiter)?;
    Some(value)
}

/// Takes a decimal number as a whole number of 10^-`scale`, and the delimiter after it. Digits
/// beyond the scale are truncated. `1.5` with a scale of 3 is 1,500.
#[inline]
pub(super) fn take_decimal(rest: &mut &[u8], delimiter: u8, scale: usize) -> Option<u64> {
    let (value, len) = leading_decimal(rest, b'.', scale)?;
    skip_past(rest, len, delimiter)?;
    Some(value)
}

/// Returns the decimal number at the front of `rest`, and its length.
#[inline]
pub(super) fn leading_decimal(rest: &[u8], point: u8, scale: usize) -> Option<(u64, usize)> {
    const POWERS: [u64; 10] =
        [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
    let (whole, mut len) = leading_number(rest)?;
    let mut value = whole.checked_mul(POWERS[scale])?;
    if rest.get(len) == Some(&point) {
        len += 1;
        let mut place = scale;
        for &byte in &rest[len..] {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            if place > 0 {
                place -= 1;
                value = value.checked_add(u64::from(digit) * POWERS[place])?;
            }
            len += 1;
        }
    }
    Some((value, len))
}

/// Skips `len` bytes and the delimiter after them; `None` if another byte follows.
#[inline]
fn skip_past(rest: &mut &[u8], len: usize, delimiter: u8) -> Option<()> {
    match rest.get(len) {
        None => *rest = &[],
        Some(&byte) if byte == delimiter => *rest = &rest[len + 1..],
        Some(_) => return None,
    }
    Some(())
}

/// Takes the bytes before the delimiter, or the rest of the line.
#[inline]
pub(super) fn take_field<'a>(rest: &mut &'a [u8], delimiter: u8) -> &'a [u8] {
    let whole: &'a [u8] = rest;
    if let Some(end) = whole.iter().position(|&byte| byte == delimiter) {
        *rest = &whole[end + 1..];
        &whole[..end]
    } else {
        *rest = &[];
        whole
    }
}

/// Takes a field of a CSV line, with or without quotes; a doubled quote stays doubled. `None` if
/// the quotes do not match.
pub(super) fn take_quoted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let field: &'a [u8] = rest;
    if field.first() != Some(&b'"') {
        return Some(take_field(rest, b','));
    }
    let mut end = 1;
    loop {
        end += memchr(b'"', field.get(end..)?)?;
        match field.get(end + 1) {
            Some(b'"') => end += 2,
            Some(b',') | None => {
                *rest = field.get(end + 2..).unwrap_or_default();
                return Some(&field[1..end]);
            }
            Some(_) => return None,
        }
    }
}

/// Takes the next word between spaces or tabs; empty at the end of the line.
#[inline]
pub(super) fn take_word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let whole: &'a [u8] = rest;
    let Some(from) = whole.iter().position(|byte| !is_blank(byte)) else {
        *rest = &[];
        return &[];
    };
    let word = &whole[from..];
    let end = word.iter().position(is_blank).unwrap_or(word.len());
    *rest = &word[end..];
    &word[..end]
}

/// Returns the value of a field that is a number and nothing else.
#[inline]
pub(super) fn whole_number(field: &[u8]) -> Option<u64> {
    leading_number(field).and_then(|(value, len)| (len == field.len()).then_some(value))
}

/// Parses `R`, `r`, `Read`, `W`, `w`, `Write`.
#[inline]
pub(super) fn read_or_write(field: &[u8]) -> Option<Op> {
    match field {
        b"R" | b"r" | b"Read" | b"read" | b"READ" => Some(Op::Read),
        b"W" | b"w" | b"Write" | b"write" | b"WRITE" => Some(Op::Write),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_none() {
        let number = |text: &str| whole_number(text.as_bytes());
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        assert_eq!(number("18446744073709551616"), None);
        assert_eq!(number("0000000000000000000000007"), Some(7));
        for wrong in ["", "-1", "1 ", "x", "1x", "99999999999999999999999"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn decimals_are_fixed_point() {
        let decimal = |text: &str| take_decimal(&mut text.as_bytes(), b',', 9);
        assert_eq!(decimal("1455505300.142305136,x"), Some(1_455_505_300_142_305_136));
        assert_eq!(decimal("0.5"), Some(500_000_000));
        assert_eq!(decimal("7"), Some(7_000_000_000));
        assert_eq!(decimal("1.0000000019"), Some(1_000_000_001));
        for wrong in [".5", "1.5.5", "1e5", "18446744074.0", "-1"] {
            assert_eq!(decimal(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn words_and_fields_end_with_the_line() {
        let mut rest: &[u8] = b"  a \t bc";
        let words = [(); 3].map(|()| take_word(&mut rest).to_vec());
        assert_eq!(words, [b"a".to_vec(), b"bc".to_vec(), Vec::new()]);
        let mut rest: &[u8] = b"a,,b";
        let fields = [(); 4].map(|()| take_field(&mut rest, b',').to_vec());
        assert_eq!(fields, [b"a".to_vec(), Vec::new(), b"b".to_vec(), Vec::new()]);
    }
}
