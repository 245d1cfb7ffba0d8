//! Several ranks of `larder bench` from the outside: processes on this machine, which are told
//! which rank they are as `mpirun` does it, or started by `--hosts`.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod ends;
mod results;
mod rig;
