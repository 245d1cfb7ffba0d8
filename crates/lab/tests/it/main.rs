//! Integration tests of traces and of the simulator.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod published;
mod trace;
