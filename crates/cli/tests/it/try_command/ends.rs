//! Interrupted and killed runs, and killed caches.

use super::rig::{
    LENGTH, LONG, can_run, children, command, directory, mounts, names, run_try, shortest, text,
    until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Child;

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Starts a run that does not end by itself, and waits until its cache is mounted and in use: in
/// the first trial of Larder's variant, which follows one of the native variant.
fn start(directory: &Path) -> Child {
    let mut args = LONG.map(str::to_owned);
    // Short trials in a large number, so that the variants alternate.
    LENGTH.clone_into(args.last_mut().unwrap());
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.splice(4..4, ["--trials", "10000"]);
    let child = command(directory, &args).spawn().unwrap();
    until("the cache is mounted", || {
        // The first cache is mounted only to check that mounting works.
        let files_path = names(directory).first().map(|name| directory.join(name).join("files"));
        files_path.is_some_and(|files| !names(&files).is_empty()) && mounts(directory).len() == 1
    });
    child
}

#[test]
fn an_interrupted_run_removes_what_it_made() {
    if !can_run() {
        return;
    }
    let directory = directory();
    for interrupts in [&[Signal::INT][..], &[Signal::TERM], &[Signal::INT, Signal::INT]] {
        let child = start(directory.path());
        for interrupt in interrupts {
            signal(i32::try_from(child.id()).unwrap(), *interrupt);
        }
        let output = child.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{stderr}");
        assert!(
            stderr.contains("stopped") && stderr.contains("its test files are removed"),
            "{stderr}"
        );
        assert_eq!((names(directory.path()), mounts(directory.path())), (vec![], vec![]));
    }
}

#[test]
fn a_cache_that_is_killed_ends_it_with_a_sentence() {
    if !can_run() {
        return;
    }
    let directory = directory();
    let mut child = start(directory.path());
    // The run does not notice a cache that is killed between two trials; then the next one is
    // killed.
    until("one is killed in the middle", || {
        for cache in children(&child) {
            // The cache may have ended by itself.
            let _was_there = kill_process(Pid::from_raw(cache).unwrap(), Signal::KILL).is_ok();
        }
        child.try_wait().unwrap().is_some()
    });
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    // The cache ends during a trial, between two trials, or while the next one starts.
    let messages = ["cannot run the trial: ", "the cache ended in the middle", "start the cache: "];
    assert!(stderr.contains("larder: cannot "), "{stderr}");
    assert!(messages.iter().any(|message| stderr.contains(message)), "{stderr}");
    assert_eq!((names(directory.path()), mounts(directory.path())), (vec![], vec![]));
}

#[test]
fn what_a_killed_run_leaves_the_next_one_removes() {
    if !can_run() {
        return;
    }
    let directory = directory();
    // The cache notices that the run is gone, or is killed as well.
    for cache_too in [false, true] {
        let mut child = start(directory.path());
        let cache = children(&child).first().copied().unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        if cache_too && cache > 0 {
            // The cache may be about to end already.
            let _was_there = kill_process(Pid::from_raw(cache).unwrap(), Signal::KILL).is_ok();
        } else {
            until("the cache has unmounted", || mounts(directory.path()).is_empty());
        }
        assert_eq!(names(directory.path()).len(), 1, "a killed run cannot remove anything");
        let output = run_try(directory.path(), &shortest());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("left by a killed run"), "{stderr}");
        assert_eq!((names(directory.path()), mounts(directory.path())), (vec![], vec![]));
        std::fs::remove_file(super::rig::page(directory.path())).unwrap();
    }
}
