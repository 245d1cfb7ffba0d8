//! Runs that end before they are done.

use super::rig::{command, names, run};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What would take minutes.
const LONG: [&str; 6] = ["-s", "1m", "-r", "4k", "--trials", "10000"];
/// How long anything may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_mins(4);

/// Starts it, and waits until it works.
fn start(directory: &Path, words: &[&str]) -> Child {
    let mut long = command(directory, &[&LONG[..], words].concat());
    let child = long.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !names(directory).iter().any(|name| name.starts_with("larder-iozone-")) {
        assert!(begun.elapsed() < PATIENCE, "no file comes");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn an_interrupted_run_removes_what_it_made_and_nothing_else() {
    for words in [&[][..], &["-t", "3"]] {
        for asked in [Signal::INT, Signal::TERM] {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("mine"), "mine").unwrap();
            let child = start(directory.path(), words);
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process(id.unwrap(), asked).unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && said.contains("removed"), "{said}");
            assert_eq!(names(directory.path()), ["mine"]);
        }
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start(directory.path(), &[]);
    let short = ["-s", "64k", "-r", "4k", "-i", "0", "--trials", "1"];
    // A run beside it leaves its files alone.
    assert_eq!(run(directory.path(), &short).code, Some(0));
    assert_eq!(names(directory.path()).len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = run(directory.path(), &short);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("which a run that was killed had left"), "{said:?}");
    assert_eq!(names(directory.path()), [""; 0]);
}
