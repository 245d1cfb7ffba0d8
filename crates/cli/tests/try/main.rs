//! `larder try` from the outside: what it shows, what it refuses, what it leaves.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod ends;
mod refusals;
mod results;
mod rig;
