//! Integration tests of the cache. With `--cfg larder_shuttle` only those under its schedules are
//! built: they run on shuttle's threads, the others on real ones.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

#[cfg(not(larder_shuttle))]
mod failure;
#[cfg(not(larder_shuttle))]
mod literature;
#[cfg(not(larder_shuttle))]
mod simulation;
mod threads;
