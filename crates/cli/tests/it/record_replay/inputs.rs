//! `--record-inputs` and `larder sim --level inputs`: the replay has the counters of the server.

use super::rig::{Directory, MIB, RunningServer, error_message, larder, requests, run_replay};
use crate::control::files::Mountpoint;
use crate::control::mount::mount;
use crate::control::rig::Server;
use larder_testing::can_mount;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

/// Replays a recording, checks that the replay has the same counters, and returns those of
/// `volume`.
fn replay(recording: &Path, volume: &str) -> Vec<(String, u64)> {
    let mut command = larder();
    command.args(["sim", "--level", "inputs", "--format", "json"]).arg(recording);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows["rows"].as_array().unwrap().iter().filter(|row| row["volume"] == volume);
    let row = |row: &Value| {
        assert_eq!(row["recorded"], row["replayed"], "{row}");
        (row["counter"].as_str().unwrap().to_owned(), row["recorded"].as_u64().unwrap())
    };
    rows.map(row).collect()
}

fn value(counters: &[(String, u64)], name: &str) -> u64 {
    counters.iter().find(|(counter, _)| counter == name).map_or(0, |(_, value)| *value)
}

/// Reads and writes a file in four threads, each in its own order.
fn work_on(file: &Path, bytes: u64) {
    let work = |seed: u64| {
        let file = File::options().read(true).write(true).open(file).unwrap();
        let mut buffer = vec![0; 40_000];
        for request in requests(seed, 1500, bytes - 40_960) {
            let len = usize::try_from(1 + request.offset % 39_999).unwrap();
            match request.op {
                larder_lab::trace::Op::Write => {
                    file.write_all_at(&buffer[..len], request.offset).unwrap();
                }
                larder_lab::trace::Op::Flush => file.sync_data().unwrap(),
                _ => file.read_exact_at(&mut buffer[..len], request.offset).unwrap(),
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || work(seed));
        }
    });
}

#[test]
fn the_replay_of_nbd_connections_has_the_counters_of_their_server() {
    let directory = Directory::new();
    // More than the cache holds, so that pages are evicted.
    let image = directory.image("disk.img", 64 * MIB);
    let trace = directory.trace("asked.ltr", &["disk"], &requests(21, 20_000, 64 * MIB));
    let recording = directory.path("inputs");
    let options = ["--record-inputs", recording.to_str().unwrap()];
    let server = RunningServer::start(&directory, &[&image], &options);
    let arguments = ["--to", &server.uris[0], "--connections", "4", "--depth", "8"];
    assert_eq!(run_replay(&trace, &arguments)["requests"], 20_000);
    let log = server.stop();
    assert!(log.contains(" inputs in "), "{log}");
    let counters = replay(&recording, "disk");
    let request_count = value(&counters, "read_requests") + value(&counters, "write_requests");
    assert!(request_count > 15_000 && value(&counters, "evicted_pages") > 1000, "{counters:?}");
    // A truncated recording, as a killed server leaves it, is incomplete.
    let text = fs::read_to_string(&recording).unwrap();
    fs::write(&recording, &text[..text.len() / 2]).unwrap();
    let mut command = larder();
    let output = command.args(["sim", "--level", "inputs"]).arg(&recording).output().unwrap();
    let stderr = error_message(&output);
    assert!(stderr.contains("line ") || stderr.contains("the recording is incomplete"), "{stderr}");
}

#[test]
fn a_server_that_does_not_start_leaves_no_recording() {
    let directory = Directory::new();
    let (missing, recording) = (directory.path("missing.img"), directory.path("inputs"));
    let (image, busy) = (directory.image("disk.img", MIB), directory.path("busy"));
    fs::write(&busy, "not a socket").unwrap();
    let listen = format!("unix:{}", directory.path("socket").display());
    let start = |image: &Path, options: &[&OsStr]| {
        let mut command = larder();
        command.arg("serve").arg(image).args(["--memory", "16MiB", "--listen", &listen]);
        command.arg("--record-inputs").arg(&recording).args(options);
        error_message(&command.output().unwrap())
    };
    let stderr = start(&missing, &[]);
    assert!(stderr.contains("missing.img"), "{stderr}");
    assert!(!recording.exists(), "the next start would be refused");
    let stderr = start(&image, &["--control".as_ref(), busy.as_os_str()]);
    assert!(stderr.contains("busy"), "{stderr}");
    assert!(!recording.exists(), "the next start would be refused");
}

#[test]
fn the_replay_of_a_volume_as_a_file_has_the_counters_of_its_server() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let directory = TempDir::new().unwrap();
    let recording = directory.path().join("inputs");
    let options = [
        "--record-inputs",
        recording.to_str().unwrap(),
        "--fuse",
        mountpoint.path().to_str().unwrap(),
    ];
    let server = Server::start_in(directory, &["disk"], &options);
    work_on(&mountpoint.file("disk"), 16 * MIB);
    // Changes of settings are inputs as well.
    server.ctl_text(&["set", "disk.policy=arc", "disk.page-size=16KiB", "memory=24MiB"]);
    server.ctl_text(&["drop", "disk"]);
    server.ctl_text(&["set", "memory=12MiB"]);
    work_on(&mountpoint.file("disk"), 16 * MIB);
    let (directory, _) = server.stop_and_keep();
    let counters = replay(&directory.path().join("inputs"), "disk");
    assert!(value(&counters, "read_requests") > 1000, "{counters:?}");
    assert!(value(&counters, "evicted_pages") > 100, "{counters:?}");
}

#[test]
fn the_replay_of_a_directory_has_the_counters_of_its_mount() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let directory = TempDir::new().unwrap();
    let recording = directory.path().join("inputs");
    let options = ["--rule", "*.log=through", "--record-inputs", recording.to_str().unwrap()];
    let server = mount(directory, &mountpoint, &options);
    for name in ["data", "a.log"] {
        let file = File::create(mountpoint.file(name)).unwrap();
        file.set_len(12 * MIB).unwrap();
        work_on(&mountpoint.file(name), 12 * MIB);
    }
    for number in 0..200 {
        fs::write(mountpoint.file(&format!("small{number}")), vec![1; 1 + number * 97]).unwrap();
    }
    File::options().write(true).open(mountpoint.file("data")).unwrap().set_len(1234).unwrap();
    fs::rename(mountpoint.file("small7"), mountpoint.file("small8")).unwrap();
    fs::remove_file(mountpoint.file("small9")).unwrap();
    let (directory, _) = server.stop_and_keep();
    for volume in ["source", "rule1"] {
        let counters = replay(&directory.path().join("inputs"), volume);
        assert!(value(&counters, "write_requests") > 100, "{volume}: {counters:?}");
    }
}
