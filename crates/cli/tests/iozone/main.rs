//! `larder bench iozone` from the outside: what it says, what it refuses, what it leaves.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod documents;
mod ends;
#[path = "../shared/examples.rs"]
mod examples;
mod grid;
#[path = "../shared/masked.rs"]
mod masked;
#[path = "../shared/program.rs"]
mod program;
mod refusals;
mod rig;
mod throughput;
