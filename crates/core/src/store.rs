//! Stores: what lies behind the cache.
//!
//! An operation is moved into the store and comes back, with its result, when it is done; until
//! then the store holds the frames it reads into or writes from. So memory cannot be reused under
//! an operation in flight, and an operation cannot be lost without its frames being missed.
//!
//! A plain store executes in [`Store::submit`]; io_uring submits; a modelled disk queues on the
//! virtual clock. The doubles for tests live here: memory, faulty, crash, delay.

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

/// What a store is asked to do. Offsets and lengths are in bytes and multiples of the granule,
/// except that the last read or write may end at the end of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOpKind {
    /// Read into owned frames.
    Read,
    /// Write from pinned frames. With `fua`, it is on stable storage when done.
    Write {
        /// Force unit access: stable when done, without a flush.
        fua: bool,
    },
    /// Everything that was done before is on stable storage when this is done: in the range of the
    /// operation, or everywhere if that is empty. A store may always flush everything.
    Flush,
    /// The range's content is no longer needed; it may read as anything afterwards.
    Discard,
    /// The range reads as zeros afterwards. With `keep_allocated`, no hole is made.
    Zero {
        /// The space stays allocated, as NBD's `NO_HOLE` asks.
        keep_allocated: bool,
    },
}

/// The memory of a segment: owned when a store reads into it, pinned when it writes from it.
#[derive(Debug)]
pub enum Buffer<F: Frames> {
    /// To be read into.
    Owned(F::WritePin),
    /// To be written from.
    Pinned(F::Pin),
}

/// A part of one frame that takes part in an operation.
#[derive(Debug)]
pub struct Segment<F: Frames> {
    /// The frame.
    pub buffer: Buffer<F>,
    /// First byte inside the frame.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// One operation on a store.
#[derive(Debug)]
pub struct StoreOp<F: Frames> {
    /// Chosen by the cache, unique among operations in flight on one store.
    pub tag: u64,
    /// What to do.
    pub kind: StoreOpKind,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range; for reads and writes the sum of the segments.
    pub len: u64,
    /// Memory, in the order of the range; empty for flush, discard and zero.
    pub segments: Vec<Segment<F>>,
    /// When the cache queued it.
    pub queued_at: Nanos,
}

/// An operation that is done.
#[derive(Debug)]
pub struct StoreDone<F: Frames> {
    /// The operation, with its frames.
    pub op: StoreOp<F>,
    /// How it ended. After an error of a read the frames hold nothing of use; after an error of a
    /// write the store may hold any mix of old and new.
    pub result: Result<(), StoreError>,
    /// When the store took it.
    pub started_at: Nanos,
    /// When it was done.
    pub finished_at: Nanos,
}

/// Why a store failed, as far as it changes what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum StoreErrorKind {
    /// The device or file system reported an error.
    Io,
    /// No space is left behind the store.
    NoSpace,
    /// The store cannot be written.
    ReadOnly,
    /// The store refuses the operation to this process, or to all (an immutable file).
    NotPermitted,
    /// The store is shorter than it was when it was opened.
    Short,
    /// The store is gone.
    Gone,
    /// The store cannot be reached now. It has lost nothing of what it was given, and will have it
    /// when it can be reached again: a flush that fails so is not final.
    Away,
    /// The store does not know this operation.
    Unsupported,
    /// It cannot be done beside what is going on; the store has not been asked.
    Busy,
}

/// An error of a store: its kind and one sentence fragment that can follow "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[error("{message}")]
pub struct StoreError {
    /// What it means.
    pub kind: StoreErrorKind,
    /// What was being done, where, and what came back.
    pub message: String,
}

impl StoreError {
    /// An error of `kind` with its sentence.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        StoreError { kind, message: message.into() }
    }
}

/// What a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Geometry {
    /// Length in bytes.
    pub length: u64,
    /// The smallest unit it can read or write: 512 or 4,096.
    pub granule: u32,
    /// Whether it cannot be written.
    pub read_only: bool,
}

/// What lies behind a cache. One thread at a time drives it.
pub trait Store<F: Frames>: Send {
    /// What it is; does not change while it is open.
    fn geometry(&self) -> Geometry;
    /// Takes an operation. It may be done at once or later; [`Store::reap`] tells.
    fn submit(&mut self, now: Nanos, frames: &F, op: StoreOp<F>);
    /// Appends what has been done up to `now`.
    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreDone<F>>);
    /// Operations taken and not yet reaped.
    fn in_flight(&self) -> usize;
    /// When the next operation will be done, where the store knows: models and delays do, devices
    /// do not.
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

    fn reap(&mut self, now: Nanos, frames: &F, done: &mut Vec<StoreDone<F>>) {
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
