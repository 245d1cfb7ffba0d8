//! Backing stores.
//!
//! The cache moves an operation into the store, and the store returns it with its result when it is
//! complete; until then the store owns the frames that it reads into or writes from. So the memory
//! of an operation in flight cannot be reused, and a lost operation is detected by its missing
//! frames.
//!
//! A plain store executes in [`Store::submit`]; an io_uring store submits; a modeled disk queues
//! on the virtual clock. This module also has the test stores: memory, faulty, crash, delay.

mod crash;
mod delay;
mod faulty;
mod memory;

pub use crash::{CrashDisk, CrashStore};
pub use delay::DelayStore;
pub use faulty::{Fault, FaultPlan, FaultyStore};
pub use memory::{MemoryStore, SparseBytes};

use crate::clock::Nanos;
use crate::frames::Frames;
use std::fmt;

/// A store operation. Offsets and lengths are in bytes and multiples of the granule, except that
/// the last read or write may end at the end of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOpKind {
    /// Read into owned frames.
    Read,
    /// Write from pinned frames. With `fua`, the data is on stable storage at completion.
    Write {
        /// Force unit access: stable at completion, without a flush.
        fua: bool,
    },
    /// At completion, every earlier completed operation in the range is on stable storage; an empty
    /// range means the whole store. A store may always flush everything.
    Flush,
    /// The content of the range is no longer needed; later reads may return anything.
    Discard,
    /// The range reads as zeros afterwards. With `keep_allocated`, the store makes no hole.
    Zero {
        /// The space stays allocated, as with NBD's `NO_HOLE`.
        keep_allocated: bool,
    },
}

/// The memory of a segment: owned when a store reads into it, pinned when it writes from it.
#[derive(Debug)]
pub enum Buffer<F: Frames> {
    /// A frame to read into.
    Owned(F::WritePin),
    /// A frame to write from.
    Pinned(F::Pin),
}

impl<F: Frames> Buffer<F> {
    /// Returns the frame of a completed read.
    pub(crate) fn into_owned(self) -> F::WritePin {
        match self {
            Buffer::Owned(write_pin) => write_pin,
            Buffer::Pinned(_) => unreachable!("a read owns its frames"),
        }
    }
}

/// A part of a frame in an operation.
#[derive(Debug)]
pub struct Segment<F: Frames> {
    /// The frame, owned or pinned.
    pub buffer: Buffer<F>,
    /// The first byte inside the frame.
    pub offset: u32,
    /// The length in bytes.
    pub len: u32,
}

/// One operation on a store.
#[derive(Debug)]
pub struct StoreOp<F: Frames> {
    /// A tag chosen by the cache, unique among the operations in flight on one store.
    pub tag: u64,
    /// The kind of the operation.
    pub kind: StoreOpKind,
    /// The first byte of the range.
    pub offset: u64,
    /// The length of the range in bytes; for reads and writes the sum of the segments.
    pub len: u64,
    /// The memory, in the order of the range; empty for flush, discard and zero.
    pub segments: Vec<Segment<F>>,
    /// The time at which the cache queued it.
    pub queued_at: Nanos,
}

/// A completed operation.
#[derive(Debug)]
pub struct StoreCompletion<F: Frames> {
    /// The operation, with its frames.
    pub op: StoreOp<F>,
    /// The result. After a failed read the content of the frames is undefined; after a failed write
    /// the store may hold any mix of old and new data.
    pub result: Result<(), StoreError>,
    /// The time at which the store started it.
    pub started_at: Nanos,
    /// The time at which it was complete.
    pub finished_at: Nanos,
}

/// The cause of a store error, as far as the handling depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum StoreErrorKind {
    /// The device or file system reported an error.
    Io,
    /// The store has no free space.
    NoSpace,
    /// The store cannot be written.
    ReadOnly,
    /// The store refuses the operation to this process, or to all processes (an immutable file).
    NotPermitted,
    /// The store is shorter than when it was opened.
    Short,
    /// The store no longer exists.
    Gone,
    /// The store is currently unreachable. It has not lost any completed write, and has them all
    /// when it is reachable again: a flush that fails with this error is not final.
    Away,
    /// The store does not support this operation.
    Unsupported,
    /// The operation conflicts with one in progress; it was not submitted to the store.
    Busy,
}

/// An error of a store: its kind and a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[error("{message}")]
pub struct StoreError {
    /// The kind of the error.
    pub kind: StoreErrorKind,
    /// The operation, the object, and the cause.
    pub message: String,
}

impl StoreError {
    /// Creates an error of `kind` with its message.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        StoreError { kind, message: message.into() }
    }
}

/// Properties of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Geometry {
    /// The length in bytes.
    pub length: u64,
    /// The smallest unit of reads and writes: 512 or 4,096 bytes.
    pub granule: u32,
    /// True if the store cannot be written.
    pub read_only: bool,
}

/// A backing store. One thread at a time drives it.
pub trait Store<F: Frames>: Send {
    /// Returns its properties; they do not change while it is open.
    fn geometry(&self) -> Geometry;
    /// Accepts an operation. It may complete at once or later; [`Store::reap`] returns it.
    fn submit(&mut self, now: Nanos, frames: &F, op: StoreOp<F>);
    /// Appends the operations that are complete at `now`.
    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>);
    /// Returns the number of operations accepted and not yet reaped.
    fn in_flight(&self) -> usize;
    /// Returns the time of the next completion if the store knows it: modeled and delayed stores
    /// do, devices do not.
    fn next_event(&self) -> Option<Nanos> {
        None
    }
}

impl<F: Frames, S: Store<F> + ?Sized> Store<F> for Box<S> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &F, op: StoreOp<F>) {
        (**self).submit(now, frames, op);
    }

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        (**self).reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        (**self).next_event()
    }
}

impl fmt::Display for StoreOpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreOpKind::Read => "read",
            StoreOpKind::Write { .. } => "write",
            StoreOpKind::Flush => "flush",
            StoreOpKind::Discard => "discard",
            StoreOpKind::Zero { .. } => "zero",
        })
    }
}
