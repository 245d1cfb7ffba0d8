//! Stopped and killed, it and its cache.

use super::rig::{
    LENGTH, LONG, children, command, directory, done, may, mounts, names, shortest, text, until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Child;

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Starts a run that would take for ever, and waits until its cache is mounted and in use: for
/// that turn of larder's side which comes after the one of the native side.
fn start(directory: &Path) -> Child {
    let mut words = LONG.map(str::to_owned);
    // Short trials without an end, so that all sides have their turns.
    LENGTH.clone_into(words.last_mut().unwrap());
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.splice(4..4, ["--trials", "10000"]);
    let child = command(directory, &words).spawn().unwrap();
    until("the cache is mounted", || {
        // The first one is mounted only to see whether that works.
        let made = names(directory).first().map(|name| directory.join(name).join("files"));
        made.is_some_and(|files| !names(&files).is_empty()) && mounts(directory).len() == 1
    });
    child
}

#[test]
fn an_interrupted_run_removes_what_it_made() {
    if !may() {
        return;
    }
    let directory = directory();
    for asked in [Signal::INT, Signal::TERM] {
        let child = start(directory.path());
        signal(i32::try_from(child.id()).unwrap(), asked);
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("stopped") && said.contains("what it made is removed"), "{said}");
        assert_eq!((names(directory.path()), mounts(directory.path())), (vec![], vec![]));
    }
}

#[test]
fn a_cache_that_is_killed_ends_it_with_a_sentence() {
    if !may() {
        return;
    }
    let directory = directory();
    let mut child = start(directory.path());
    // One that is killed between two turns is not missed; then the next one is.
    until("one is killed in the middle", || {
        for cache in children(&child) {
            // It may have ended by itself.
            let _was_there = kill_process(Pid::from_raw(cache).unwrap(), Signal::KILL).is_ok();
        }
        child.try_wait().unwrap().is_some()
    });
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    // In the trial, between two, or while the next one begins.
    let ways = ["failed to run the trial: ", "the cache ended in the middle", "start the cache: "];
    assert!(said.contains("larder: failed to "), "{said}");
    assert!(ways.iter().any(|way| said.contains(way)), "{said}");
    assert_eq!((names(directory.path()), mounts(directory.path())), (vec![], vec![]));
}

#[test]
fn what_a_killed_run_leaves_the_next_one_removes() {
    if !may() {
        return;
    }
    let directory = directory();
    // The cache notices that nobody is there any more, or is killed as well.
    for cache_too in [false, true] {
        let mut child = start(directory.path());
        let cache = children(&child).first().copied().unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        if cache_too && cache > 0 {
            // It may be about to end already.
            let _was_there = kill_process(Pid::from_raw(cache).unwrap(), Signal::KILL).is_ok();
        } else {
            until("the cache has unmounted", || mounts(directory.path()).is_empty());
        }
        assert_eq!(names(directory.path()).len(), 1, "nobody can remove anything after a kill");
        let output = done(directory.path(), &shortest());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("which a run that was killed had left"), "{said}");
        assert_eq!((names(directory.path()), mounts(directory.path())), (vec![], vec![]));
        std::fs::remove_file(super::rig::page(directory.path())).unwrap();
    }
}
