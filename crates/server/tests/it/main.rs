//! A server in the process of its test: configuration, start, requests, changes, stop.

#![expect(clippy::tests_outside_test_module, reason = "the whole crate is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has to panic")]

mod life;
