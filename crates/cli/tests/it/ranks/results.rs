//! Results: one total, and the work of each rank.

use super::rig::{names, rendezvous, start, stderr_of, wait};
use larder_schema::run::Run;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const WORK: [&str; 9] =
    ["postmark", "--number", "20", "--transactions", "40", "--trials", "3", "--confidence", "off"];

/// Reads the record of `ranks` ranks, and checks it.
fn check(record: &Path, ranks: usize) -> Run {
    let run = Run::from_json(&std::fs::read_to_string(record).unwrap()).unwrap();
    assert_eq!((run.parts.len(), run.trials.len()), (ranks, 3));
    let created = |run: &Run| run.sample("created").unwrap().values[0];
    let sum: f64 = run.parts.iter().map(|part| created(&part.run)).sum();
    assert!((created(&run) - sum).abs() < 0.5 && sum > 20.0, "the total is the sum");
    for (rank, part) in run.parts.iter().enumerate() {
        assert_eq!(part.labels["rank"], rank.to_string());
        assert_eq!(part.run.trials.len(), 3);
        let slowest = run.trials[0].phases[1].duration_ns;
        assert!(part.run.trials[0].phases[1].duration_ns <= slowest);
    }
    run
}

#[test]
fn ranks_work_together_and_rank_0_has_the_total() {
    let directory = tempfile::tempdir().unwrap();
    let args = [&WORK[..], &["-o", "run.json"]].concat();
    let outputs = wait(start(directory.path(), 3, &args));
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr_of(output));
    }
    let text = String::from_utf8_lossy(&outputs[0].stdout).into_owned();
    assert!(text.contains("; 3 ranks together\n") && text.contains(", rank 2 "), "{text}");
    assert!(outputs[1..].iter().all(|output| output.stdout.is_empty()), "one result");
    assert_eq!(names(directory.path()), ["run.json"]);
    assert!(!rendezvous(directory.path()).exists(), "the file of the meeting is gone");
    let run = check(&directory.path().join("run.json"), 3);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(run.parts.iter().all(|part| part.labels["host"] == host));
}

#[test]
fn the_phases_of_every_workload_have_one_barrier() {
    let directory = tempfile::tempdir().unwrap();
    let args = "probe . --size 256KiB --length 50ms --threads 2 --trials 2 --confidence off";
    let args: Vec<&str> = args.split(' ').collect();
    let outputs = wait(start(directory.path(), 2, &args));
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr_of(output));
    }
    let text = String::from_utf8_lossy(&outputs[0].stdout).into_owned();
    assert!(text.contains("  response time") && text.contains("2 ranks together"), "{text}");
    assert_eq!(names(directory.path()), [""; 0]);
}

/// Writes a replacement for ssh, whose arguments are a host and a command.
fn ssh_script(directory: &Path, script: &str) -> String {
    let path = directory.join("start");
    std::fs::write(&path, format!("#!/bin/sh\nhost=$1\nshift\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn with_hosts(directory: &Path, script: &str, args: &[&str]) -> std::process::Output {
    let ssh_script = ssh_script(directory, script);
    let program = env!("CARGO_BIN_EXE_larder");
    let hosts = ["--hosts", "left,right", "--ssh", &ssh_script, "--program", program];
    let mut command = Command::new(program);
    command.arg("bench").args(args).args(hosts).current_dir(directory);
    command.output().unwrap()
}

#[test]
fn ranks_on_hosts_talk_through_what_started_them() {
    let directory = tempfile::tempdir().unwrap();
    let args = [&WORK[..], &["-o", "run.json"]].concat();
    let output = with_hosts(directory.path(), "mkdir $host; cd $host; exec \"$@\"", &args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let run = check(&directory.path().join("run.json"), 2);
    let parts: Vec<&str> = run.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(parts, ["left", "right"]);
    assert_eq!(run.parts[1].labels["host"], "right");
    assert_eq!(names(directory.path()), ["left", "right", "run.json", "start"]);
    assert_eq!(names(&directory.path().join("left")), [""; 0]);
}

#[test]
fn a_host_where_nothing_begins_ends_it_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let script = "if [ $host = right ]; then echo 'no route' >&2; exit 255; fi; exec \"$@\"";
    let output = with_hosts(directory.path(), script, &WORK);
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("no route"), "{text}");
    assert!(text.contains("on right did not begin; what it said stands above"), "{text}");
    assert_eq!(names(directory.path()), ["start"]);
}
