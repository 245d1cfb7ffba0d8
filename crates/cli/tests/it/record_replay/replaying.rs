//! Effects of a replay on an export, and its error messages.

use super::rig::{
    Directory, MIB, RunningServer, bytes_at, error_message, eventually, read, replay_command,
    replay_payload, request_fields, requests, run_replay, run_with_input,
};
use larder_lab::trace::{Op, Record};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

fn request(op: Op, offset: u64, len: u64) -> Record {
    Record { op, offset, len, ..Record::default() }
}

#[test]
fn an_export_that_is_too_small_is_said_before_anything_is_written() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let records = [request(Op::Write, 0, 4096), request(Op::Read, MIB - 512, 1024)];
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let server = RunningServer::start(&directory, &[&image], &["--write-mode", "through"]);
    let to = ["--to", &server.uris[0]];
    let stderr = error_message(&replay_command(&trace, &to).output().unwrap());
    assert!(stderr.contains("record 1") && stderr.contains("(1048576 bytes)"), "{stderr}");
    assert!(stderr.contains("--wrap"), "{stderr}");
    assert_eq!(bytes_at(&image, 0), [0; 16], "nothing was written");
    // A stream cannot be read twice, so the records before the error are replayed.
    let bytes = std::fs::read(&trace).unwrap();
    let stderr = error_message(&run_with_input(replay_command("-".as_ref(), &to), &bytes));
    assert!(stderr.contains("record 1, a read"), "{stderr}");
    assert_eq!(bytes_at(&image, 0), replay_payload(0, 0));
    let result = run_replay(&trace, &["--to", &server.uris[0], "--wrap"]);
    assert_eq!((&result["wrapped"], &result["split"]), (&1.into(), &1.into()));
    assert_eq!((&result["records"], &result["requests"]), (&2.into(), &3.into()));
    server.stop();
}

#[test]
fn writes_say_where_they_are_and_who_wrote_them() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 64 * MIB);
    let records = [
        request(Op::Write, 0, 8192),
        request(Op::Write, 4096, 4096),
        // Longer than the largest request of a server.
        request(Op::Write, 8 * MIB, 40 * MIB),
        request(Op::Write, 100, 20),
        request(Op::Flush, 0, 0),
        request(Op::Read, 0, 0),
    ];
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let server = RunningServer::start(&directory, &[&image], &[]);
    let result = run_replay(&trace, &["--to", &server.uris[0]]);
    server.stop();
    assert_eq!(result["split"], 1);
    assert_eq!(result["left_out"]["empty"], 1);
    assert_eq!(result["bytes"], 8192 + 4096 + 40 * MIB + 20);
    assert_eq!(bytes_at(&image, 16), replay_payload(16, 0));
    assert_eq!(bytes_at(&image, 8192 - 16), replay_payload(8192 - 16, 1));
    assert_eq!(bytes_at(&image, 48 * MIB - 16), replay_payload(48 * MIB - 16, 2));
    assert_eq!(bytes_at(&image, 100), replay_payload(100, 3));
    assert_eq!(bytes_at(&image, 116)[..4], replay_payload(116, 3)[..4]);
}

#[test]
fn what_writes_is_left_out_on_demand_and_refused_by_a_read_only_export() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let records = requests(21, 1000, MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let server = RunningServer::start(&directory, &[&image], &["--write-mode", "read-only"]);
    let to = server.uris[0].clone();
    let stderr = error_message(&replay_command(&trace, &["--to", &to]).output().unwrap());
    assert!(stderr.contains("is read-only and cannot take record"), "{stderr}");
    let result = run_replay(&trace, &["--to", &to, "--read-only", "--speed", "100"]);
    server.stop();
    let is_kept = |record: &&Record| matches!(record.op, Op::Read | Op::Flush);
    let kept = records.iter().filter(is_kept).count();
    assert_eq!(result["requests"], kept);
    assert_eq!(result["left_out"]["read_only"], 1000 - kept);
    assert!(
        result["late_ns"]["max"].as_u64().unwrap() >= result["late_ns"]["p50"].as_u64().unwrap()
    );
}

#[test]
fn a_server_that_goes_away_is_one_sentence() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 4 * MIB);
    // Enough records that the replay still runs when the test sees the first of them recorded.
    let records = requests(22, 1_000_000, 4 * MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recording = directory.path("recorded.ltr");
    let options = ["--record", recording.to_str().unwrap()];
    let mut server = RunningServer::start(&directory, &[&image], &options);
    let arguments = ["--to", &server.uris[0].clone()];
    let mut command = replay_command(&trace, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the replay has begun", || !read(&recording).0.is_empty());
    server.kill();
    let stderr = error_message(&child.wait_with_output().unwrap());
    assert!(stderr.contains("closed the connection"), "{stderr}");
    let (recovered, _) = read(&recording);
    assert!(
        recovered
            .iter()
            .map(request_fields)
            .eq(records[..recovered.len()].iter().map(request_fields))
    );
    // The server is gone.
    assert!(
        error_message(&replay_command(&trace, &arguments).output().unwrap())
            .contains("connect to the NBD")
    );
}

#[test]
fn a_signal_stops_a_replay_which_says_what_it_did() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let records = [
        request(Op::Write, 4096, 4096),
        request(Op::Flush, 0, 0),
        Record { time_ns: 3_600_000_000_000, ..request(Op::Read, 0, 4096) },
    ];
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let server = RunningServer::start(&directory, &[&image], &[]);
    // With one request in flight, both are counted when the flush completes.
    let arguments = ["--to", &server.uris[0], "--speed", "1", "--depth", "1", "--json"];
    let mut command = replay_command(&trace, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the flush is done", || bytes_at(&image, 4096) == replay_payload(4096, 0));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["complete"], false);
    assert_eq!(result["ops"]["write"]["requests"], 1);
    assert_eq!(result["ops"]["read"]["requests"], 0);
    server.stop();
}

#[test]
fn objects_have_no_places() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let keys = directory.path("keys.u64");
    std::fs::write(&keys, 7u64.to_le_bytes()).unwrap();
    let server = RunningServer::start(&directory, &[&image], &[]);
    let stderr =
        error_message(&replay_command(&keys, &["--to", &server.uris[0]]).output().unwrap());
    assert!(stderr.contains("objects"), "{stderr}");
    server.stop();
}
