//! The processor's hint that memory will be read soon.

/// Asks for the cache line at `place`, without waiting for it and whatever lies there: an address
/// that cannot be read is ignored. Nothing on processors for which there is no stable intrinsic.
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
