//! Interface between the methods of I/O (io_uring, plain calls) and their targets: one file or
//! device, or the files of a directory.
//!
//! Invariant: the store that executes an operation requests one [`Transfer`] after the other until
//! the operation is complete, and then calls [`Backing::finish`] exactly once.

use crate::frames::ArenaFrames;
use larder_core::store::{Geometry, StoreError, StoreOp};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A system call that an operation needs next.
#[derive(Debug)]
pub(super) struct Transfer {
    descriptor: RawFd,
    /// Owner that keeps the descriptor open until the call completes.
    keep: Option<Arc<OwnedFd>>,
    pub(super) offset: u64,
    /// Length in bytes; 0 for a call that moves none.
    pub(super) len: u64,
    /// True if a flush includes metadata.
    pub(super) metadata: bool,
}

impl Transfer {
    /// Creates a transfer through a descriptor that stays open as long as the backing exists.
    pub(super) fn by(descriptor: &impl AsRawFd, offset: u64, len: u64) -> Self {
        Transfer { descriptor: descriptor.as_raw_fd(), keep: None, offset, len, metadata: false }
    }

    pub(super) fn keeping(shared: Arc<OwnedFd>, offset: u64, len: u64) -> Self {
        let descriptor = shared.as_raw_fd();
        Transfer { descriptor, keep: Some(shared), offset, len, metadata: false }
    }

    pub(super) fn flushing(shared: Arc<OwnedFd>, metadata: bool) -> Self {
        Transfer { metadata, ..Transfer::keeping(shared, 0, 0) }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        debug_assert!(
            self.keep.as_ref().is_none_or(|shared| shared.as_raw_fd() == self.descriptor)
        );
        // SAFETY: a kept descriptor is open as long as the transfer exists; any other one belongs
        // to the backing, which outlives the operations on it.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// The target of operations.
pub(super) trait Backing: Send + Sync {
    fn geometry(&self) -> Geometry;

    /// Prepares an operation before its first transfer. Returns the result if the operation needs
    /// no transfer.
    fn begin(
        &self,
        frames: &ArenaFrames,
        op: &mut StoreOp<ArenaFrames>,
    ) -> Option<Result<(), StoreError>>;

    /// Returns the transfer for the bytes of an operation from `done` on; `None` if the rest lies
    /// behind the end of the data: it reads as zeros, and is not written.
    fn next_transfer(
        &self,
        op: &StoreOp<ArenaFrames>,
        done: u64,
    ) -> Result<Option<Transfer>, StoreError>;

    /// Returns the error of a failed system call; `None` if the caller must request the next
    /// transfer again.
    fn call_failed(&self, op: &StoreOp<ArenaFrames>, error: &io::Error) -> Option<StoreError>;

    /// Returns the error of a call that moved no bytes; `None` as for [`Backing::next_transfer`].
    fn no_progress(&self, op: &StoreOp<ArenaFrames>) -> Option<StoreError>;

    /// Completes an operation that [`Backing::begin`] did not complete.
    fn finish(&self, op: &StoreOp<ArenaFrames>, result: &mut Result<(), StoreError>);
}
