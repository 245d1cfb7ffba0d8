//! What is replayed is recorded.

use super::rig::{
    Directory, MIB, Served, asked, counter, eventually, failure, larder, read, replay, replayed,
    requests,
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
    let recorded = directory.path("recorded.ltr");
    let options = ["--record", recorded.to_str().unwrap()];
    let served = Served::start(&directory, &[&image], &options);
    let result = replayed(&trace, &["--to", &served.uris[0]]);
    let said = served.stop();
    assert_eq!(result["complete"], true);
    assert_eq!(result["requests"], 20_000);
    assert!(said.contains("recorded 20,000 requests"), "{said}");
    let (again, notes) = read(&recorded);
    assert!(notes.is_empty(), "{notes:?}");
    assert!(again.iter().map(asked).eq(records.iter().map(asked)), "the same, in the same order");
    assert!(again.is_sorted_by_key(|record| record.time_ns));
    for class in Class::ALL {
        let count = again.iter().filter(|record| record.class == class.number()).count() as u64;
        assert_eq!(count, counter(&said, class.counter()), "{class:?}");
    }
    for op in Op::ALL {
        let count = records.iter().filter(|record| record.op == op).count() as u64;
        assert_eq!(result["ops"][op.name()]["requests"], count);
    }
    // A recording can be replayed in its turn.
    let served = Served::start(&directory, &[&image], &[]);
    let arguments = ["--to", &served.uris[0], "--connections", "3", "--depth", "4"];
    assert_eq!(replayed(&recorded, &arguments)["requests"], 20_000);
    served.stop();
}

#[test]
fn a_recorder_that_was_killed_leaves_what_it_had_written() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 4 * MIB);
    let records = requests(12, 5_000, 4 * MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recorded = directory.path("recorded.ltr");
    let options = ["--record", recorded.to_str().unwrap()];
    let mut served = Served::start(&directory, &[&image], &options);
    replayed(&trace, &["--to", &served.uris[0]]);
    // While it is written it can be read.
    eventually("a block is written", || !read(&recorded).0.is_empty());
    replayed(&trace, &["--to", &served.uris[0]]);
    served.kill();
    let (left, notes) = read(&recorded);
    assert!(!left.is_empty() && left.len() <= 10_000, "{}", left.len());
    assert!(left.iter().map(asked).eq(records.iter().chain(&records).take(left.len()).map(asked)));
    assert!(notes[0].starts_with("the file was cut short behind record"), "{notes:?}");
    let summary = larder().args(["trace", "summary"]).arg(&recorded).output().unwrap();
    assert!(summary.status.success(), "{summary:?}");
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let directory = Directory::new();
    let image = directory.image("disk.img", MIB);
    let there = directory.path("there.ltr");
    std::fs::write(&there, "a letter").unwrap();
    let listen = format!("unix:{}", directory.path("socket").display());
    let serve = |file: &std::path::Path| {
        let mut command = larder();
        command.arg("serve").arg(&image).args(["--memory", "16MiB", "--listen", &listen]);
        command.arg("--record").arg(file).output().unwrap()
    };
    let said = failure(&serve(&there));
    assert!(said.contains("there.ltr") && said.contains("exists already"), "{said}");
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "a letter");
    assert!(
        failure(&serve(&directory.path("no/such/directory.ltr"))).contains("no/such/directory.ltr")
    );
    // Who cannot serve leaves no empty trace behind.
    std::fs::write(directory.path("socket"), "not a socket").unwrap();
    assert!(failure(&serve(&directory.path("new.ltr"))).contains("not a socket"));
    assert!(!directory.path("new.ltr").exists());
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_service() {
    let directory = Directory::new();
    let image = directory.image("disk.img", 4 * MIB);
    let mut records = requests(13, 20_000, 4 * MIB);
    records.retain(|record| record.op == Op::Read);
    let trace = directory.trace("asked.ltr", &["disk"], &records);
    let recorded = directory.path("recorded.ltr");
    // Files of this process may have 16 KiB; the volume is read-only, and a claim is shorter.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_larder")).arg("serve").arg(&image);
    command.args(["--write-mode", "read-only", "--record"]).arg(&recorded);
    let served = Served::spawn(&directory, command, 1);
    let length = || recorded.metadata().unwrap().len();
    // The second replay meets a recording that has stopped, or stops then.
    replayed(&trace, &["--to", &served.uris[0]]);
    eventually("the file is full", || length() >= 16 << 10);
    let result = replayed(&trace, &["--to", &served.uris[0]]);
    assert_eq!(result["requests"], records.len());
    let said = served.stop();
    assert!(said.contains("recording to"), "{said}");
    assert!(said.contains("is not whole"), "{said}");
    let (_, notes) = read(&recorded);
    assert!(notes[0].contains("cut short"), "{notes:?}");
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
    let recorded = directory.path("recorded.ltr");
    let options = ["--record", recorded.to_str().unwrap()];
    let served = Served::start(&directory, &[&images[0], &images[1]], &options);
    let to: Vec<_> =
        ["one=nbd", "two"].iter().zip(&served.uris).map(|(n, uri)| format!("{n}={uri}")).collect();
    let result = replayed(&trace, &["--volume", &to[0], "--volume", &to[1]]);
    assert_eq!(result["requests"], 4_000);
    let result = replayed(
        &trace,
        &["--volume", &to[0], "--volume", &to[1], "--depth", "16", "--speed", "5"],
    );
    assert_eq!(result["requests"], 4_000);
    let one_for_both = replay(&trace, &["--to", &served.uris[0]]).output().unwrap();
    assert!(failure(&one_for_both).contains("more than one volume"));
    let missing = replay(&trace, &["--volume", &to[0]]).output().unwrap();
    assert!(failure(&missing).contains("no export is given for volume two"));
    let other = format!("three={}", served.uris[0]);
    let arguments = ["--volume", &to[0], "--volume", &to[1], "--volume", &other];
    let unknown = replay(&trace, &arguments).output().unwrap();
    assert!(failure(&unknown).contains("no volume of the trace is called three"));
    served.stop();
    let (again, _) = read(&recorded);
    assert_eq!(again.len(), 8_000);
    assert!(again[..4_000].iter().map(asked).eq(records.iter().map(asked)));
}
