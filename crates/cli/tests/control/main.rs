//! The control interface, `larder ctl`, the configuration file and what systemd expects, from
//! outside of the program.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod api;
mod changes;
mod ctl;
mod documents;
#[path = "../shared/examples.rs"]
mod examples;
mod files;
mod keep;
mod manager;
mod mount;
mod mount_faults;
mod mount_rules;
#[path = "../../../io/tests/common/mounting.rs"]
mod mounting;
mod openmetrics;
mod rig;
mod security;
mod tuning;
mod volumes;
mod warm;
