//! The seam between the ways of doing operations (io_uring, plain calls) and what they are done on:
//! one file or device, or the files of a directory.
//!
//! Invariant: whoever does an operation asks for one [`Transfer`] after the other until it is over,
//! and says so by [`Backing::ended`] exactly once.

use crate::frames::ArenaFrames;
use larder_core::store::{Geometry, StoreError, StoreOp};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A system call that an operation needs next.
#[derive(Debug)]
pub(super) struct Transfer {
    descriptor: RawFd,
    /// What keeps the descriptor open until the call is over.
    keep: Option<Arc<OwnedFd>>,
    /// Where in the file.
    pub(super) offset: u64,
    /// Bytes; for what moves none, 0.
    pub(super) len: u64,
    /// Whether a flush is about more than data.
    pub(super) metadata: bool,
}

impl Transfer {
    /// One by a descriptor that stays open as long as the backing is there.
    pub(super) fn by(descriptor: &impl AsRawFd, offset: u64, len: u64) -> Self {
        Transfer { descriptor: descriptor.as_raw_fd(), keep: None, offset, len, metadata: false }
    }

    /// One by a shared descriptor.
    pub(super) fn keeping(shared: Arc<OwnedFd>, offset: u64, len: u64) -> Self {
        let descriptor = shared.as_raw_fd();
        Transfer { descriptor, keep: Some(shared), offset, len, metadata: false }
    }

    /// A flush by a shared descriptor.
    pub(super) fn flushing(shared: Arc<OwnedFd>, metadata: bool) -> Self {
        Transfer { metadata, ..Transfer::keeping(shared, 0, 0) }
    }

    /// The descriptor.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        debug_assert!(self.keep.as_ref().is_none_or(|kept| kept.as_raw_fd() == self.descriptor));
        // SAFETY: what is kept is open as long as the transfer is there; else the backing has it,
        // which outlives the operations on it.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// What operations are done on.
pub(super) trait Backing: Send + Sync {
    /// What it is as a whole.
    fn geometry(&self) -> Geometry;

    /// Looks at an operation before anything else is done about it; how it ended, if nothing else
    /// is to be done.
    fn begin(
        &self,
        frames: &ArenaFrames,
        op: &mut StoreOp<ArenaFrames>,
    ) -> Option<Result<(), StoreError>>;

    /// What is to be done for the bytes of an operation from `done` on; `None` if the rest is
    /// nothing that anybody has: it reads as zeros, and need not be written.
    fn next(&self, op: &StoreOp<ArenaFrames>, done: u64) -> Result<Option<Transfer>, StoreError>;

    /// What a call of the kernel that failed means; `None` if it is to be asked for the next one
    /// again.
    fn failed(&self, op: &StoreOp<ArenaFrames>, error: &io::Error) -> Option<StoreError>;

    /// What it means that the kernel moved nothing; `None` as for [`Backing::next`].
    fn nothing_came(&self, op: &StoreOp<ArenaFrames>) -> Option<StoreError>;

    /// An operation that [`Backing::begin`] did not end is over.
    fn ended(&self, op: &StoreOp<ArenaFrames>, result: &mut Result<(), StoreError>);
}
