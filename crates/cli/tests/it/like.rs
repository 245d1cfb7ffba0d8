//! `larder trace synth --like`: a trace that is fitted to another one, and its stated error.

use crate::shared::program::{Outcome, program, run_command};
use std::path::Path;
use std::process::Command;

/// Runs a line of arguments in a directory.
fn larder(directory: &Path, line: &str) -> Outcome {
    run_command(Command::new(program()).args(line.split(' ')).current_dir(directory))
}

#[test]
fn a_fitted_trace_states_its_error_and_has_no_names() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let made = larder(directory, "trace synth database db.ltr --requests 20000 --pages 8192");
    assert_eq!(made.code, Some(0), "{}", made.err);
    let out = larder(directory, "trace synth like.csv --like db.ltr");
    assert_eq!((out.code, &*out.err), (Some(0), ""));
    assert!(out.out.contains("LRU hit ratios differ by 0."), "{}", out.out);
    let text = std::fs::read_to_string(directory.join("like.csv")).unwrap();
    for name in ["data", "log", "transactions"] {
        assert!(!text.contains(name), "{name}");
    }
    let again = larder(directory, "trace synth - --like db.ltr --to-format csv");
    assert_eq!((again.out, again.err), (text, out.out));
    let short = larder(directory, "trace synth - --like db.ltr --requests 10 --to-format csv");
    assert!((11..=21).contains(&short.out.lines().count()), "{}", short.out);
}

#[test]
fn options_of_patterns_and_the_same_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    assert_eq!(larder(directory, "trace synth zipf a.ltr --requests 9").code, Some(0));
    for line in [
        "trace synth b.ltr --like a.ltr --pages 7",
        "trace synth zipf b.ltr --like a.ltr",
        "trace synth a.ltr --like a.ltr",
        "trace synth zipf b.ltr --max-bad 1",
        "trace synth b.ltr",
    ] {
        assert_eq!(larder(directory, line).code, Some(2), "{line}");
    }
}
