//! A store on plain calls, which executes operations in `submit`. It is slow and simple, for
//! kernels that deny io_uring. The io_uring store uses its function for the rest of a short read.

use super::backing::{Backing, Transfer};
use crate::frames::ArenaFrames;
use larder_core::clock::{Clock, Nanos};
use larder_core::store::{
    Buffer, Geometry, Segment, Store, StoreCompletion, StoreError, StoreOp, StoreOpKind,
};
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::sync::Arc;

pub(super) struct PlainStore {
    backing: Arc<dyn Backing>,
    clock: Arc<dyn Clock>,
    done: Vec<StoreCompletion<ArenaFrames>>,
}

impl PlainStore {
    /// Creates a store on a backing; `clock` measures the duration of operations.
    pub(super) fn new(backing: Arc<dyn Backing>, clock: Arc<dyn Clock>) -> Self {
        PlainStore { backing, clock, done: Vec::new() }
    }
}

impl Store<ArenaFrames> for PlainStore {
    fn geometry(&self) -> Geometry {
        self.backing.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        let result = self.backing.begin(frames, &mut op).unwrap_or_else(|| {
            let mut result = execute(&*self.backing, frames, &mut op);
            self.backing.finish(&op, &mut result);
            result
        });
        let finished_at = self.clock.now();
        self.done.push(StoreCompletion { op, result, started_at: now, finished_at });
    }

    fn reap(
        &mut self,
        _now: Nanos,
        _frames: &ArenaFrames,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.done.is_empty()).then_some(0)
    }
}

/// Executes a read, write or flush with plain calls.
fn execute(
    backing: &dyn Backing,
    frames: &ArenaFrames,
    op: &mut StoreOp<ArenaFrames>,
) -> Result<(), StoreError> {
    let mut done = 0;
    while let Some(transfer) = backing.next_transfer(op, done)? {
        match call(frames, op, done, &transfer) {
            Ok(_) if op.kind == StoreOpKind::Flush => return Ok(()),
            Ok(0) => match backing.no_progress(op) {
                Some(error) => return Err(error),
                None => break,
            },
            Ok(moved) => {
                done += moved as u64;
                if done == op.len {
                    return Ok(());
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => {
                if let Some(error) = backing.call_failed(op, &io::Error::from(error)) {
                    return Err(error);
                }
            }
        }
    }
    zero_rest(frames, op, done);
    Ok(())
}

/// Makes one system call for an operation of which `done` bytes are complete.
fn call(
    frames: &ArenaFrames,
    op: &mut StoreOp<ArenaFrames>,
    done: u64,
    transfer: &Transfer,
) -> Result<usize, Errno> {
    let descriptor = transfer.descriptor();
    let mut skip = usize::try_from(done).expect("at most an operation");
    let kind = op.kind;
    if kind == StoreOpKind::Flush {
        let flush = if transfer.metadata { rustix::fs::fsync } else { rustix::fs::fdatasync };
        return flush(descriptor).map(|()| 0);
    }
    let most = usize::try_from(transfer.len).expect("at most an operation");
    for Segment { buffer, offset, len } in &mut op.segments {
        let len = *len as usize;
        if skip >= len {
            skip -= len;
            continue;
        }
        let start = *offset as usize + skip;
        let range = start..start + (len - skip).min(most);
        return match buffer {
            Buffer::Owned(pin) => {
                let bytes = &mut frames.arena().bytes_mut(pin)[range];
                rustix::io::pread(descriptor, bytes, transfer.offset)
            }
            Buffer::Pinned(pin) => {
                let stable = kind == StoreOpKind::Write { fua: true };
                let flags = if stable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let bytes = &frames.arena().bytes(pin)[range];
                let bytes = [io::IoSlice::new(bytes)];
                rustix::io::pwritev2(descriptor, &bytes, transfer.offset, flags)
            }
        };
    }
    Ok(0)
}

/// Fills the memory of a read from byte `done` on with zeros.
pub(super) fn zero_rest(frames: &ArenaFrames, op: &mut StoreOp<ArenaFrames>, done: u64) {
    let mut skip = usize::try_from(done).expect("at most an operation");
    for Segment { buffer, offset, len } in &mut op.segments {
        let len = *len as usize;
        let skipped = skip.min(len);
        skip -= skipped;
        if let Buffer::Owned(pin) = buffer {
            let start = *offset as usize;
            frames.arena().bytes_mut(pin)[start + skipped..start + len].fill(0);
        }
    }
}
