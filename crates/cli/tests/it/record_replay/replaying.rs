//! What a replay does to an export, and what it says when it cannot.

use super::rig::{
    Directory, MIB, Served, asked, bytes_at, eventually, failure, output_of, read, replay,
    replayed, requests, written,
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
    let served = Served::start(&directory, &[&image], &["--write-mode", "through"]);
    let to = ["--to", &served.uris[0]];
    let said = failure(&replay(&trace, &to).output().unwrap());
    assert!(said.contains("ends at byte 1048576, before record 1"), "{said}");
    assert!(said.contains("--wrap"), "{said}");
    assert_eq!(bytes_at(&image, 0), [0; 16], "nothing was written");
    // A stream cannot be read twice: what comes before the error is done.
    let bytes = std::fs::read(&trace).unwrap();
    let said = failure(&output_of(replay("-".as_ref(), &to), &bytes));
    assert!(said.contains("before record 1"), "{said}");
    assert_eq!(bytes_at(&image, 0), written(0, 0));
    let result = replayed(&trace, &["--to", &served.uris[0], "--wrap"]);
    assert_eq!((&result["wrapped"], &result["split"]), (&1.into(), &1.into()));
    assert_eq!((&result["records"], &result["requests"]), (&2.into(), &3.into()));
    served.stop();
}

#[test]
fn writes_say_where_they_are_and_who_wrote_them() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 64 * MIB);
    let records = [
        request(Op::Write, 0, 8192),
        request(Op::Write, 4096, 4096),
        // Longer than a server takes at once.
        request(Op::Write, 8 * MIB, 40 * MIB),
        request(Op::Write, 100, 20),
        request(Op::Flush, 0, 0),
        request(Op::Read, 0, 0),
    ];
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let served = Served::start(&directory, &[&image], &[]);
    let result = replayed(&trace, &["--to", &served.uris[0]]);
    served.stop();
    assert_eq!(result["split"], 1);
    assert_eq!(result["left_out"]["empty"], 1);
    assert_eq!(result["bytes"], 8192 + 4096 + 40 * MIB + 20);
    assert_eq!(bytes_at(&image, 16), written(16, 0));
    assert_eq!(bytes_at(&image, 8192 - 16), written(8192 - 16, 1));
    assert_eq!(bytes_at(&image, 48 * MIB - 16), written(48 * MIB - 16, 2));
    assert_eq!(bytes_at(&image, 100), written(100, 3));
    assert_eq!(bytes_at(&image, 116)[..4], written(116, 3)[..4]);
}

#[test]
fn what_writes_is_left_out_on_demand_and_refused_by_a_read_only_export() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let records = requests(21, 1000, MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let served = Served::start(&directory, &[&image], &["--write-mode", "read-only"]);
    let to = served.uris[0].clone();
    let said = failure(&replay(&trace, &["--to", &to]).output().unwrap());
    assert!(said.contains("is read-only and cannot take record"), "{said}");
    let result = replayed(&trace, &["--to", &to, "--read-only", "--speed", "100"]);
    served.stop();
    let stays = |record: &&Record| matches!(record.op, Op::Read | Op::Flush);
    let stay = records.iter().filter(stays).count();
    assert_eq!(result["requests"], stay);
    assert_eq!(result["left_out"]["read_only"], 1000 - stay);
    assert!(
        result["late_ns"]["max"].as_u64().unwrap() >= result["late_ns"]["p50"].as_u64().unwrap()
    );
}

#[test]
fn a_server_that_goes_away_is_one_sentence() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 4 * MIB);
    // Enough for longer than it takes to see that it has begun.
    let records = requests(22, 1_000_000, 4 * MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recorded = directory.path("recorded.ltr");
    let options = ["--record", recorded.to_str().unwrap()];
    let mut served = Served::start(&directory, &[&image], &options);
    let arguments = ["--to", &served.uris[0].clone()];
    let mut command = replay(&trace, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the replay has begun", || !read(&recorded).0.is_empty());
    served.kill();
    let said = failure(&child.wait_with_output().unwrap());
    assert!(said.contains("closed the connection"), "{said}");
    let (left, _) = read(&recorded);
    assert!(left.iter().map(asked).eq(records[..left.len()].iter().map(asked)));
    // Nobody is there any more.
    assert!(failure(&replay(&trace, &arguments).output().unwrap()).contains("connect to the NBD"));
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
    let served = Served::start(&directory, &[&image], &[]);
    // One at a time: when the flush is answered, both are counted.
    let arguments = ["--to", &served.uris[0], "--speed", "1", "--depth", "1", "--json"];
    let mut command = replay(&trace, &arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the flush is done", || bytes_at(&image, 4096) == written(4096, 0));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["complete"], false);
    assert_eq!(result["ops"]["write"]["requests"], 1);
    assert_eq!(result["ops"]["read"]["requests"], 0);
    served.stop();
}

#[test]
fn objects_have_no_places() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let keys = directory.path("keys.u64");
    std::fs::write(&keys, 7u64.to_le_bytes()).unwrap();
    let served = Served::start(&directory, &[&image], &[]);
    let said = failure(&replay(&keys, &["--to", &served.uris[0]]).output().unwrap());
    assert!(said.contains("objects"), "{said}");
    served.stop();
}
