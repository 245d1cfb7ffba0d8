//! Interrupted and killed runs.

use super::rig::{can_run, command, leftovers, lock_scratch, names, start, stderr_of};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::process::Child;

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(id.expect("a number of a process"), signal).unwrap();
}

#[test]
fn an_interrupted_run_removes_what_it_made() {
    let _lock = lock_scratch();
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for interrupt in [Signal::INT, Signal::TERM] {
        let (child, _) = start(directory.path());
        assert!(!leftovers(directory.path()).is_empty());
        signal(&child, interrupt);
        let output = child.wait_with_output().unwrap();
        let stderr = stderr_of(&output);
        assert!(!output.status.success(), "{stderr}");
        assert!(
            stderr.contains("stopped before there was a result; its test files are removed"),
            "{stderr}"
        );
        assert_eq!((names(directory.path()), leftovers(directory.path())), (vec![], vec![]));
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_or_named() {
    let _lock = lock_scratch();
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut child, point) = start(directory.path());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(directory.path()).len(), 1, "a killed run cannot remove anything");
    let busy = File::create(point.join("busy")).unwrap();
    let short = ["--scheduler", "none", "--trials", "1", "--confidence", "off"];
    let work = ["--", "--number", "20", "--transactions", "40"];
    // The next run uses another scratch directory, and finds the left-over file system by its
    // device.
    let elsewhere = tempfile::tempdir().unwrap();
    let next = || command(elsewhere.path(), &[&short[..], &work].concat()).output().unwrap();
    let output = next();
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(" stays, left by a killed run: unmount "), "{text}");
    drop(busy);
    let output = next();
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("left by a killed run"), "{text}");
    assert_eq!((names(directory.path()), leftovers(directory.path())), (vec![], vec![]));
}
