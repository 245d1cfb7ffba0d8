//! Exclusion between the start of a program and a test that depends on the last close of a file.
//!
//! Between fork and exec a started program holds all open files of this process, so a close by
//! this process is not the last one: the kernel reports its result to the other one.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static STARTS: RwLock<()> = RwLock::new(());

/// Held while a program starts, until it runs.
pub(crate) fn starting() -> RwLockWriteGuard<'static, ()> {
    STARTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test whose closes must be the last ones of their files.
pub(crate) fn closing() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}
