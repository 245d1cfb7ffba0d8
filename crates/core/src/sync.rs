//! The only door to locks and atomics, swapped for shuttle's under `--cfg larder_shuttle`, so that
//! the whole cache can be run under a scheduler that tries interleavings.

#[cfg(not(larder_shuttle))]
use std::sync as primitive;

#[cfg(larder_shuttle)]
use shuttle::sync as primitive;

pub(crate) use primitive::{Arc, Mutex, atomic};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;

/// A value on a cache line of its own: no false sharing with its neighbours.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) fn new(value: T) -> Self {
        CachePadded(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Says that this thread is waiting for another to get on.
pub(crate) fn spin() {
    #[cfg(not(larder_shuttle))]
    std::hint::spin_loop();
    #[cfg(larder_shuttle)]
    shuttle::thread::yield_now();
}

thread_local! {
    /// True if a panic of this thread has left state behind a lock of the cache half changed, or if
    /// this thread has met such a lock.
    static DAMAGE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread knows that a panic has left shared state of a cache half changed:
/// its own panic passed through a critical section, or it found a lock that another panic poisoned.
#[must_use]
pub fn damage_seen() -> bool {
    DAMAGE.get()
}

/// A guard of a part of the cache. Dropping it in a panic is recorded for [`damage_seen`].
pub(crate) struct MutexGuard<'a, T> {
    guard: primitive::MutexGuard<'a, T>,
    /// Dropped after the guard, which has poisoned the mutex by then if a panic began meanwhile.
    _unlocked: Unlocked<'a, T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The mutex that a guard has unlocked.
struct Unlocked<'a, T>(&'a Mutex<T>);

impl<T> Drop for Unlocked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && is_poisoned(self.0) {
            DAMAGE.set(true);
        }
    }
}

fn is_poisoned<T>(mutex: &Mutex<T>) -> bool {
    #[cfg(not(larder_shuttle))]
    return mutex.is_poisoned();
    #[cfg(larder_shuttle)]
    matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_)))
}

/// Locks, where a poisoned lock means that a thread panicked in the middle of a change: the state
/// is not to be trusted, and going on could write wrong data to a store.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let Ok(guard) = mutex.lock() else { half_changed() };
    MutexGuard { guard, _unlocked: Unlocked(mutex) }
}

#[cold]
fn half_changed() -> ! {
    DAMAGE.set(true);
    panic!("a thread panicked while it changed this part of the cache");
}

/// Locks to read the state after a panic, even if it is half changed; none if another thread has it
/// locked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<primitive::MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
