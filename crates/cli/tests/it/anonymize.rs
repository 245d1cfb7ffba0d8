//! `larder trace anonymize`: the same hits, no names, and keys that only their owner may read.

use crate::shared::program::{Outcome, program, run_command};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs a line of arguments in a directory, and returns its standard output.
fn larder(directory: &Path, line: &str) -> Outcome {
    run_command(Command::new(program()).args(line.split(' ')).current_dir(directory))
}

/// Returns the table of a simulation without the name of the trace.
fn simulated(directory: &Path, trace: &str) -> Vec<String> {
    // Other policies tell pages by hashes, with rare collisions that depend on the addresses.
    let line =
        format!("sim {trace} --policy lru,fifo,clock,sieve,slru,min --size 1%,20% --format csv");
    let out = larder(directory, &line);
    assert_eq!(out.code, Some(0), "{}", out.err);
    let rows = out.out.lines().map(|row| row.split_once(',').unwrap().1.to_owned());
    rows.collect()
}

#[test]
fn an_anonymized_trace_has_the_same_hits_and_no_names() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for line in [
        "trace synth database db.ltr --requests 20000 --pages 8192",
        "trace anonymize db.ltr shared.csv",
    ] {
        let out = larder(directory, line);
        assert_eq!((out.code, &*out.err), (Some(0), ""), "{line}");
    }
    let rows = simulated(directory, "db.ltr");
    assert_eq!(simulated(directory, "shared.csv"), rows);
    assert_eq!(rows.len(), 13);
    let text = std::fs::read_to_string(directory.join("shared.csv")).unwrap();
    for name in ["data", "log", "transactions"] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn a_key_makes_the_same_pseudonyms_and_belongs_to_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let key = directory.join("key");
    std::fs::write(&key, [7; 16]).unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    larder(directory, "trace synth mix mix.ltr --requests 1000 --pages 4096");
    let out = larder(directory, "trace anonymize mix.ltr a.csv --key key");
    assert_eq!(out.code, Some(2));
    assert!(out.err.contains("run chmod 600"), "{}", out.err);
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let anonymized = |name: &str, options: &str| {
        let out = larder(directory, &format!("trace anonymize mix.ltr {name}{options}"));
        assert_eq!(out.code, Some(0), "{}", out.err);
        std::fs::read(directory.join(name)).unwrap()
    };
    assert_eq!(anonymized("a.csv", " --key key"), anonymized("b.csv", " --key key"));
    assert_ne!(anonymized("c.csv", ""), anonymized("d.csv", ""), "the keys are random");
}
