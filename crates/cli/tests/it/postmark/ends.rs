//! Runs that are interrupted or killed.

use super::rig::{command, names, run};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Arguments of a run that takes far longer than a test waits. Without creation and deletion, the
/// files cannot run out.
const LONG: [&str; 6] = ["--transactions", "2000000", "--bias-create", "-1", "--trials", "1"];

/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Waits until a run in this directory has created files.
pub(crate) fn wait_for_files(directory: &Path) {
    let begun = Instant::now();
    let has_files = || {
        let work = names(directory).into_iter().find(|name| name.starts_with("larder-postmark-"));
        let subdirectory = work.map(|work| directory.join(work).join("t0"));
        subdirectory
            .is_some_and(|subdirectory| subdirectory.is_dir() && names(&subdirectory).len() > 100)
    };
    while !has_files() {
        assert!(begun.elapsed() < TIMEOUT, "no files come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start(directory: &Path) -> Child {
    let mut long = command(directory, &LONG);
    let child = long.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_files(directory);
    child
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("a number of a process"), signal).unwrap();
}

#[test]
fn an_interrupted_run_removes_what_it_made_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("1"), "mine").unwrap();
    for interrupt in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let child = start(directory.path());
        signal(&child, interrupt);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("removed"), "{stderr}");
        assert_eq!(names(directory.path()), ["1"]);
        assert_eq!(std::fs::read(directory.path().join("1")).unwrap(), b"mine");
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start(directory.path());
    // A concurrent run leaves its files alone.
    let short = ["--number", "20", "--transactions", "20", "--trials", "1"];
    assert_eq!(run(directory.path(), &short).code, Some(0));
    assert_eq!(names(directory.path()).len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(directory.path()).len(), 1, "a killed run cannot remove anything");
    let outcome = run(directory.path(), &short);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.err.contains("left by a killed run"), "{outcome:?}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn the_record_of_a_script_has_all_of_its_runs() {
    let directory = tempfile::tempdir().unwrap();
    let script = "set number 50\nset transactions 9\nrun\nset transactions 20\nrun\n";
    std::fs::write(directory.path().join("script"), script).unwrap();
    let outcome = run(directory.path(), &["script", "--trials", "1", "-o", "record.json"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = std::fs::read_to_string(directory.path().join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let transactions =
        |part: usize| record["parts"][part]["run"]["settings"]["transactions"].clone();
    assert_eq!([transactions(0), transactions(1)], [9, 20]);
    assert_eq!(record["parts"][1]["name"], "run 2");
}
