//! Recording of replayed requests.

use super::rig::{
    Directory, MIB, RunningServer, counter, error_message, eventually, larder, read,
    replay_command, request_fields, requests, run_replay,
};
use larder_core::counters::Class;
use larder_lab::trace::Op;
use std::process::Command;

#[test]
fn a_replayed_trace_is_recorded_as_it_was_with_the_classes_that_were_counted() {
    let directory = Directory::new();
    // More than the cache holds, so that pages are evicted.
    let image = directory.image("disk.img", 64 * MIB);
    let records = requests(11, 20_000, 64 * MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recording = directory.path("recorded.ltr");
    let options = ["--record", recording.to_str().unwrap()];
    let server = RunningServer::start(&directory, &[&image], &options);
    let result = run_replay(&trace, &["--to", &server.uris[0]]);
    let log = server.stop();
    assert_eq!(result["complete"], true);
    assert_eq!(result["requests"], 20_000);
    assert!(log.contains("recorded 20,000 requests"), "{log}");
    let (read_back, notes) = read(&recording);
    assert!(notes.is_empty(), "{notes:?}");
    assert!(
        read_back.iter().map(request_fields).eq(records.iter().map(request_fields)),
        "the same, in the same order"
    );
    assert!(read_back.is_sorted_by_key(|record| record.time_ns));
    for class in Class::ALL {
        let count = read_back.iter().filter(|record| record.class == class.number()).count() as u64;
        assert_eq!(count, counter(&log, class.counter()), "{class:?}");
    }
    for op in Op::ALL {
        let count = records.iter().filter(|record| record.op == op).count() as u64;
        assert_eq!(result["ops"][op.name()]["requests"], count);
    }
    // A recording can itself be replayed.
    let server = RunningServer::start(&directory, &[&image], &[]);
    let arguments = ["--to", &server.uris[0], "--connections", "3", "--depth", "4"];
    assert_eq!(run_replay(&recording, &arguments)["requests"], 20_000);
    server.stop();
}

#[test]
fn a_recorder_that_was_killed_leaves_what_it_had_written() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 4 * MIB);
    let records = requests(12, 5_000, 4 * MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recording = directory.path("recorded.ltr");
    let options = ["--record", recording.to_str().unwrap()];
    let mut server = RunningServer::start(&directory, &[&image], &options);
    run_replay(&trace, &["--to", &server.uris[0]]);
    // The recording is readable while the server writes it.
    eventually("a block is written", || !read(&recording).0.is_empty());
    run_replay(&trace, &["--to", &server.uris[0]]);
    server.kill();
    let (recovered, notes) = read(&recording);
    assert!(!recovered.is_empty() && recovered.len() <= 10_000, "{}", recovered.len());
    assert!(
        recovered.iter().map(request_fields).eq(records
            .iter()
            .chain(&records)
            .take(recovered.len())
            .map(request_fields))
    );
    assert!(notes[0].starts_with("the file ends"), "{notes:?}");
    let summary = larder().args(["trace", "summary"]).arg(&recording).output().unwrap();
    assert!(summary.status.success(), "{summary:?}");
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let existing = directory.path("there.ltr");
    std::fs::write(&existing, "a letter").unwrap();
    let listen = format!("unix:{}", directory.path("socket").display());
    let serve = |file: &std::path::Path| {
        let mut command = larder();
        command.arg("serve").arg(&image).args(["--memory", "16MiB", "--listen", &listen]);
        command.arg("--record").arg(file).output().unwrap()
    };
    let stderr = error_message(&serve(&existing));
    assert!(stderr.contains("there.ltr") && stderr.contains("exists already"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&existing).unwrap(), "a letter");
    assert!(
        error_message(&serve(&directory.path("no/such/directory.ltr")))
            .contains("no/such/directory.ltr")
    );
    // A server that cannot start leaves no empty trace behind.
    std::fs::write(directory.path("socket"), "not a socket").unwrap();
    assert!(error_message(&serve(&directory.path("new.ltr"))).contains("not a socket"));
    assert!(!directory.path("new.ltr").exists());
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_service() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 4 * MIB);
    let mut records = requests(13, 20_000, 4 * MIB);
    records.retain(|record| record.op == Op::Read);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recording = directory.path("recorded.ltr");
    // Limits the files of the server to 16 KiB. The volume is read-only, and a claim is shorter
    // than that.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_larder")).arg("serve").arg(&image);
    command.args(["--write-mode", "read-only", "--record"]).arg(&recording);
    let server = RunningServer::spawn(&directory, command, 1);
    let length = || recording.metadata().unwrap().len();
    // The recording has stopped before the second replay, or stops during it.
    run_replay(&trace, &["--to", &server.uris[0]]);
    eventually("the file is full", || length() >= 16 << 10);
    let result = run_replay(&trace, &["--to", &server.uris[0]]);
    assert_eq!(result["requests"], records.len());
    let log = server.stop();
    assert!(log.contains("recording to"), "{log}");
    assert!(log.contains("is incomplete"), "{log}");
    let (_, notes) = read(&recording);
    assert!(notes[0].starts_with("the file ends within a block"), "{notes:?}");
}

#[test]
fn two_volumes_are_recorded_and_replayed_by_name() {
    let directory = Directory::new();
    let images = [directory.image("a.img", 4 * MIB), directory.image("b.img", 4 * MIB)];
    let mut records = requests(14, 4_000, 4 * MIB);
    for (record, volume) in records.iter_mut().zip([0, 1, 1].into_iter().cycle()) {
        record.volume = volume;
    }
    let trace = directory.trace("asked.ltr", &["one=nbd", "two"], &records);
    let recording = directory.path("recorded.ltr");
    let options = ["--record", recording.to_str().unwrap()];
    let server = RunningServer::start(&directory, &[&images[0], &images[1]], &options);
    let to: Vec<_> =
        ["one=nbd", "two"].iter().zip(&server.uris).map(|(n, uri)| format!("{n}={uri}")).collect();
    let result = run_replay(&trace, &["--volume", &to[0], "--volume", &to[1]]);
    assert_eq!(result["requests"], 4_000);
    let result = run_replay(
        &trace,
        &["--volume", &to[0], "--volume", &to[1], "--depth", "16", "--speed", "5"],
    );
    assert_eq!(result["requests"], 4_000);
    let one_for_both = replay_command(&trace, &["--to", &server.uris[0]]).output().unwrap();
    assert!(error_message(&one_for_both).contains("more than one volume"));
    let missing = replay_command(&trace, &["--volume", &to[0]]).output().unwrap();
    assert!(error_message(&missing).contains("no export is given for volume two"));
    let other = format!("three={}", server.uris[0]);
    let arguments = ["--volume", &to[0], "--volume", &to[1], "--volume", &other];
    let unknown = replay_command(&trace, &arguments).output().unwrap();
    assert!(error_message(&unknown).contains("no volume of the trace is called three"));
    server.stop();
    let (read_back, _) = read(&recording);
    assert_eq!(read_back.len(), 8_000);
    assert!(read_back[..4_000].iter().map(request_fields).eq(records.iter().map(request_fields)));
}
