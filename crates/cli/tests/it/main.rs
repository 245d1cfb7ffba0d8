//! Integration tests of the `larder` program.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod anonymize;
mod balance;
mod bench_wrong;
mod bottleneck;
mod cold;
mod compatibility;
mod control;
mod frag;
mod hostile;
mod iozone;
mod like;
mod matrix;
mod measure;
mod model;
mod one_cache;
mod postmark;
mod ranks;
mod record_replay;
mod refused;
mod reports;
mod shared;
mod try_command;
mod watch;
mod wrong_uses;
