//! Exclusion between the start of a program and a test that depends on the last close of a file.
//!
//! Between fork and exec a child process holds all open files of this process. A close by this
//! process is then not the last one, and the child gets the result of the last close.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static STARTS: RwLock<()> = RwLock::new(());

/// Returns the lock to hold while a program starts, until it runs.
pub(crate) fn starting() -> RwLockWriteGuard<'static, ()> {
    STARTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the lock to hold in a test whose closes must be the last ones of their files.
pub(crate) fn closing() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}
