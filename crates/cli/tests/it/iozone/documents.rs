//! The examples in docs/bench-iozone.md are what the program says.
//!
//! An example is a block after a comment that says how it is made.

use super::rig::{on_disk, run};

/// What an example shows.
fn made(how: &str) -> String {
    let directory = on_disk();
    let said = run(directory.path(), &how.split(' ').collect::<Vec<_>>());
    assert_eq!(said.code, Some(0), "{said:?}");
    format!("$ larder bench iozone {how}\n{}", said.out)
}

#[test]
fn the_examples_are_real() {
    crate::shared::masked::check("bench-iozone.md", 3, made);
}
