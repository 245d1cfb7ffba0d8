//! Lines of a script as the original reads them.
//!
//! Invariants: a line has at most 254 characters, and a longer one continues as another line; the
//! last character is dropped, whatever it is, so the end of a longer line and a last line without a
//! line break lose a character; a byte of 0 ends a line.

use std::io::{self, BufRead};

/// Maximum number of characters of one line, including the line break.
const LINE_MAX: usize = 254;

/// Returns the next line, or `None` at the end.
///
/// # Errors
/// The input cannot be read.
pub(super) fn next(input: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    while line.len() < LINE_MAX {
        let available = input.fill_buf()?;
        if available.is_empty() {
            break;
        }
        let limit = available.len().min(LINE_MAX - line.len());
        let end = available[..limit].iter().position(|&byte| byte == b'\n');
        let consumed = end.map_or(limit, |end| end + 1);
        line.extend_from_slice(&available[..consumed]);
        input.consume(consumed);
        if end.is_some() {
            break;
        }
    }
    if line.is_empty() {
        return Ok(None);
    }
    let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
    line.truncate(end.saturating_sub(1));
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<String> {
        // A buffer of three bytes, so that lines arrive in parts.
        let mut input = io::BufReader::with_capacity(3, text);
        let next = || next(&mut input).unwrap();
        std::iter::from_fn(next).map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn the_last_character_of_a_line_is_dropped() {
        assert_eq!(lines(b"set seed 1\r\n\nrun"), ["set seed 1\r", "", "ru"]);
        assert_eq!(lines(b""), [""; 0]);
        assert_eq!(lines(b"ab\0cd\nx\n"), ["a", "x"]);
    }

    #[test]
    fn long_lines_are_cut() {
        let long = [&[b'a'; 300][..], b"\n"].concat();
        let cut = lines(&long);
        assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [253, 46]);
        let just = [&[b'a'; 253][..], b"\nb\n"].concat();
        assert_eq!(lines(&just).iter().map(String::len).collect::<Vec<_>>(), [253, 1]);
    }
}
