//! The examples in docs/bench-iozone.md match the output of the program.
//!
//! An example is a block after a comment that holds its arguments.

use super::rig::{create_disk_directory, run};

/// Returns the text of the example with these arguments.
fn render_example(args: &str) -> String {
    let directory = create_disk_directory();
    let outcome = run(directory.path(), &args.split(' ').collect::<Vec<_>>());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    format!("$ larder bench iozone {args}\n{}", outcome.out)
}

#[test]
fn the_examples_are_real() {
    crate::shared::masked::check("bench-iozone.md", 3, render_example);
}
