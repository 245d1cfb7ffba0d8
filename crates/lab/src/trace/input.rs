//! Input of trace bytes: any stream, decompressed if its first bytes show a compression format,
//! through a window that holds the bytes to decode.
//!
//! Invariant: the window grows to [`WINDOW_MAX`] and no further, for any input.

use super::TraceError;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Initial size of the window, enough for a short trace.
const WINDOW_FIRST: usize = 4 << 10;
/// Normal size of the window, read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// Maximum size of the window: a longer line or block is an error.
pub(super) const WINDOW_MAX: usize = 16 << 20;
/// Maximum history window of a zstd stream, as a power of two: 128 MiB, which is also the limit of
/// the zstd command without `--long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A stream with a window.
pub(super) struct Input {
    name: String,
    stream: Box<dyn Read + Send>,
    compressed: Option<&'static str>,
    window: Vec<u8>,
    /// Bytes of the window that are not decoded yet: `from..to`.
    from: usize,
    to: usize,
    /// Decompressed bytes before `from`.
    consumed: u64,
    at_end: bool,
}

/// Counts the bytes that are read from the file, for a progress display.
struct CountingReader<R> {
    inner: R,
    count: Option<Arc<AtomicU64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes_read = self.inner.read(buf)?;
        if let Some(count) = &self.count {
            count.fetch_add(bytes_read as u64, Ordering::Relaxed);
        }
        Ok(bytes_read)
    }
}

impl Input {
    /// Creates the input; a stream that begins as zstd or gzip is decompressed.
    pub(super) fn new(
        name: &str,
        stream: Box<dyn Read + Send>,
        count: Option<Arc<AtomicU64>>,
    ) -> Result<Self, TraceError> {
        let mut stream = CountingReader { inner: stream, count };
        let mut head = Vec::new();
        let wrap = |source| TraceError::Io { name: name.to_owned(), source };
        stream.by_ref().take(4).read_to_end(&mut head).map_err(wrap)?;
        let (zstd, gzip) = (head == [0x28, 0xb5, 0x2f, 0xfd], head.starts_with(&[0x1f, 0x8b]));
        let whole = io::Cursor::new(head).chain(stream);
        let (stream, compressed): (Box<dyn Read + Send>, _) = if zstd {
            let mut decoder = zstd::stream::read::Decoder::new(whole).map_err(wrap)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(wrap)?;
            (Box::new(decoder), Some("zstd"))
        } else if gzip {
            (Box::new(flate2::read::MultiGzDecoder::new(whole)), Some("gzip"))
        } else {
            (Box::new(whole), None)
        };
        let (name, window) = (name.to_owned(), Vec::new());
        Ok(Input { name, stream, compressed, window, from: 0, to: 0, consumed: 0, at_end: false })
    }

    /// Returns the name of the file, or of another input.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes in the window.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.window[self.from..self.to]
    }

    /// Returns the position of the window, in decompressed bytes.
    pub(super) fn position(&self) -> u64 {
        self.consumed
    }

    /// Returns true if the stream ends with the window.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    /// Consumes bytes at the front of the window.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.to - self.from, "no more is passed than is there");
        self.from += count;
        self.consumed += count as u64;
    }

    /// Fills the window, which grows if it is full. Reads until the window holds `min_bytes`, the
    /// window is full, or the stream ends.
    pub(super) fn fill(&mut self, min_bytes: usize) -> Result<(), TraceError> {
        self.window.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let mut size_max = self.window.len().max(WINDOW_BYTES);
        if self.to == size_max {
            if self.to >= WINDOW_MAX {
                return Err(self.bad(format!("a line or block is longer than {WINDOW_MAX} bytes")));
            }
            size_max *= 2;
        }
        while !self.at_end && self.to < min_bytes.min(size_max) {
            if self.to == self.window.len() {
                self.window.resize((2 * self.to).clamp(WINDOW_FIRST, size_max), 0);
            }
            match self.stream.read(&mut self.window[self.to..]) {
                Ok(0) => self.at_end = true,
                Ok(count) => self.to += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.read_error(source)),
            }
        }
        Ok(())
    }

    /// Returns the error of a failed read: of the decompression, or of the system.
    fn read_error(&self, source: io::Error) -> TraceError {
        match self.compressed {
            Some(kind) if source.raw_os_error().is_none() => {
                let place = self.consumed + (self.to - self.from) as u64;
                TraceError::Bad {
                    name: self.name.clone(),
                    place: format!("byte {place} of what it decompresses to"),
                    reason: format!("the {kind} stream is damaged or cut short ({source})"),
                }
            }
            _ => TraceError::Io { name: self.name.clone(), source },
        }
    }

    /// Returns an error at the front of the window.
    pub(super) fn bad(&self, reason: impl Into<String>) -> TraceError {
        TraceError::Bad {
            name: self.name.clone(),
            place: format!("byte {}", self.consumed),
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn input(bytes: Vec<u8>) -> Input {
        Input::new("test", Box::new(io::Cursor::new(bytes)), None).unwrap()
    }

    #[test]
    fn compressed_streams_are_told_by_their_first_bytes() {
        let plain = b"some text ".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let packed =
            [plain.clone(), zstd::encode_all(&plain[..], 1).unwrap(), gzip.finish().unwrap()];
        for bytes in packed {
            let mut whole = input(bytes.clone());
            whole.fill(usize::MAX).unwrap();
            assert_eq!(whole.bytes(), plain);
            assert!(whole.at_end());
            assert!(whole.window.len() <= 16 << 10, "a short trace has a small window");
            // Compressed streams that are truncated give an error.
            let mut cut = input(bytes[..bytes.len() / 2].to_vec());
            assert_eq!(cut.fill(usize::MAX).is_err(), bytes != plain);
        }
    }

    #[test]
    fn the_window_does_not_grow_beyond_its_limit() {
        let mut input = Input::new("test", Box::new(io::repeat(b'x')), None).unwrap();
        let error = loop {
            if let Err(error) = input.fill(usize::MAX) {
                break error;
            }
        };
        assert!(error.to_string().contains("longer than"), "{error}");
        assert!(input.window.len() <= WINDOW_MAX);
    }
}
