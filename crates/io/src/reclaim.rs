//! Precautions for a process that the kernel may have to wait for when it is short of memory: one
//! that serves the disk, file system or swap to which the kernel writes memory.
//!
//! Without precautions the process could wait for itself: the kernel writes its memory to a disk
//! that it serves itself, or an allocation of the process waits for such a write. [`lock_memory`]
//! prevents the former, [`be_spared`] the latter. Where the latter is not permitted, [`reserve`]
//! makes the memory that is always in use resident before it is needed; then only later growth can
//! wait.

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// A precaution that failed. Each message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    /// Memory cannot be locked.
    #[error(
        "lock all memory: {0}; it takes root, CAP_IPC_LOCK, or no limit (ulimit -l unlimited, \
         LimitMEMLOCK=infinity)"
    )]
    Lock(io::Error),
    /// The kernel refuses to exempt this process.
    #[error(
        "set PR_SET_IO_FLUSHER, so that the kernel does not wait for this process when it \
             writes memory out: {0} (it needs CAP_SYS_RESOURCE)"
    )]
    Spare(io::Error),
}

/// Keeps all pages of the process in memory once they are resident. Mapped memory that is unused,
/// such as reserved address space, takes no memory.
///
/// # Errors
/// If the process may not lock that much memory.
pub fn lock_memory() -> Result<(), ReclaimError> {
    // With a limit the call might succeed now, and growth into reserved address space fail later.
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    let is_capable =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !is_unlimited && !is_capable {
        return Err(ReclaimError::Lock(Errno::PERM.into()));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).map_err(|error| ReclaimError::Lock(error.into()))
}

/// Bytes of small allocations that are resident from the start: writes that wait for room, and
/// memory of requests and tables.
const HEAP_BYTES: usize = 16 << 20;
/// Size of an allocation that still comes from the heap, and not from a separate mapping.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of its stack that a thread touches when it starts; no thread uses more later.
const STACK_BYTES: usize = 128 << 10;

static RESERVED: AtomicBool = AtomicBool::new(false);

/// Lets the C library create one heap per processor instead of eight: memory that the threads of
/// connections have freed is reused by other threads, and does not stay resident in separate heaps.
/// The caller must call this before it starts threads. Only glibc has this setting.
pub fn limit_heaps() {
    #[cfg(target_env = "gnu")]
    {
        let heaps = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        set_allocator(libc::M_ARENA_MAX, i32::try_from(heaps).unwrap_or(i32::MAX));
    }
}

#[cfg(target_env = "gnu")]
fn set_allocator(setting: libc::c_int, value: libc::c_int) {
    // SAFETY: the call changes settings of the allocator, which takes its own lock.
    let _is_known = unsafe { libc::mallopt(setting, value) };
}

/// Makes memory resident before it is needed: the heap, tables as they are created, and the stacks
/// of the threads that serve. The caller must call this before it creates any of them.
pub fn reserve() {
    larder_mem::populate_large_pieces();
    // One heap for all threads, which never shrinks. Only glibc has these settings.
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

/// Makes the stack of this thread resident, if memory was reserved.
#[expect(clippy::large_stack_arrays, reason = "that the stack is used is what it is for")]
pub(crate) fn reserve_stack() {
    if RESERVED.load(Ordering::Relaxed) {
        std::hint::black_box(&[1u8; STACK_BYTES]);
    }
}

/// Exempts allocations that the kernel makes for this thread, and for threads that it starts from
/// now on, from waiting for I/O.
///
/// # Errors
/// If the process may not request that.
pub fn be_spared() -> Result<(), ReclaimError> {
    let spared = rustix::process::configure_io_flusher_behavior(true);
    spared.map_err(|error| ReclaimError::Spare(error.into()))
}
