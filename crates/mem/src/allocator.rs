//! The allocator of the programs: large allocations in huge pages, the rest by the system
//! allocator.
//!
//! The page table of a cache and the tables of a simulator are accessed at random positions. With
//! pages of 4 KiB almost each access also misses the TLB, and in a virtual machine the page walk
//! takes as long as a second memory access. By the usual system setting the kernel uses huge pages
//! only on advice, so this allocator gives that advice.
//!
//! Invariants: the size alone determines if an allocation is large, so that deallocation comes to
//! the same result; a large allocation is a separate mapping, which begins at a multiple of 2 MiB
//! and is initially zero.

use crate::map::{Mapping, unmap};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The minimum size of a separate mapping. The kernel backs it in steps of 2 MiB if it grants huge
/// pages: up to half of the memory of an allocation may be unused.
const LARGE_BYTES: usize = 1 << 20;
/// The maximum alignment that a large allocation guarantees.
const ALIGN_MAX: usize = 2 << 20;
/// The largest base page of any kernel.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Allocates large blocks in huge pages where the kernel grants them, and delegates the rest to the
/// system allocator. For use as the `#[global_allocator]` of a program.
#[derive(Debug)]
pub struct HugeAllocator;

/// True if large allocations are populated at once.
static POPULATED: AtomicBool = AtomicBool::new(false);

/// Populates large allocations at allocation time instead of at first use, from now on, for
/// programs that must not wait for page faults later.
pub fn populate_large_pieces() {
    POPULATED.store(true, Ordering::Relaxed);
}

/// The mapping threshold of the system allocator, which by default adapts to the sizes of freed
/// blocks.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 192 << 10;

/// Allocates each block of 192 KiB or more as a separate mapping, so that freeing it returns its
/// memory to the system, independent of earlier frees of that size.
pub fn map_large_pieces() {
    // SAFETY: the call sets a threshold that affects only later allocations.
    #[cfg(target_env = "gnu")]
    let _is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
}

fn is_large(layout: &Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= ALIGN_MAX
}

/// Returns the mapped size of a large allocation: whole kernel pages, whatever their size.
fn mapped_bytes(layout: &Layout) -> usize {
    // A layout ends below `isize::MAX`, so this cannot wrap.
    layout.size().next_multiple_of(PAGE_BYTES_MAX)
}

fn map(layout: &Layout) -> *mut u8 {
    let Ok(mapping) = Mapping::new(mapped_bytes(layout)) else { return std::ptr::null_mut() };
    // If the kernel rejects the advice, the memory is still usable.
    mapping.advise_huge(true);
    if POPULATED.load(Ordering::Relaxed) {
        // If the kernel cannot populate it (before 5.14, or out of memory), page faults populate it
        // later.
        mapping.populate();
    }
    mapping.into_base().as_ptr()
}

// SAFETY: a large allocation is a fresh mapping of at least its size, aligned to 2 MiB, which is
// unmapped once, with the same size; `System` handles everything else.
unsafe impl GlobalAlloc for HugeAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(&layout) {
            return map(&layout);
        }
        // SAFETY: the caller fulfills the same contract.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(&layout) {
            return map(&layout);
        }
        // SAFETY: the caller fulfills the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match NonNull::new(start) {
            // SAFETY: a large allocation came from `map` with this size, and is no longer in use.
            Some(start) if is_large(&layout) => unsafe { unmap(start, mapped_bytes(&layout)) },
            // SAFETY: the caller fulfills the same contract.
            _ => unsafe { System.dealloc(start, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees a size that makes a valid layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if !is_large(&layout) && !is_large(&new) {
            // SAFETY: the caller fulfills the same contract.
            return unsafe { System.realloc(start, layout, new_size) };
        }
        // SAFETY: the caller guarantees that the size is not 0.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            let kept = layout.size().min(new_size);
            // SAFETY: both blocks have that many bytes, and a new one overlaps no other.
            unsafe { std::ptr::copy_nonoverlapping(start, moved, kept) };
            // SAFETY: the caller no longer uses the old block.
            unsafe { self.dealloc(start, layout) };
        }
        moved
    }
}

#[cfg(not(larder_loom))]
#[cfg(test)]
mod tests {
    use super::*;

    /// Fills, grows across the limit and shrinks, and checks that the bytes are preserved.
    #[test]
    fn bytes_survive_every_change_of_size() {
        let sizes = [100, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES + 5, LARGE_BYTES / 2, 7];
        let mut layout = Layout::from_size_align(64, 16).expect("a layout");
        // SAFETY: the size is not 0.
        let mut start = unsafe { HugeAllocator.alloc_zeroed(layout) };
        assert!(!start.is_null());
        let mut kept = 0;
        for (byte, size) in (1_u8..).zip(sizes) {
            // SAFETY: `start` came from this allocator with `layout`.
            start = unsafe { HugeAllocator.realloc(start, layout, size) };
            assert!(!start.is_null(), "no memory for {size} bytes");
            layout = Layout::from_size_align(size, 16).expect("a layout");
            assert_eq!(start.addr() % 16, 0);
            if size >= LARGE_BYTES {
                assert_eq!(start.addr() % ALIGN_MAX, 0, "a large piece has its own huge pages");
            }
            // SAFETY: a block of `size` bytes that this test owns.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, size) };
            let before = &bytes[..kept.min(size)];
            assert!(before.iter().all(|&other| other == byte - 1), "at {size} bytes");
            bytes.fill(byte);
            kept = size;
        }
        // SAFETY: as above.
        unsafe { HugeAllocator.dealloc(start, layout) };
    }

    #[test]
    fn large_pieces_are_zero_and_go_back() {
        let layout = Layout::from_size_align(5 << 20, 4096).expect("a layout");
        for _ in 0..2 {
            // SAFETY: the size is not 0.
            let start = unsafe { HugeAllocator.alloc_zeroed(layout) };
            assert!(!start.is_null());
            // SAFETY: a block of that many bytes, zeroed by contract.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
            // SAFETY: allocated above with the same layout.
            unsafe { HugeAllocator.dealloc(start, layout) };
        }
    }
}
