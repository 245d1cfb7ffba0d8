//! Refused measurements: one message, and nothing left behind.

use super::rig::{MIB, Rig};
use crate::try_command::rig::{can_run, names, text};
use larder_testing::{is_root, skip};
use std::process::Command;

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    let rig = Rig::new(1);
    let cases: [(&[&str], &str); 5] = [
        (&["--output", "x.html"], "a measured curve has no page; name a file that ends in .json"),
        (&["--sizes", "4MiB,8MiB"], "measure a cache of 4 MiB: the minimum is 8 MiB"),
        (&["--policy", "lru,s3fifo"], "name one --policy"),
        (&["--output", "/missing/x.json"], "cannot write /missing/x.json"),
        (&["--output", &format!("{}/x.json", rig.data.path().display())], "name a file outside"),
    ];
    for (options, message) in cases {
        let refusal = rig.refusal(options, "touch ran");
        assert!(refusal.contains(message), "{refusal}");
    }
    for options in [&["--target", "90%"][..], &["--sampled"], &["--live"], &["--trials", "0"]] {
        let output = rig.run(options, "touch ran");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output.stderr));
    }
    let mut found = names(rig.data.path());
    found.sort();
    assert_eq!(found, ["link", "rows"], "the command has not run");
}

#[test]
fn a_path_that_is_no_directory_on_a_disk_is_named() {
    let refusal = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(["size", "--measure", path, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refusal("/missing").contains("/missing: no such file or directory"));
    assert!(refusal("/proc/version").contains("it is not a directory"));
    let memory = refusal("/dev/shm");
    assert!(memory.contains("it is in memory already (tmpfs)"), "{memory}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.args(["size", "--measure", "/"]).output().unwrap();
    assert!(text(&output.stderr).contains("COMMAND"), "{}", text(&output.stderr));
}

#[test]
fn a_command_that_fails_ends_the_measurement() {
    if !can_run() {
        return;
    }
    let rig = Rig::new(MIB);
    let cases = [
        ("exit 3", "sh failed with exit code 3; make it succeed without --measure first"),
        ("kill -9 $$", "sh was ended by signal 9"),
        ("true", "it read nothing through the cache; let it use relative paths"),
    ];
    for (script, message) in cases {
        let refusal = rig.refusal(&["--sizes", "8MiB"], script);
        assert!(refusal.contains(message), "{refusal}");
    }
    let mut missing = Command::new(env!("CARGO_BIN_EXE_larder"));
    missing.args(["size", "--measure"]).arg(rig.data.path()).args(["--", "missing-program"]);
    let output = missing.env("TMPDIR", rig.temporary.path()).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("larder: cannot run missing-program: "), "{stderr}");
    rig.expect_nothing_left();
}

#[test]
fn without_fuse_nothing_runs() {
    if !is_root() {
        return;
    }
    let rig = Rig::new(1);
    let larder = rig.command(&[], "touch ran");
    // A mount namespace in which /dev is empty.
    let mut namespace = Command::new("unshare");
    namespace.args(["--mount", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"]);
    namespace.arg(larder.get_program()).args(larder.get_args());
    let output = namespace.env("TMPDIR", rig.temporary.path()).output().unwrap();
    let stderr = text(&output.stderr);
    if !stderr.contains("larder") {
        skip(format_args!("no mount namespace here ({stderr})"));
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("larder: cannot ") && stderr.contains("/dev/fuse"), "{stderr}");
    assert!(!rig.data.path().join("ran").exists());
    rig.expect_nothing_left();
}
