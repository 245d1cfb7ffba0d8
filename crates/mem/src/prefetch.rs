//! Prefetch hints of the processor, which fetch memory in the background.
//!
//! The functions do nothing on processors without a stable intrinsic.

/// Prefetches the cache line at `address` for reading, without blocking. Invalid addresses are
/// ignored.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has the instruction, and it never faults and changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches `value`, or its first 64 bytes, for reading.
#[inline]
pub fn fetch<T>(value: &T) {
    prefetch(std::ptr::from_ref(value));
}

/// Prefetches `value`, or its first 64 bytes, for modification: the processor fetches the line
/// exclusively at once, instead of first for reading and again for writing.
#[inline]
pub fn fetch_to_change<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: the instruction does nothing on an x86-64 that does not have it, never faults and
        // changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
