//! The only door to locks and atomics, swapped for shuttle's under `--cfg larder_shuttle`, so that
//! the whole cache can be run under a scheduler that tries interleavings.

#[cfg(not(larder_shuttle))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, atomic};

#[cfg(larder_shuttle)]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, atomic};

/// Says that this thread is waiting for another to get on.
pub(crate) fn spin() {
    #[cfg(not(larder_shuttle))]
    std::hint::spin_loop();
    #[cfg(larder_shuttle)]
    shuttle::thread::yield_now();
}

/// Locks, where a poisoned lock means that a thread panicked in the middle of a change: the state
/// is not to be trusted, and going on could write wrong data to a store.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread panicked while it changed this part of the cache")
}
