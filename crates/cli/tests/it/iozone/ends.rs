//! Runs that are interrupted or killed.

use super::rig::{command, names, run};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Arguments of a run that takes minutes.
const LONG: [&str; 6] = ["-s", "1m", "-r", "4k", "--trials", "10000"];
/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Starts a long run, and waits until it has created a file.
fn start(directory: &Path, args: &[&str]) -> Child {
    let mut long = command(directory, &[&LONG[..], args].concat());
    let child = long.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !names(directory).iter().any(|name| name.starts_with("larder-iozone-")) {
        assert!(begun.elapsed() < TIMEOUT, "no file comes");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn an_interrupted_run_removes_what_it_made_and_nothing_else() {
    for args in [&[][..], &["-t", "3"]] {
        for signal in [Signal::INT, Signal::TERM] {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("mine"), "mine").unwrap();
            let child = start(directory.path(), args);
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process(id.unwrap(), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && stderr.contains("removed"), "{stderr}");
            assert_eq!(names(directory.path()), ["mine"]);
        }
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start(directory.path(), &[]);
    let short = ["-s", "64k", "-r", "4k", "-i", "0", "--trials", "1"];
    // A concurrent run leaves its files alone.
    assert_eq!(run(directory.path(), &short).code, Some(0));
    assert_eq!(names(directory.path()).len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let outcome = run(directory.path(), &short);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.err.contains("left by a killed run"), "{outcome:?}");
    assert_eq!(names(directory.path()), [""; 0]);
}
