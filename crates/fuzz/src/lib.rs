//! Fuzz targets: what is done with an input, and what must hold then.
//!
//! The fuzzers of `fuzz/` call these functions with inputs that reach new code; the tests of this
//! crate call them with the corpora of `fuzz/corpus`, so that each finding stays a test. A target
//! panics where something is wrong; an error is a fine answer to a wrong input.

mod files;
mod nbd;
mod traces;

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("trace", traces::trace),
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
];

/// Runs a target.
///
/// # Panics
/// There is none of this name, or it found something wrong.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    target(input);
}
