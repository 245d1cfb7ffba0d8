//! One anonymous mapping: the system calls behind the arena, and nothing about frames.
//!
//! Invariants: the mapping is `len` bytes from `base` on, readable and writable, aligned to 2 MiB,
//! and stays where it is until it is dropped. Nobody here reads or writes it.

use std::io;
use std::ptr::NonNull;

/// Huge pages of the kernel are this large on every machine whose small pages have 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// Memory of our own, from the kernel and back to it.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The unit in which the kernel takes memory back.
    page_bytes: usize,
    /// Not unmapped on drop.
    kept: bool,
}

// SAFETY: a mapping belongs to the process and not to a thread, and this type gives out addresses
// only; who may go to them when is the business of the latches.
unsafe impl Send for Mapping {}
// SAFETY: as above; its shared methods change nothing here but call the kernel, which takes turns.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, all zero, none of them backed by memory yet. What can obviously never be
    /// there is refused.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        Self::with_flags(len, 0)
    }

    /// Maps addresses for `len` bytes of which perhaps only a part will ever be used.
    pub(crate) fn addresses(len: usize) -> io::Result<Self> {
        Self::with_flags(len, libc::MAP_NORESERVE)
    }

    fn with_flags(len: usize, flags: libc::c_int) -> io::Result<Self> {
        let padded = len
            .checked_add(HUGE_BYTES)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
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
        let mapping = Mapping { base, len, page_bytes: page_bytes(), kept: false };
        // SAFETY: `head + len` is below the length of the mapping.
        let end = unsafe { base.add(len) };
        trim(start, head);
        trim(end, padded - head - len);
        Ok(mapping)
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is, in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Asks for huge pages, or for none; whether the kernel took the advice.
    pub(crate) fn advise_huge(&self, huge: bool) -> bool {
        self.advise_huge_in(0, self.len, huge)
    }

    /// The same for `len` bytes from `offset` on.
    pub(crate) fn advise_huge_in(&self, offset: usize, len: usize, huge: bool) -> bool {
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        self.advise(offset, len, advice)
    }

    /// Leaves the mapping out of core dumps; whether the kernel took the advice.
    pub(crate) fn advise_no_dump(&self) -> bool {
        self.advise(0, self.len, libc::MADV_DONTDUMP)
    }

    /// Backs all of the mapping with memory now; whether the kernel did.
    pub(crate) fn populate(&self) -> bool {
        self.advise(0, self.len, libc::MADV_POPULATE_WRITE)
    }

    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> bool {
        let start = self.part(offset, len);
        // SAFETY: this part of the mapping is ours, and none of the callers' advices changes its
        // bytes.
        let result = unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
        result == 0
    }

    /// Where `len` bytes from `offset` on begin, which are inside the mapping.
    fn part(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "inside the mapping");
        // SAFETY: inside the mapping, by the assertion above.
        unsafe { self.base.add(offset) }
    }

    /// Brings `len` bytes from `offset` on into memory and keeps them there.
    pub(crate) fn lock(&self, offset: usize, len: usize) -> io::Result<()> {
        self.call_on(libc::SYS_mlock, offset, len)
    }

    /// Lets `len` bytes from `offset` on leave memory again.
    pub(crate) fn unlock(&self, offset: usize, len: usize) -> io::Result<()> {
        self.call_on(libc::SYS_munlock, offset, len)
    }

    /// Not by the functions of the C library: `AddressSanitizer` replaces them by ones that do
    /// nothing and report success.
    fn call_on(&self, call: libc::c_long, offset: usize, len: usize) -> io::Result<()> {
        let start = self.part(offset, len);
        // SAFETY: this part of the mapping is ours, and locking and unlocking change no bytes.
        let result = unsafe { libc::syscall(call, start.as_ptr(), len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives `len` bytes from `offset` on back to the kernel; they are zero when next read. Whether
    /// it was done: the kernel refuses for locked memory, and takes only whole pages of its own.
    ///
    /// # Safety
    /// The bytes are held by the caller alone, with no reference to them and no operation of the
    /// kernel on them.
    pub(crate) unsafe fn give_back(&self, offset: usize, len: usize) -> bool {
        // The kernel rounds the length up: with larger pages, neighbours would be lost.
        if !offset.is_multiple_of(self.page_bytes) || !len.is_multiple_of(self.page_bytes) {
            return false;
        }
        let start = self.part(offset, len);
        // SAFETY: whole pages of the mapping, which the caller alone holds.
        let result = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) };
        result == 0
    }

    /// Leaves the memory mapped for the rest of the process.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Leaves the memory mapped until [`unmap`] is told of it.
    pub(crate) fn into_base(mut self) -> NonNull<u8> {
        self.keep();
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.kept {
            trim(self.base, self.len);
        }
    }
}

/// Unmaps a mapping of which only its address is left.
///
/// # Safety
/// It came from [`Mapping::into_base`] with this length, and nobody uses it any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    trim(base, len);
}

/// Unmaps what this module mapped. A refusal costs address space, and there is nobody to tell.
fn trim(start: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the callers pass parts of their own mapping that nobody uses any more.
        let _refused = unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

/// The size of the kernel's small pages.
fn page_bytes() -> usize {
    // SAFETY: reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every Linux knows its page size")
}

/// What the process may lock without `CAP_IPC_LOCK`, in bytes; `None` is no limit.
pub(crate) fn lock_limit_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure, which outlives the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (result != 0 || limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
