//! An anonymous mapping: the system calls of the arena, independent of frames.
//!
//! Invariants: the mapping is `len` bytes from `base` on, readable and writable, aligned to 2 MiB,
//! and keeps its address until it is dropped. This module never reads or writes its bytes.

use std::io;
use std::ptr::NonNull;

/// The size of a huge page on every machine whose base pages have 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// An anonymous mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The unit in which the kernel releases memory.
    page_bytes: usize,
    /// True if the mapping is not unmapped on drop.
    leaked: bool,
}

// SAFETY: a mapping belongs to the process and not to a thread, and this type provides only
// addresses; the latches control the accesses to them.
unsafe impl Send for Mapping {}
// SAFETY: as above; its shared methods change nothing here and only make system calls, which the
// kernel serializes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, all zero and not populated. The kernel refuses sizes that obviously exceed
    /// the memory.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        Self::with_flags(len, 0)
    }

    /// Reserves addresses for `len` bytes, of which only a part may ever be used.
    pub(crate) fn addresses(len: usize) -> io::Result<Self> {
        Self::with_flags(len, libc::MAP_NORESERVE)
    }

    fn with_flags(len: usize, flags: libc::c_int) -> io::Result<Self> {
        let padded = len
            .checked_add(HUGE_BYTES)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new mapping at an address chosen by the kernel replaces nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at 0 unasked");
        let head = start.addr().get().wrapping_neg() % HUGE_BYTES;
        // SAFETY: `head` is below HUGE_BYTES, by which the mapping is longer than `len`.
        let base = unsafe { start.add(head) };
        let mapping = Mapping { base, len, page_bytes: page_bytes(), leaked: false };
        // SAFETY: `head + len` is below the length of the mapping.
        let end = unsafe { base.add(len) };
        unmap_range(start, head);
        unmap_range(end, padded - head - len);
        Ok(mapping)
    }

    /// Returns its address.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns its length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Advises for or against huge pages; returns true if the kernel accepted the advice.
    pub(crate) fn advise_huge(&self, huge: bool) -> bool {
        self.advise_huge_in(0, self.len, huge)
    }

    /// Advises for or against huge pages for `len` bytes from `offset` on.
    pub(crate) fn advise_huge_in(&self, offset: usize, len: usize, huge: bool) -> bool {
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        self.advise(offset, len, advice)
    }

    /// Excludes the mapping from core dumps; returns true if the kernel accepted the advice.
    pub(crate) fn advise_no_dump(&self) -> bool {
        self.advise(0, self.len, libc::MADV_DONTDUMP)
    }

    /// Populates the whole mapping; returns true on success.
    pub(crate) fn populate(&self) -> bool {
        self.advise(0, self.len, libc::MADV_POPULATE_WRITE)
    }

    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> bool {
        let start = self.range_start(offset, len);
        // SAFETY: this part of the mapping belongs to `self`, and no advice used here changes its
        // bytes.
        let result = unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
        result == 0
    }

    /// Returns the address of `offset`; asserts that `len` bytes from there are inside the mapping.
    fn range_start(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "inside the mapping");
        // SAFETY: inside the mapping, by the assertion above.
        unsafe { self.base.add(offset) }
    }

    /// Populates `len` bytes from `offset` on and locks them in memory.
    pub(crate) fn lock(&self, offset: usize, len: usize) -> io::Result<()> {
        self.lock_syscall(libc::SYS_mlock, offset, len)
    }

    /// Unlocks `len` bytes from `offset` on.
    pub(crate) fn unlock(&self, offset: usize, len: usize) -> io::Result<()> {
        self.lock_syscall(libc::SYS_munlock, offset, len)
    }

    /// Calls the kernel directly: `AddressSanitizer` replaces the functions of the C library by
    /// ones that do nothing and report success.
    fn lock_syscall(&self, call: libc::c_long, offset: usize, len: usize) -> io::Result<()> {
        let start = self.range_start(offset, len);
        // SAFETY: this part of the mapping belongs to `self`, and locking and unlocking change no
        // bytes.
        let result = unsafe { libc::syscall(call, start.as_ptr(), len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns `len` bytes from `offset` on to the kernel; they are zero when next read. Returns
    /// true on success: the kernel refuses locked memory, and releases only whole pages.
    ///
    /// # Safety
    /// The caller has exclusive access to the bytes, without a reference to them or an operation of
    /// the kernel on them.
    pub(crate) unsafe fn release_memory(&self, offset: usize, len: usize) -> bool {
        // The kernel rounds the length up: with larger pages, it would release adjacent bytes, too.
        if !offset.is_multiple_of(self.page_bytes) || !len.is_multiple_of(self.page_bytes) {
            return false;
        }
        let start = self.range_start(offset, len);
        // SAFETY: whole pages of the mapping, to which the caller has exclusive access.
        let result = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) };
        result == 0
    }

    /// Leaves the memory mapped for the rest of the process.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }

    /// Returns the address, and leaves the memory mapped until the caller passes it to [`unmap`].
    pub(crate) fn into_base(mut self) -> NonNull<u8> {
        self.leak();
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.leaked {
            unmap_range(self.base, self.len);
        }
    }
}

/// Unmaps a mapping by its address.
///
/// # Safety
/// The mapping came from [`Mapping::into_base`] with this length, and is no longer in use.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    unmap_range(base, len);
}

/// Unmaps a part of a mapping of this module. A failure wastes address space; there is no caller to
/// report it to.
fn unmap_range(start: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the callers pass parts of their own mapping that are no longer in use.
        let _refused = unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

/// Returns the size of the kernel's base pages.
fn page_bytes() -> usize {
    // SAFETY: the call reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every Linux knows its page size")
}

/// Returns the lock limit of the process without `CAP_IPC_LOCK`, in bytes; `None` is no limit.
pub(crate) fn lock_limit_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure, which outlives the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (result != 0 || limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
