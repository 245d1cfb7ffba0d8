//! A store on plain calls: executes in submit. Slow and simple; for kernels that deny io_uring. Its
//! ways of flushing, discarding and zeroing serve the io_uring store too.

use super::error::store_error;
use super::file::OpenedFile;
use crate::frames::ArenaFrames;
use larder_core::clock::{Clock, Nanos};
use larder_core::frames::Frames;
use larder_core::store::{
    Buffer, Geometry, Segment, Store, StoreDone, StoreError, StoreErrorKind, StoreOp, StoreOpKind,
};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Zeros are written in pieces of this size where the store cannot make them itself.
const ZEROS: usize = 1 << 20;

/// A store on plain calls.
pub struct PlainStore {
    file: Arc<OpenedFile>,
    clock: Arc<dyn Clock>,
    done: Vec<StoreDone<ArenaFrames>>,
}

impl fmt::Debug for PlainStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainStore").field("file", &self.file).finish_non_exhaustive()
    }
}

impl PlainStore {
    /// A store on `file`; `clock` measures how long operations take.
    #[must_use]
    pub fn new(file: Arc<OpenedFile>, clock: Arc<dyn Clock>) -> Self {
        PlainStore { file, clock, done: Vec::new() }
    }
}

impl Store<ArenaFrames> for PlainStore {
    fn geometry(&self) -> Geometry {
        self.file.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        let result = execute(&self.file, frames, &mut op);
        let finished_at = self.clock.now();
        self.done.push(StoreDone { op, result, started_at: now, finished_at });
    }

    fn reap(&mut self, _now: Nanos, _frames: &ArenaFrames, done: &mut Vec<StoreDone<ArenaFrames>>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.done.is_empty()).then_some(0)
    }
}

/// Executes an operation with plain calls.
pub(super) fn execute(
    file: &OpenedFile,
    frames: &ArenaFrames,
    op: &mut StoreOp<ArenaFrames>,
) -> Result<(), StoreError> {
    let (kind, offset, len) = (op.kind, op.offset, op.len);
    let failed = |error: io::Error| store_error(&file.path, kind, offset, len, &error);
    match kind {
        StoreOpKind::Read => read(file, frames, op),
        StoreOpKind::Write { fua } => {
            file.check_length(kind)?;
            write(file, frames, op, fua).map_err(failed)
        }
        StoreOpKind::Flush => rustix::fs::fdatasync(file.main()).map_err(|e| failed(e.into())),
        StoreOpKind::Discard => punch(file, offset, len).map_err(|e| failed(e.into())),
        StoreOpKind::Zero { keep_allocated } => {
            file.check_length(kind)?;
            zero(file, offset, len, keep_allocated).map_err(failed)
        }
    }
}

fn read(
    file: &OpenedFile,
    frames: &ArenaFrames,
    op: &mut StoreOp<ArenaFrames>,
) -> Result<(), StoreError> {
    let descriptor = file.descriptor(op.offset, op.len);
    let mut at = op.offset;
    for Segment { buffer, offset, len } in &mut op.segments {
        let Buffer::Owned(own) = buffer else { unreachable!("a read owns its frames") };
        let range = *offset as usize..(*offset + *len) as usize;
        let bytes = &mut frames.arena().bytes_mut(own)[range];
        let mut read = 0;
        while read < bytes.len() {
            match rustix::io::pread(descriptor, &mut bytes[read..], at + read as u64) {
                Ok(0) => {
                    file.check_length(StoreOpKind::Read)?;
                    return Err(StoreError::new(
                        StoreErrorKind::Short,
                        format!("read {} at {at}: nothing came", file.path.display()),
                    ));
                }
                Ok(n) => read += n,
                Err(Errno::INTR) => {}
                Err(error) => {
                    let len = u64::from(*len);
                    let error = io::Error::from(error);
                    return Err(store_error(&file.path, StoreOpKind::Read, at, len, &error));
                }
            }
        }
        at += u64::from(*len);
    }
    Ok(())
}

fn write(
    file: &OpenedFile,
    frames: &ArenaFrames,
    op: &StoreOp<ArenaFrames>,
    fua: bool,
) -> io::Result<()> {
    let descriptor = file.descriptor(op.offset, op.len);
    let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let mut at = op.offset;
    for Segment { buffer, offset, len } in &op.segments {
        let Buffer::Pinned(pin) = buffer else { unreachable!("a write pins its frames") };
        let range = *offset as usize..(*offset + *len) as usize;
        let mut bytes = &frames.arena().bytes(pin)[range];
        while !bytes.is_empty() {
            match rustix::io::pwritev2(descriptor, &[io::IoSlice::new(bytes)], at, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    debug_assert_eq!(frames.count(), frames.arena().frames(), "frames are the arena's");
    Ok(())
}

fn punch(file: &OpenedFile, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file.main(), flags, offset, len)
}

fn zero(file: &OpenedFile, offset: u64, len: u64, keep_allocated: bool) -> io::Result<()> {
    let flags = if keep_allocated {
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
    } else {
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
    };
    match rustix::fs::fallocate(file.main(), flags, offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, offset, len),
        other => Ok(other?),
    }
}

fn write_zeros(file: &OpenedFile, mut offset: u64, len: u64) -> io::Result<()> {
    let buffer = vec![0u8; ZEROS + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    let end = offset + len;
    while offset < end {
        let piece = usize::try_from((end - offset).min(ZEROS as u64)).expect("at most 1 MiB");
        let descriptor = file.descriptor(offset, piece as u64);
        let zeros = &buffer[skip..skip + piece];
        match rustix::io::pwrite(descriptor, zeros, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => offset += n as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
