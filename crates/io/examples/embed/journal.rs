//! A journal: records in a log, and an index of their ends.
//!
//! The index must never refer to a missing record. So both are written lazily, in two write-order
//! groups, and each change of the index is ordered after the log so far. No writer waits for the
//! store, and yet every crash leaves a valid journal.
//!
//! Layout: the first MiB is the index, 8 bytes per record: its end in the log, or 0 after the
//! last one. The log begins at the second MiB. A record is its number, its length and a checksum, 8
//! bytes each, and its bytes.

use larder_core::mapping::Access;
use larder_core::write_order::GroupId;
use larder_io::embed::{CachedVolume, EmbedError, Handle};

/// Start of the log; also the length of the index.
pub(crate) const LOG: u64 = 1 << 20;
const ENTRY: u64 = 8;
const HEADER: u64 = 24;
/// A block of the index is mapped as a whole.
const BLOCK: u64 = 4096;

/// An error of a journal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The cache or the store.
    #[error("cannot {0}")]
    Cache(#[from] EmbedError),
    /// The index refers to a missing record.
    #[error("record {number} ends at {end} by the index, and is not there: {what}")]
    Broken { number: u64, end: u64, what: &'static str },
    /// No room is left.
    #[error("the journal is full")]
    Full,
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    handle: Handle,
    log: GroupId,
    index: GroupId,
    /// Records, and where the last one ends.
    len: u64,
    end: u64,
}

/// The 64-bit FNV-1a hash (Fowler, Noll, Vo 1991).
fn checksum(number: u64, bytes: &[u8]) -> u64 {
    let all = number.to_le_bytes().into_iter().chain(bytes.iter().copied());
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn words<const N: usize>(handle: &mut Handle, offset: u64) -> Result<[u64; N], EmbedError> {
    let mut bytes = vec![0; N * 8];
    handle.read(offset, &mut bytes)?;
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    Ok(std::array::from_fn(word))
}

impl Journal {
    /// Opens the journal of a volume, an empty one in a volume of zeros, and looks at every record.
    pub(crate) fn open(volume: &CachedVolume) -> Result<Self, JournalError> {
        let mut handle = volume.handle()?;
        let (mut len, mut end) = (0, LOG);
        while len < LOG / ENTRY {
            let [next] = words(&mut handle, len * ENTRY)?;
            if next == 0 {
                break;
            }
            let broken = |what| JournalError::Broken { number: len, end: next, what };
            if next < end + HEADER || next > volume.geometry().length {
                return Err(broken("it ends before it begins"));
            }
            let [number, bytes, sum] = words(&mut handle, end)?;
            if number != len || bytes != next - end - HEADER {
                return Err(broken("another header is there"));
            }
            let mut record = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            if !record.is_empty() {
                handle.read(end + HEADER, &mut record)?;
            }
            if checksum(number, &record) != sum {
                return Err(broken("its checksum is another"));
            }
            (len, end) = (len + 1, next);
        }
        let (log, index) = (volume.group(), volume.group());
        Ok(Journal { handle, log, index, len, end })
    }

    /// Returns the number of records.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends a record. It is in the journal after a crash or it is not; [`Journal::flush`] makes
    /// sure.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let next = self.end + HEADER + bytes.len() as u64;
        if next > self.handle.volume().geometry().length || self.len == LOG / ENTRY {
            return Err(JournalError::Full);
        }
        let header = [self.len, bytes.len() as u64, checksum(self.len, bytes)];
        let mut record: Vec<u8> = header.into_iter().flat_map(u64::to_le_bytes).collect();
        record.extend(bytes);
        self.handle.write_in(self.log, self.end, &record)?;
        self.handle.volume().order(self.log, self.index)?;
        let at = self.len * ENTRY;
        let block = usize::try_from(BLOCK).expect("a block");
        let mut change = self.handle.map_for_change(at / BLOCK * BLOCK, block, Access::Change)?;
        change.write(at, &next.to_le_bytes());
        self.handle.unpin(change, Some(self.index))?;
        (self.len, self.end) = (self.len + 1, next);
        Ok(())
    }

    /// Returns when everything is on stable storage.
    pub(crate) fn flush(&mut self) -> Result<(), JournalError> {
        Ok(self.handle.flush()?)
    }
}
