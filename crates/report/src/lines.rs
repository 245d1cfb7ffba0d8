//! Lines of a foreign text file, read one at a time.
//!
//! Invariant: memory is bounded by the longest line, and no line is longer than [`LINE_BYTES_MAX`].

use std::io::{self, BufRead};

/// Maximum bytes of one line, without its end. A log with 100,000 counters has lines of 10 MB.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A line that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line has no end within [`LINE_BYTES_MAX`].
    #[error("line {line}: the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong {
        /// Line number, counting from 1.
        line: u64,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A reader of lines.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Returns a reader that starts at the first line of a file.
    pub fn new(from: R) -> Self {
        Lines { from, line: Vec::new(), number: 0 }
    }

    /// Reads the next line and returns its number, counting from 1, and its bytes without the line
    /// break; `None` at the end of the file.
    ///
    /// # Errors
    /// If the line is too long, or the file cannot be read.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, LineError> {
        self.line.clear();
        self.number += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let taken = io::Read::take(&mut self.from, limit).read_until(b'\n', &mut self.line)?;
        if taken == 0 {
            return Ok(None);
        }
        if self.line.pop_if(|last| *last == b'\n').is_some() {
            self.line.pop_if(|last| *last == b'\r');
        } else if self.line.len() > LINE_BYTES_MAX {
            return Err(LineError::TooLong { line: self.number });
        }
        Ok(Some((self.number, &self.line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_their_numbers_and_without_their_ends() {
        let mut lines = Lines::new(&b"a\r\n\nb"[..]);
        for known in [(1, &b"a"[..]), (2, b""), (3, b"b")] {
            assert_eq!(lines.next_line().unwrap(), Some(known));
        }
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_takes_more_memory() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'x')));
        let refused = lines.next_line().unwrap_err();
        assert!(matches!(refused, LineError::TooLong { line: 1 }), "{refused}");
        assert!(lines.line.capacity() <= 4 * LINE_BYTES_MAX);
    }
}
