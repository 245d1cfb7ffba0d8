//! Helper threads: a panic in one of them fails one function, which the log and `ctl stats` name,
//! or stops the server cleanly. No such panic goes unnoticed.

use super::{can_inject, check_refuses, check_served, faulty, mount, serve};
use crate::control::files::Mountpoint;
use crate::control::mount::source;
use crate::control::rig::{MIB, Server, eventually, text};
use larder_host::changes::Changes;
use larder_testing::{can_mount, has_tool, skip};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Checks that the log and `ctl stats` name the failed part, and that no other part has failed.
fn check_part_failed(server: &mut Server, part: &str) {
    server.wait_for_line(|line| line.contains(part) && line.contains("internal error"));
    let listed = server.ctl_text(&["stats"]);
    assert!(listed.contains(part), "{listed}");
    let parts = server.get("/v1/stats").json()["failed_parts"].clone();
    assert_eq!(parts.as_array().map(Vec::len), Some(1), "{parts}");
    assert!(parts[0].as_str().is_some_and(|found| found.contains(part)), "{parts}");
}

#[test]
fn the_panic_of_the_warm_lists_ends_them_and_is_listed() {
    if !can_inject() {
        return;
    }
    let lists = TempDir::new().unwrap();
    let mut server = serve("warm-lists=lists", &["--warm-list", lists.path().to_str().unwrap()]);
    check_part_failed(&mut server, "warm lists");
    check_served(&server, 0, 7);
    let log = server.stop();
    assert!(!log.contains("warm lists"), "it is logged once: {log}");
}

#[test]
fn the_panic_of_giving_memory_back_ends_it_and_is_listed() {
    if !can_inject() {
        return;
    }
    if !Path::new("/proc/pressure/memory").exists() {
        skip("needs pressure stall information");
        return;
    }
    let mut server = serve("give-back=memory", &["--give-back=8MiB"]);
    check_part_failed(&mut server, "memory is not given back");
    check_served(&server, 0, 7);
    server.stop();
}

#[test]
fn the_panic_of_the_watch_of_claims_is_listed() {
    if !can_inject() {
        return;
    }
    let mut server = serve("watch=claims", &[]);
    check_part_failed(&mut server, "later mounts of the same data");
    check_served(&server, 1, 7);
    server.stop();
}

#[test]
fn the_panic_of_the_thread_of_signals_stops_the_server_and_loses_nothing() {
    if !can_inject() {
        return;
    }
    let server = serve("signals=process", &[]);
    let mut client = server.client(0);
    client.write_at(MIB, &[1; 4096], false).unwrap();
    let (directory, code, log) = server.end_with(Signal::USR1);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("no more signals are received"), "{log}");
    let image = fs::read(directory.path().join("left.img")).unwrap();
    assert!(image[1 << 20..][..4096] == [1; 4096], "it is written: {log}");
}

#[test]
fn the_panic_of_the_last_writing_begins_it_again() {
    if !can_inject() {
        return;
    }
    let server = serve("main=drain", &[]);
    server.client(0).write_at(MIB, &[1; 4096], false).unwrap();
    let (directory, code, log) = server.end_with(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("writing everything begins again: internal error"), "{log}");
    let image = fs::read(directory.path().join("left.img")).unwrap();
    assert!(image[1 << 20..][..4096] == [1; 4096], "it is written: {log}");
}

#[test]
fn the_panic_of_a_control_request_fails_it_alone() {
    if !can_inject() {
        return;
    }
    // Each fault point, and the `ctl` command whose request panics.
    for (point, args) in [
        ("control=accept", ["stats"].as_slice()),
        ("control=connection", &["stats"]),
        ("control=request", &["stats"]),
        ("control=work", &["drop", "left"]),
        ("control=job", &["flush"]),
        ("control=flush", &["flush", "left"]),
    ] {
        let server = serve(point, &[]);
        let failed = server.ctl(args);
        assert!(!failed.status.success(), "{point}");
        let is_answered = !matches!(point, "control=accept" | "control=connection");
        let log = text(&[failed.stdout, failed.stderr].concat());
        assert_eq!(log.contains("internal error"), is_answered, "{point}: {log}");
        server.ctl_text(args);
        check_served(&server, 0, 7);
        // The failed request leaves nothing behind that keeps the volume busy.
        eventually("no client is connected", || server.ctl(&["remove", "left"]).status.success());
        let log = server.stop();
        assert!(log.contains("ERROR") && log.contains("a control "), "{point}: {log}");
    }
}

#[test]
fn the_panic_of_an_attempt_to_reconnect_fails_that_attempt() {
    if !can_inject() {
        return;
    }
    let upstream = serve("none=none", &[]);
    let directory = TempDir::new().unwrap();
    let mut command = faulty("reconnect=left");
    command.arg("serve").arg(format!("copy={}", upstream.uris[0])).args(["--memory", "16MiB"]);
    command.arg("--listen").arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
    let mut server = Server::spawn(directory, command, 1);
    let (upstream_directory, _) = upstream.stop_and_keep();
    let mut client = server.client(0);
    let reader = std::thread::spawn(move || {
        let mut read = [1; 4096];
        client.read_at(MIB, &mut read).map(|()| read)
    });
    server.wait_for_line(|line| line.contains("reconnect") && line.contains("internal error"));
    let _upstream = Server::start_in(upstream_directory, &["left", "right"], &[]);
    assert_eq!(reader.join().unwrap().unwrap(), [0; 4096]);
    server.stop();
}

#[test]
fn the_panic_of_the_watch_of_mounts_fails_the_mount() {
    if !can_inject() || !can_mount() {
        return;
    }
    // Without this thread, the mount could grant rights that the mount of SOURCE does not grant.
    let (mut server, mountpoint) = mount("watch=mounts", &[]);
    server.wait_for_line(|line| line.contains("the mount has failed"));
    check_refuses(&mountpoint);
    assert!(server.ctl_text(&["stats"]).contains("the mount has failed"));
    let log = server.stop();
    assert!(!mountpoint.is_mounted(), "{log}");
}

#[test]
fn the_panic_of_a_starting_thread_of_a_mount_fails_the_start() {
    if !can_inject() || !can_mount() {
        return;
    }
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    fs::create_dir(source(directory.path())).unwrap();
    let mut command = faulty(&format!("fuse={}", mountpoint.path().display()));
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control", "none"]);
    let output = command.output().unwrap();
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("internal error"), "{log}");
    assert!(!mountpoint.is_mounted(), "{log}");
}

#[test]
fn the_panic_of_the_thread_that_waits_for_the_end_of_the_input_ends_the_mount() {
    if !can_inject() || !can_mount() {
        return;
    }
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    fs::create_dir(source(directory.path())).unwrap();
    let mut command = faulty("input=process");
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control", "none", "--while-input"]);
    let child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let log = text(&output.stderr);
    assert!(log.contains("the end of the input is not seen"), "{log}");
    assert!(!mountpoint.is_mounted(), "{log}");
}

#[test]
fn the_panic_of_a_thread_that_is_told_of_changes_is_no_silent_loss() {
    if !can_inject() || !can_mount() {
        return;
    }
    if let Err(error) = Changes::of(TempDir::new().unwrap().path()) {
        skip(format_args!("cannot {error}"));
        return;
    }
    // The listener ends. From then on the mount queries SOURCE.
    let options = ["--shared", "--ttl", "1h"];
    let (mut server, mountpoint) = mount("changes=source", &options);
    let stored = source(server.directory.path()).join("old");
    assert_eq!(fs::metadata(mountpoint.file("old")).unwrap().len(), 100_000);
    fs::write(&stored, "theirs").unwrap();
    check_part_failed(&mut server, "SOURCE is not watched for changes any more");
    eventually("the size is seen", || fs::metadata(mountpoint.file("old")).unwrap().len() == 6);
    fs::write(&stored, "more of theirs").unwrap();
    eventually("and the next", || fs::metadata(mountpoint.file("old")).unwrap().len() == 14);
    server.stop();
    // The thread that notifies the kernel ends the mount.
    let (mut server, mountpoint) = mount("notifier", &options);
    let stored = source(server.directory.path()).join("old");
    assert_eq!(fs::metadata(mountpoint.file("old")).unwrap().len(), 100_000);
    fs::write(&stored, "theirs").unwrap();
    server.wait_for_line(|line| line.contains("the mount has failed"));
    check_refuses(&mountpoint);
    server.stop();
}

/// A Python program that maps a file, reads the mapping, and writes to the file. Its argument is
/// the file. It prints the errno of the write, or 0.
const WRITE_MAPPED_FILE: &str = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(file, 0)
pages[0]
try:
    os.pwrite(file, b'x' * 4096, 0)
    print(0)
except OSError as error:
    print(error.errno)
";

#[test]
fn the_panic_of_a_thread_that_writes_beside_pages_fails_the_mount_with_eio() {
    if !can_inject() || !can_mount() || !has_tool("python3") {
        return;
    }
    for kind in ["page-writer", "page-dropper", "late-answers"] {
        let (mut server, mountpoint) = mount(kind, &[]);
        if kind != "late-answers" {
            let mut python = Command::new("python3");
            python.args(["-c", WRITE_MAPPED_FILE]).arg(mountpoint.file("old"));
            let log = text(&python.output().unwrap().stdout);
            assert_eq!(log.trim(), libc::EIO.to_string(), "{kind}: it is answered");
        }
        server.wait_for_line(|line| line.contains("the mount has failed"));
        check_refuses(&mountpoint);
        let log = server.stop();
        assert!(!mountpoint.is_mounted(), "{kind}: {log}");
        assert!(!log.contains("still waits"), "{kind}: {log}");
    }
}
