//! The processor's hint that memory will be used soon: it is on its way while other things are
//! done.
//!
//! Nothing happens on processors for which there is no stable intrinsic.

/// Asks for the cache line at `place`, to read it, without waiting for it and whatever lies there:
/// an address that cannot be read is ignored.
#[inline]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has the instruction, and it never faults and changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Says that `place`, or its first 64 bytes, will be read soon.
#[inline]
pub fn fetch<T>(place: &T) {
    prefetch(std::ptr::from_ref(place));
}

/// Says that `place`, or its first 64 bytes, will be changed soon: its line is taken away from the
/// other processors at once, instead of first for reading and then once more for writing.
#[inline]
pub fn fetch_to_change<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: the instruction does nothing on the x86-64 that do not have it, never faults and
        // changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
