//! Integration tests of the arena: comparison with a plain model, misuse, and memory in the kernel.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(unsafe_code, reason = "the interface of frames is unsafe in parts")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod arena;
mod holds;
mod memory;
