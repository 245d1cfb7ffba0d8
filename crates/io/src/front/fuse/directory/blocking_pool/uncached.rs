//! Data of files that a rule excludes from the cache, and parts of files without a segment: read
//! from the directory and written to it directly.
//!
//! Invariant: no data of such a file or part is cached, so the data in the directory is current.

use super::super::super::abi::{FallocateIn, TransferIn};
use super::super::answer::{AnswerResult, empty_reply};
use crate::store::files::SourceFile;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Reads up to the requested number of bytes, or to the end of the file.
pub(super) fn read(file: &SourceFile, args: &TransferIn) -> AnswerResult {
    let mut bytes = vec![0; args.size as usize];
    let len = fill(file, args.offset, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes.into())
}

/// Fills `bytes` from an offset on, as far as the file reaches; returns how many bytes that is.
pub(super) fn fill(file: &SourceFile, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
    let directory_file = file.buffered(false)?;
    let mut len = 0;
    while len < bytes.len() {
        match rustix::io::pread(&*directory_file, &mut bytes[len..], offset + len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

pub(super) fn write(file: &SourceFile, offset: u64, payload: &[u8]) -> Result<(), Errno> {
    let directory_file = file.buffered(true)?;
    let mut len = 0;
    while len < payload.len() {
        len += rustix::io::pwrite(&*directory_file, &payload[len..], offset + len as u64)?;
    }
    Ok(())
}

pub(super) fn allocate(file: &SourceFile, args: &FallocateIn) -> AnswerResult {
    let mode = FallocateFlags::from_bits_retain(args.mode);
    rustix::fs::fallocate(file.buffered(true)?, mode, args.offset, args.length)?;
    Ok(empty_reply())
}
