//! Locks and atomics of the whole crate. With `--cfg larder_shuttle` they are those of shuttle, so
//! that a scheduler can explore interleavings of the cache.

#[cfg(not(larder_shuttle))]
use std::sync as primitive;

#[cfg(larder_shuttle)]
use shuttle::sync as primitive;

pub(crate) use primitive::{Arc, Mutex, atomic};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;

/// A value on its own cache line, to avoid false sharing.
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

/// Hints to the processor that this thread spins until another thread makes progress.
pub(crate) fn spin() {
    #[cfg(not(larder_shuttle))]
    std::hint::spin_loop();
    #[cfg(larder_shuttle)]
    shuttle::thread::yield_now();
}

thread_local! {
    /// True if a panic of this thread has left state behind a lock of the cache inconsistent, or if
    /// this thread has found such a lock.
    static DAMAGE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this thread knows that a panic has left shared state of a cache inconsistent:
/// its own panic passed through a critical section, or it found a lock that another panic poisoned.
#[must_use]
pub fn damage_seen() -> bool {
    DAMAGE.get()
}

/// A lock guard of a part of the cache. Dropping it during a panic is recorded for [`damage_seen`].
pub(crate) struct MutexGuard<'a, T> {
    guard: primitive::MutexGuard<'a, T>,
    /// Dropped after the guard, which has by then poisoned the mutex if a panic began in between.
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

/// Locks the mutex. Panics if it is poisoned: a thread panicked during a change, so the state may
/// be inconsistent, and continuing could write wrong data to a store.
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

/// Locks the mutex to read the state after a panic, even if the state is inconsistent. Returns
/// `None` if another thread holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<primitive::MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
