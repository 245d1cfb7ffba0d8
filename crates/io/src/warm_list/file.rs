//! The file of a list: a header, and a compressed payload with the identity of the store and the
//! ranges.

use super::identity::{StaleReason, StoreIdentity, StoreKind};
use crate::owned_file::{self, FileError, FileReaders, Replacement};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"LARDERW\n";
pub(super) const VERSION: u16 = 1;
pub(super) const HEADER_BYTES: usize = 32;
/// Maximum length of a list: room for more ranges than fit into any cache.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum length of a path or address; a longer one is truncated.
const PLACE_BYTES_MAX: usize = u16::MAX as usize;
/// Maximum length of a store in blocks (2^60 bytes).
const BLOCKS_MAX: u64 = 1 << 48;
/// Level of zstd: lists are written every few minutes and read once.
const LEVEL: i32 = 3;

/// A reason why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The kernel refused to read it.
    #[error("read the list {}: {source}", path.display())]
    Read {
        /// The list.
        path: PathBuf,
        /// The kernel's reason.
        source: FileError,
    },
    /// The kernel refused to write it.
    #[error("write the list {}: {source}", path.display())]
    Write {
        /// The list.
        path: PathBuf,
        /// The kernel's reason.
        source: FileError,
    },
    /// It is not a list of this store.
    #[error("use the list {}: {reason}", path.display())]
    Unusable {
        /// The list.
        path: PathBuf,
        /// The reason.
        reason: UnusableList,
    },
}

/// A reason why bytes are not a list of a store.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableList {
    /// They are not a list.
    #[error("it is not a list of resident blocks")]
    Foreign,
    /// A later version of Larder has written them.
    #[error("its version is {0}, and {VERSION} is the latest known here")]
    Version(u16),
    /// They have changed since they were written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// They belong to another store.
    #[error("it is stale: {0}")]
    Stale(StaleReason),
}

/// Replaces the list at `path` as a whole: afterwards the file is the old list or the new one, even
/// if the process or the machine ends meanwhile. Only its owner may read it.
///
/// # Errors
/// If it cannot be written. The old list remains.
pub fn save(path: &Path, store: &StoreIdentity, ranges: &[Range<u64>]) -> Result<(), ListError> {
    let write = || -> Result<(), FileError> {
        let bytes = to_bytes(store, ranges)?;
        let new = Replacement::begin(path, ".new", 0o600)?;
        new.file().write_all(&bytes)?;
        new.finish()
    };
    write().map_err(|source| ListError::Write { path: path.to_owned(), source })
}

/// Returns the first ranges of the list at `path`, at most `ranges_max`, in blocks of 4 KiB and in
/// the order in which they were saved; none if there is no list. `now` is the current identity of
/// the store.
///
/// # Errors
/// If the list cannot be read, is not a list, has a later version, is damaged, or belongs to
/// another store. The caller then continues without it.
pub fn load(
    path: &Path,
    now: &StoreIdentity,
    ranges_max: usize,
) -> Result<Option<Vec<Range<u64>>>, ListError> {
    let bytes = match owned_file::read(path, FileReaders::Public, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(FileError::System(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(FileError::TooLong(_)) => return Err(unusable(path, UnusableList::Foreign)),
        Err(source) => return Err(ListError::Read { path: path.to_owned(), source }),
    };
    parse(path, &bytes, now, ranges_max).map(Some)
}

/// Returns the first ranges of the list with these bytes; see [`load`].
///
/// # Errors
/// As [`load`], with `path` in the message.
pub fn parse(
    path: &Path,
    bytes: &[u8],
    now: &StoreIdentity,
    ranges_max: usize,
) -> Result<Vec<Range<u64>>, ListError> {
    from_bytes(bytes, now, ranges_max).map_err(|reason| unusable(path, reason))
}

fn unusable(path: &Path, reason: UnusableList) -> ListError {
    ListError::Unusable { path: path.to_owned(), reason }
}

pub(super) fn to_bytes(store: &StoreIdentity, ranges: &[Range<u64>]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(vec![0; HEADER_BYTES], LEVEL)?;
    let place = &store.place[..store.place.len().min(PLACE_BYTES_MAX)];
    let place_bytes = u16::try_from(place.len()).expect("it was cut off");
    encoder.write_all(&[store.kind as u8])?;
    encoder.write_all(&place_bytes.to_le_bytes())?;
    encoder.write_all(place)?;
    for number in [store.length, store.device, store.inode, store.changed_ns] {
        encoder.write_all(&number.to_le_bytes())?;
    }
    encoder.write_all(&(ranges.len() as u64).to_le_bytes())?;
    let mut last = 0;
    for range in ranges {
        put_varint(&mut encoder, zigzag(range.start.wrapping_sub(last)))?;
        put_varint(&mut encoder, range.end - range.start)?;
        last = range.end;
    }
    let mut bytes = encoder.finish()?;
    let payload = &bytes[HEADER_BYTES..];
    let too_long = |_| io::Error::other("it would be longer than 4 GiB");
    let payload_bytes = u32::try_from(payload.len()).map_err(too_long)?;
    let payload_crc = crc32c::crc32c(payload);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&payload_bytes.to_le_bytes());
    bytes[16..20].copy_from_slice(&payload_crc.to_le_bytes());
    let header_crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..HEADER_BYTES].copy_from_slice(&header_crc.to_le_bytes());
    Ok(bytes)
}

/// Returns the ranges of a list that belongs to the store `now`.
pub(super) fn from_bytes(
    bytes: &[u8],
    now: &StoreIdentity,
    ranges_max: usize,
) -> Result<Vec<Range<u64>>, UnusableList> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) || magic.is_empty() {
        return Err(UnusableList::Foreign);
    }
    let Some((header, payload)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(UnusableList::Damaged("it is cut short"));
    };
    let word = |at: usize| {
        u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes of a header"))
    };
    // The version is checked first, since the header of a later version may differ.
    let version = u16::from_le_bytes([header[8], header[9]]);
    if version != VERSION {
        return Err(UnusableList::Version(version));
    }
    if crc32c::crc32c(&header[..28]) != word(28) {
        return Err(UnusableList::Damaged("the checksum of its header is wrong"));
    }
    if u64::from(word(12)) != payload.len() as u64 {
        return Err(UnusableList::Damaged("it is cut short, or something follows it"));
    }
    if crc32c::crc32c(payload) != word(16) {
        return Err(UnusableList::Damaged("its checksum is wrong"));
    }
    let malformed =
        |_: io::Error| UnusableList::Damaged("its payload is not in the form it should have");
    let decoder = zstd::stream::read::Decoder::with_buffer(payload).map_err(malformed)?;
    let mut decoder = BufReader::new(decoder);
    identity(&mut decoder).map_err(malformed)?.check(now).map_err(UnusableList::Stale)?;
    ranges(&mut decoder, ranges_max).map_err(malformed)
}

fn identity(from: &mut impl Read) -> io::Result<StoreIdentity> {
    let kind = usize::from(array::<1>(from)?[0]);
    let kind = *StoreKind::ALL.get(kind).ok_or(io::ErrorKind::InvalidData)?;
    let mut place = vec![0; usize::from(u16::from_le_bytes(array(from)?))];
    from.read_exact(&mut place)?;
    let mut number = || Ok::<_, io::Error>(u64::from_le_bytes(array(from)?));
    let (length, device, inode, changed_ns) = (number()?, number()?, number()?, number()?);
    Ok(StoreIdentity { kind, place, length, device, inode, changed_ns })
}

fn ranges(from: &mut impl BufRead, ranges_max: usize) -> io::Result<Vec<Range<u64>>> {
    let count = u64::from_le_bytes(array(from)?);
    let most = usize::try_from(count).unwrap_or(usize::MAX).min(ranges_max);
    let mut ranges = Vec::new();
    let mut last = 0_u64;
    while ranges.len() < most {
        let start = last.wrapping_add(unzigzag(take_varint(from)?));
        let end = start.checked_add(take_varint(from)?);
        let end = end.filter(|&end| start < end && end <= BLOCKS_MAX);
        let end = end.ok_or(io::ErrorKind::InvalidData)?;
        ranges.push(start..end);
        last = end;
    }
    Ok(ranges)
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Encodes a difference modulo 2^64 as a number that is small if the difference is near 0.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Writes seven bits per byte, the lowest first; the top bit is set if more bytes follow.
fn put_varint(to: &mut impl Write, mut number: u64) -> io::Result<()> {
    let (mut bytes, mut count) = ([0; 10], 0);
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        bytes[count] = if number == 0 { low } else { low | 0x80 };
        count += 1;
        if number == 0 {
            return to.write_all(&bytes[..count]);
        }
    }
}

fn take_varint(from: &mut impl Read) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = array(from)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
