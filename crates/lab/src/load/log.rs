//! The log of a load, in order: one record for each request before it is sent, and for each reply
//! after it was received.
//!
//! The head and each record take 24 bytes, little-endian; each is passed to the kernel in one write
//! under a lock. So the records have one order over all connections: a reply that is logged before
//! a request was received before that request was sent.
//!
//! | bytes | head | record |
//! |---|---|---|
//! | 0..8 | magic | id |
//! | 8..16 | seed | first sector |
//! | 16..24 | sectors of the export | sectors (4), kind (4) |

use super::sector::SECTOR_BYTES;
use super::{LoadError, io_error};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const MAGIC: [u8; 8] = *b"lrdload1";
const RECORD_BYTES: usize = 24;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A write is about to be sent; with FUA it is durable once it is acknowledged.
    Write { id: u64, first: u64, sectors: u32, fua: bool },
    /// A write was acknowledged.
    Written { id: u64 },
    /// A flush is about to be sent.
    Flush { id: u64 },
    /// A flush was acknowledged.
    Flushed { id: u64 },
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let (id, first, sectors, kind) = match self {
            Record::Write { id, first, sectors, fua } => (id, first, sectors, 1 + u32::from(fua)),
            Record::Written { id } => (id, 0, 0, 3),
            Record::Flush { id } => (id, 0, 0, 4),
            Record::Flushed { id } => (id, 0, 0, 5),
        };
        let last = u64::from(kind) << 32 | u64::from(sectors);
        encode_record([id, first, last])
    }

    fn of_bytes(bytes: [u8; RECORD_BYTES]) -> Result<Self, LoadError> {
        let [id, first, last] = numbers(bytes);
        let sectors = u32::try_from(last & u64::from(u32::MAX)).expect("32 bits");
        Ok(match last >> 32 {
            1 => Record::Write { id, first, sectors, fua: false },
            2 => Record::Write { id, first, sectors, fua: true },
            3 => Record::Written { id },
            4 => Record::Flush { id },
            5 => Record::Flushed { id },
            kind => {
                return Err(LoadError::Refused(format!("understand a record of kind {kind}")));
            }
        })
    }
}

fn encode_record(numbers: [u64; 3]) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    for (bytes, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
    bytes
}

fn numbers(bytes: [u8; RECORD_BYTES]) -> [u64; 3] {
    let (words, _) = bytes.as_chunks();
    [0, 1, 2].map(|at| u64::from_le_bytes(words[at]))
}

/// A log that is being written; `None` for a load that is not checked later.
#[derive(Debug)]
pub struct Log(Option<Mutex<File>>);

impl Log {
    /// Returns a disabled log.
    #[must_use]
    pub fn none() -> Self {
        Log(None)
    }

    /// Begins the log of a load with this seed on an export of `bytes` bytes, in an empty file.
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin(mut file: File, seed: u64, bytes: u64) -> Result<Self, LoadError> {
        let sectors = bytes / SECTOR_BYTES as u64;
        file.write_all(&encode_record([u64::from_le_bytes(MAGIC), seed, sectors]))
            .map_err(io_error(WRITING))?;
        Ok(Log(Some(Mutex::new(file))))
    }

    /// Appends a record: before its request is sent, or after its reply was received.
    pub(super) fn add(&self, record: Record) -> Result<(), LoadError> {
        let Some(file) = &self.0 else { return Ok(()) };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&record.to_bytes()).map_err(io_error(WRITING))
    }
}

const WRITING: &str = "write the log";

/// A log that is being read: its records, in order.
#[derive(Debug)]
pub(super) struct Records {
    file: BufReader<File>,
    pub(super) seed: u64,
    /// Sectors of the export.
    pub(super) sectors: u64,
}

impl Records {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let name = path.display();
        let file = File::open(path).map_err(io_error(format!("open the log {name}")))?;
        let mut file = BufReader::new(file);
        let head = next(&mut file)?.unwrap_or_default();
        let [magic, seed, sectors] = numbers(head);
        if magic != u64::from_le_bytes(MAGIC) {
            let text = format!("read {name}: it is not a log of larder load");
            return Err(LoadError::Refused(text));
        }
        Ok(Records { file, seed, sectors })
    }
}

impl Iterator for Records {
    type Item = Result<Record, LoadError>;

    fn next(&mut self) -> Option<Result<Record, LoadError>> {
        let bytes = next(&mut self.file).transpose()?;
        Some(bytes.and_then(Record::of_bytes))
    }
}

/// Returns the next complete record. A partial record at the end is from a killed load, whose
/// request was never sent.
fn next(file: &mut BufReader<File>) -> Result<Option<[u8; RECORD_BYTES]>, LoadError> {
    let mut bytes = [0; RECORD_BYTES];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(io_error("read the log")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_and_other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let records = [
            Record::Write { id: 7 << 40 | 1, first: 1 << 50, sectors: 512, fua: false },
            Record::Write { id: 2, first: 0, sectors: 1, fua: true },
            Record::Written { id: 2 },
            Record::Flush { id: 3 },
            Record::Flushed { id: 3 },
        ];
        let log = Log::begin(File::create(&path).unwrap(), 42, 1000 * 512).unwrap();
        for record in records {
            log.add(record).unwrap();
        }
        let read = Records::open(&path).unwrap();
        assert_eq!((read.seed, read.sectors), (42, 1000));
        assert_eq!(read.map(Result::unwrap).collect::<Vec<_>>(), records);
        std::fs::write(&path, "another file, long enough").unwrap();
        assert!(Records::open(&path).unwrap_err().to_string().contains("not a log"));
    }
}
