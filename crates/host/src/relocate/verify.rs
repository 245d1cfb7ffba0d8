//! Comparison of the content of a file before and after a move.

use super::RelocateError;
use crate::direct_read::AlignedBuffer;
use crate::syscall::move_data;
use foldhash::quality::FixedState;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The content is the same.
    Same,
    /// Another process opened or changed the file, so that its content was not compared.
    ChangedMeanwhile,
    /// The content differs, and no other process changed the file.
    Differs,
}

/// Returns a checksum of the content, which is read from the device, past the page cache, if the
/// file system can. `check` is called before each read of a MiB.
pub(super) fn checksum(
    file: &File,
    check: impl FnMut() -> Result<(), RelocateError>,
) -> Result<u64, RelocateError> {
    let is_direct = move_data::set_direct(file, true).is_ok();
    let sum = sum(file, check);
    if is_direct {
        move_data::set_direct(file, false)
            .map_err(|error| RelocateError::Failed("end its direct I/O", error))?;
    }
    sum
}

fn sum(
    file: &File,
    mut check: impl FnMut() -> Result<(), RelocateError>,
) -> Result<u64, RelocateError> {
    let mut memory = AlignedBuffer::new();
    let buffer = memory.bytes();
    let (mut hasher, mut at) = (FixedState::with_seed(1).build_hasher(), 0);
    loop {
        check()?;
        let len = match file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            len => len.map_err(|error| RelocateError::Failed("read it", error))?,
        };
        hasher.write(&buffer[..len]);
        at += len as u64;
        if len < buffer.len() {
            hasher.write_u64(at);
            return Ok(hasher.finish());
        }
    }
}

/// Compares a file before and after its move.
pub(super) fn compare(before: (&Metadata, u64), after: (&Metadata, u64)) -> Verified {
    let times = |found: &Metadata| {
        (found.len(), found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
    };
    if before.1 == after.1 && before.0.len() == after.0.len() {
        Verified::Same
    } else if times(before.0) == times(after.0) {
        Verified::Differs
    } else {
        Verified::ChangedMeanwhile
    }
}
