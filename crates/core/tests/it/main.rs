//! Integration tests of the cache. With `--cfg larder_shuttle` only the tests on shuttle's threads
//! are built; the others need real threads.

#![expect(clippy::tests_outside_test_module, reason = "the whole crate is a test")]
#![expect(clippy::unwrap_used, reason = "a test panics if it cannot continue")]

#[cfg(not(larder_shuttle))]
mod literature;
#[cfg(not(larder_shuttle))]
mod sessions;
#[cfg(not(larder_shuttle))]
mod simulation;
mod threads;
