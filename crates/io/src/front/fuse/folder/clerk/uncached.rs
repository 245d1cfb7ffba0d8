//! Data of files that a rule says not to cache: read from the folder and written to it as asked.
//!
//! Invariant: nothing of such a file is in the cache, so what the folder says of it is right.

use super::super::super::abi::{FallocateIn, TransferIn, WriteOut};
use super::super::data::SYNCHRONOUS;
use super::super::requests::{Answered, done};
use crate::store::files::SourceFile;
use rustix::fs::FallocateFlags;
use zerocopy::IntoBytes;

/// Reads what there is, up to as much as was asked for.
pub(super) fn read(file: &SourceFile, asked: &TransferIn) -> Answered {
    let folder_file = file.buffered(false)?;
    let mut bytes = vec![0; asked.size as usize];
    let mut len = 0;
    while len < bytes.len() {
        match rustix::io::pread(&*folder_file, &mut bytes[len..], asked.offset + len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    bytes.truncate(len);
    Ok(bytes.into())
}

/// Writes, and makes it stable if the file was opened so.
pub(super) fn write(file: &SourceFile, asked: &TransferIn, payload: &[u8]) -> Answered {
    let folder_file = file.buffered(true)?;
    let mut len = 0;
    while len < payload.len() {
        len += rustix::io::pwrite(&*folder_file, &payload[len..], asked.offset + len as u64)?;
    }
    if asked.flags & SYNCHRONOUS != 0 {
        rustix::fs::fdatasync(&*folder_file)?;
    }
    let size = u32::try_from(len).expect("at most 1 MiB");
    Ok(WriteOut { size, padding: 0 }.as_bytes().to_vec().into())
}

/// Allocates, punches or zeroes.
pub(super) fn allocate(file: &SourceFile, asked: &FallocateIn) -> Answered {
    let mode = FallocateFlags::from_bits_retain(asked.mode);
    rustix::fs::fallocate(file.buffered(true)?, mode, asked.offset, asked.length)?;
    Ok(done())
}
