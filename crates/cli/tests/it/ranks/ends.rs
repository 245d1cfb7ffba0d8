//! Ranks that end early: all ranks end with the same message and leave no files behind.

use super::rig::{names, rank, rendezvous, start, stderr_of, wait, wait_for_work};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;

/// Arguments of a run that takes far longer than a test waits.
const LONG: [&str; 9] = [
    "postmark",
    "--number",
    "200",
    "--transactions",
    "2000000",
    "--bias-create",
    "-1",
    "--trials",
    "1",
];

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    kill_process(id.expect("a number of a process"), signal).unwrap();
}

/// Ends one of three working ranks with a signal, and returns the standard error of the two others.
fn end_rank(number: usize, sent: Signal) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let mut children = start(directory.path(), 3, &LONG);
    wait_for_work(directory.path(), 3);
    signal(&children[number], sent);
    let one = children.remove(number).wait_with_output().unwrap();
    assert!(!one.status.success(), "{}", stderr_of(&one));
    let others = wait(children);
    for output in &others {
        assert_eq!(output.status.code(), Some(2), "{}", stderr_of(output));
    }
    assert_eq!(names(directory.path()), [""; 0]);
    assert!(!rendezvous(directory.path()).exists());
    others.iter().map(stderr_of).collect()
}

#[test]
fn a_rank_that_is_killed_ends_all_and_leaves_nothing() {
    for stderr in end_rank(2, Signal::KILL) {
        assert!(stderr.contains("run postmark together: rank 2 on "), "{stderr}");
        assert!(stderr.contains(" ended unexpectedly; what was made here"), "{stderr}");
    }
}

#[test]
fn so_does_the_one_that_leads() {
    for stderr in end_rank(0, Signal::KILL) {
        assert!(stderr.contains("the rank that leads is gone; what was made here is"), "{stderr}");
    }
}

#[test]
fn a_rank_that_is_stopped_stops_all() {
    for number in [0, 1] {
        for stderr in end_rank(number, Signal::TERM) {
            let sentence = format!("rank {number} on ");
            assert!(
                stderr.contains(&sentence) && stderr.contains(" ended: it was stopped"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn an_error_of_one_is_the_error_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let location = directory.path().join("missing");
    let first = rank(directory.path(), (0, 2), &LONG).spawn().unwrap();
    let mut second = rank(directory.path(), (1, 2), &LONG);
    second.args(["--location", location.to_str().unwrap()]);
    let outputs = wait(vec![first, second.spawn().unwrap()]);
    let [first, second] = <[_; 2]>::try_from(outputs).unwrap();
    let (first, second) = (stderr_of(&first), stderr_of(&second));
    assert!(second.contains("make a directory "), "{second}");
    assert!(
        first.contains("together: rank 1 on ") && first.contains("make a directory "),
        "{first}"
    );
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn another_benchmark_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = rank(directory.path(), (0, 2), &["postmark", "--number", "7"]).spawn().unwrap();
    let second = rank(directory.path(), (1, 2), &["postmark", "--number", "8"]).spawn().unwrap();
    for output in wait(vec![first, second]) {
        let stderr = stderr_of(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("rank 1 on ") && stderr.contains(" measures \"postmark: "),
            "{stderr}"
        );
    }
    assert_eq!(names(directory.path()), [""; 0]);
}
