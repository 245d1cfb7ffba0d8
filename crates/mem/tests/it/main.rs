//! Integration tests of the arena: against a plain model, misused, and with the kernel; under loom
//! the interleavings of the latch alone.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

#[cfg(not(larder_loom))]
mod arena;
#[cfg(not(larder_loom))]
mod holds;
#[cfg(larder_loom)]
mod interleavings;
#[cfg(not(larder_loom))]
mod memory;
