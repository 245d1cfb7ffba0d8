//! A process that the kernel may have to wait for when it is short of memory: one that serves the
//! disk, file system or swap that memory is written to.
//!
//! Without precautions it could wait for itself: its memory is written out to a disk that it serves
//! itself, or an allocation of its own waits for such a write. [`lock_memory`] is against the one,
//! [`be_spared`] against the other. Where the latter is not allowed, [`reserve`] sees to it that
//! what is used all the time is there before it is needed; then only what grows later can wait.

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Bytes of small pieces of memory that are there from the beginning: the writes that wait for
/// room, and what requests and tables need.
const HEAP_BYTES: usize = 16 << 20;
/// So large a piece comes from the heap, and not from a mapping of its own that goes again.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of its stack that a thread has used at once; none uses more later.
const STACK_BYTES: usize = 128 << 10;

static RESERVED: AtomicBool = AtomicBool::new(false);

/// Lets the C library make one heap for each processor instead of eight: what the threads of
/// connections have freed is used again by others, and does not stay resident in a heap of its own.
/// To be called before threads are started. Only the C library of GNU has this setting.
pub fn limit_heaps() {
    #[cfg(target_env = "gnu")]
    {
        let heaps = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        set_allocator(libc::M_ARENA_MAX, i32::try_from(heaps).unwrap_or(i32::MAX));
    }
}

#[cfg(target_env = "gnu")]
fn set_allocator(setting: libc::c_int, value: libc::c_int) {
    // SAFETY: it changes settings of the allocator, which takes its own lock.
    let _is_known = unsafe { libc::mallopt(setting, value) };
}

/// Has memory there before it is needed: the heap, tables as they are made, and the stacks of the
/// threads that serve. To be called before any of them is.
pub fn reserve() {
    larder_mem::populate_large_pieces();
    // One heap for all threads, which never shrinks. Only the C library of GNU has such settings.
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
        (libc::M_MMAP_THRESHOLD, 2 << 20),
    ] {
        set_allocator(setting, value);
    }
    let pieces: Vec<_> = (0..HEAP_BYTES / PIECE_BYTES).map(|_| vec![1u8; PIECE_BYTES]).collect();
    drop(std::hint::black_box(pieces));
    RESERVED.store(true, Ordering::Relaxed);
}

/// Has the stack of this thread there, if memory was reserved.
#[expect(clippy::large_stack_arrays, reason = "that the stack is used is what it is for")]
pub(crate) fn reserve_stack() {
    if RESERVED.load(Ordering::Relaxed) {
        std::hint::black_box(&[1u8; STACK_BYTES]);
    }
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
