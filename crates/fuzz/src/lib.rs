//! Fuzz targets: operations on an input, and checks of the result.
//!
//! The fuzzers of `fuzz/` call these functions with inputs that reach new code; the tests of this
//! crate call them with the corpora of `fuzz/corpus`, so that each finding remains as a test. A
//! target panics if a check fails; rejecting an invalid input is correct.

mod files;
mod fuse;
mod nbd;
mod packed;
mod server;
mod traces;
mod workloads;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("trace", traces::trace),
    ("trace-file", traces::trace_file),
    ("ltr", traces::ltr),
    ("sizing", traces::sizing),
    ("perfmon", files::perfmon),
    ("record", files::record),
    ("watch", files::watch),
    ("control", files::control),
    ("escape", files::escape),
    ("warm-list", files::warm_list),
    ("rules", files::rules),
    ("nbd-server", nbd::server),
    ("nbd-client", nbd::client),
    ("nbd-uri", nbd::uri),
    ("config", server::config),
    ("control-api", server::control_api),
    ("fuse-volumes", fuse::volumes),
    ("fuse-directory", fuse::directory),
    ("workload", workloads::workload),
];

/// Runs a target.
///
/// # Panics
/// There is no target with this name, or a check fails.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    target(input);
}
