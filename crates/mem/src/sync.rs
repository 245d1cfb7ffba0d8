//! The atomics of this crate, which loom replaces under `cfg(larder_loom)`.

use std::num::NonZeroU32;

#[cfg(not(larder_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(larder_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

/// Returns `count` zeros. The kernel allocates their memory at first use, so there may be many more
/// than will ever be used.
#[cfg(not(larder_loom))]
pub(crate) fn zeros(count: usize) -> Box<[AtomicU32]> {
    let zeros = Box::<[AtomicU32]>::new_zeroed_slice(count);
    // SAFETY: all bits zero are a valid `AtomicU32`: the number 0.
    unsafe { zeros.assume_init() }
}

/// Returns `count` zeros.
#[cfg(larder_loom)]
pub(crate) fn zeros(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

/// Returns a number that no other set of latches in this process has or had.
///
/// Always with the real atomic: it is not part of the protocol that loom explores, and loom has no
/// statics that live through all runs of a model.
pub(crate) fn next_identity() -> NonZeroU32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LAST: AtomicU32 = AtomicU32::new(0);
    // A repeated number would let an arena accept the pin of another one, so it must not wrap.
    let last = LAST
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1))
        .expect("a process makes fewer than 2^32 arenas");
    NonZeroU32::new(last + 1).expect("the count was below its maximum")
}
