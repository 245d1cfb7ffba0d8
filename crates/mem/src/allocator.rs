//! The allocator of the programs: large pieces of memory in huge pages, the rest as usual.
//!
//! The page table of a cache, and the tables of a simulator, are looked at in random places. In
//! pages of 4 KiB almost each look also misses the processor's translation buffer, and in a virtual
//! machine its answer takes as long as a second trip to memory. Where huge pages are granted on
//! advice only, which is the usual setting, somebody must give that advice.
//!
//! Invariants: what is large is decided by the size alone, so that giving back finds out the same;
//! a large piece is a mapping of its own, which begins at a multiple of 2 MiB and is zero at first.

use crate::map::{Mapping, unmap};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// From this size on a piece of memory is a mapping of its own, which is backed by steps of 2 MiB
/// if huge pages are granted: up to half of what a piece takes may be of no use.
const LARGE_BYTES: usize = 1 << 20;
/// No large piece begins at less than a multiple of this.
const ALIGN_MAX: usize = 2 << 20;
/// The largest small page of any kernel.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Allocates large pieces in huge pages where the kernel grants them, and leaves the rest to the
/// system's allocator. To be named as the `#[global_allocator]` of a program.
#[derive(Debug)]
pub struct HugeAllocator;

/// Whether large pieces are backed by memory at once.
static POPULATED: AtomicBool = AtomicBool::new(false);

/// From now on large pieces are backed by memory when they are made and not when they are used
/// first, so that their use waits for nothing: for programs that must not wait for memory later.
pub fn populate_large_pieces() {
    POPULATED.store(true, Ordering::Relaxed);
}

/// By default the system's allocator adapts the mapping threshold to the sizes of freed pieces.
const MAPPED_BYTES_MIN: libc::c_int = 192 << 10;

/// Gives each piece of 192 KiB or more a mapping of its own, so that freeing it returns its memory
/// to the system, independent of earlier frees of that size.
pub fn map_large_pieces() {
    // SAFETY: it sets a threshold that affects only later allocations.
    #[cfg(target_env = "gnu")]
    let _is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
}

fn is_large(layout: &Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= ALIGN_MAX
}

/// What the mapping of a large piece takes: whole pages of the kernel, whatever their size.
fn mapped_bytes(layout: &Layout) -> usize {
    // A layout ends below `isize::MAX`, so that this cannot wrap.
    layout.size().next_multiple_of(PAGE_BYTES_MAX)
}

fn map(layout: &Layout) -> *mut u8 {
    let Ok(mapping) = Mapping::new(mapped_bytes(layout)) else { return std::ptr::null_mut() };
    // Without the advice taken it is still memory.
    mapping.advise_huge(true);
    if POPULATED.load(Ordering::Relaxed) {
        // Where the kernel cannot (before 5.14), or has no memory left, it is as without.
        mapping.populate();
    }
    mapping.into_base().as_ptr()
}

// SAFETY: a large piece is a fresh mapping of at least its size, aligned to 2 MiB, which is given
// back once, by its size; everything else is the business of `System`.
unsafe impl GlobalAlloc for HugeAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(&layout) {
            return map(&layout);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(&layout) {
            return map(&layout);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match NonNull::new(start) {
            // SAFETY: a large piece came from `map` with this size, and nobody uses it any more.
            Some(start) if is_large(&layout) => unsafe { unmap(start, mapped_bytes(&layout)) },
            // SAFETY: the caller's promise, passed on.
            _ => unsafe { System.dealloc(start, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if !is_large(&layout) && !is_large(&new) {
            // SAFETY: the caller's promise, passed on.
            return unsafe { System.realloc(start, layout, new_size) };
        }
        // SAFETY: the caller's promise that the size is not 0.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            let kept = layout.size().min(new_size);
            // SAFETY: both pieces have that many bytes, and a new one overlaps no other.
            unsafe { std::ptr::copy_nonoverlapping(start, moved, kept) };
            // SAFETY: the caller gives the old piece up.
            unsafe { self.dealloc(start, layout) };
        }
        moved
    }
}

#[cfg(not(larder_loom))]
#[cfg(test)]
mod tests {
    use super::*;

    /// Fills, grows over the limit and back, and looks whether the bytes came along.
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
            // SAFETY: a piece of `size` bytes that is ours.
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
            // SAFETY: a piece of that many bytes, zero by promise.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
            // SAFETY: allocated above with the same layout.
            unsafe { HugeAllocator.dealloc(start, layout) };
        }
    }
}
