//! A process that the kernel may have to wait for when it is short of memory: one that serves the
//! disk, file system or swap that memory is written to.
//!
//! Without precautions it could wait for itself: its memory is written out to a disk that it serves
//! itself, or an allocation of its own waits for such a write. [`lock_memory`] is against the one,
//! [`be_spared`] against the other.

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;

/// Why a precaution cannot be taken. Each message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum PrecautionError {
    /// Memory cannot be locked.
    #[error(
        "lock all memory: {0}; it takes root, CAP_IPC_LOCK, or no limit (ulimit -l unlimited, \
         LimitMEMLOCK=infinity)"
    )]
    Lock(io::Error),
    /// The kernel will not spare us.
    #[error("be spared when the kernel writes memory out: {0}; it takes CAP_SYS_RESOURCE")]
    Spare(io::Error),
}

/// Keeps all pages of the process in memory once they are there. What is mapped and not used yet,
/// such as addresses to grow into, takes no memory by it.
///
/// # Errors
/// If the process may not lock so much.
pub fn lock_memory() -> Result<(), PrecautionError> {
    // With a limit it might succeed now, and addresses to grow into be refused later.
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    let is_capable =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !is_unlimited && !is_capable {
        return Err(PrecautionError::Lock(Errno::PERM.into()));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).map_err(|error| PrecautionError::Lock(error.into()))
}

/// Lets no allocation that the kernel makes for this thread, and for those that it starts from now
/// on, wait for I/O.
///
/// # Errors
/// If the process may not ask for that.
pub fn be_spared() -> Result<(), PrecautionError> {
    let spared = rustix::process::configure_io_flusher_behavior(true);
    spared.map_err(|error| PrecautionError::Spare(error.into()))
}
