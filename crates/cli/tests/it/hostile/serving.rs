//! Names of volumes, mounted files and processes, which `ctl`, `serve`, `mount` and `watch` print.

use super::names::{HOSTILE, check_output};
use crate::shared::program::program;
use larder_testing::{MachineLock, can_mount, is_root};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Waits for the line that reports readiness, and returns it with the rest of the output.
pub(super) fn start(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // Byte by byte, so that the rest stays in the pipe.
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// Ends the program, and checks all its output.
pub(super) fn stop(child: Child, line: String) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.splice(0..0, line.into_bytes());
    check_output("the server", &output);
}

pub(super) fn ctl(directory: &TempDir, args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(["ctl", "--control"]).arg(directory.path().join("control")).args(args);
    let output = command.output().unwrap();
    check_output(&format!("ctl {args:?}"), &output);
    output
}

#[test]
fn paths_of_images_and_names_of_volumes_do_not_control_the_terminal_of_a_server() {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join(format!("{HOSTILE}.img"));
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let mut volume = std::ffi::OsString::from("plain=");
    volume.push(&image);
    let mut command = Command::new(program());
    command.arg("serve").arg(volume).args(["--memory", "16MiB", "--control"]);
    command.arg(directory.path().join("control")).arg("--listen");
    command.arg(format!("unix:{}", directory.path().join("nbd").display()));
    command.env("LARDER_LOG", "debug");
    let (child, line) = start(&mut command);
    for format in [&[][..], &["--format", "json"], &["--format", "csv"]] {
        for args in [&["stats"][..], &["volumes"], &["at-risk"], &["curve"]] {
            let output = ctl(&directory, &[args, format].concat());
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for args in [&["add", HOSTILE][..], &["remove", HOSTILE], &["set", HOSTILE]] {
            let output = ctl(&directory, &[args, format].concat());
            assert!(!output.status.success());
        }
    }
    stop(child, line);
}

#[test]
fn names_of_mounted_files_do_not_control_the_terminal() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (source, at) = (directory.path().join(HOSTILE), TempDir::new().unwrap());
    fs::create_dir(&source).unwrap();
    fs::write(source.join(HOSTILE), vec![1; 70_000]).unwrap();
    let mut command = Command::new(program());
    command.arg("mount").arg(&source).arg(at.path()).args(["--memory", "16MiB", "--control"]);
    command.arg(directory.path().join("control")).env("LARDER_LOG", "debug");
    let (child, line) = start(&mut command);
    assert!(line.starts_with("mounted $'"), "{line}");
    fs::read(at.path().join(HOSTILE)).unwrap();
    for format in [&[][..], &["--format", "json"], &["--format", "csv"]] {
        for args in [&["files"][..], &["volumes"], &["stats"], &["at-risk"]] {
            let output = ctl(&directory, &[args, format].concat());
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    let shown = String::from_utf8(ctl(&directory, &["files"]).stdout).unwrap();
    assert!(shown.contains("\\033[2J"), "{shown}");
    stop(child, line);
}

/// An internal error is reported with the name of what has failed, here the mountpoint.
#[test]
fn names_in_a_panic_do_not_control_the_terminal() {
    if !can_mount() || !cfg!(debug_assertions) || std::env::var_os("LARDER_BINARY").is_some() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (source, at) = (directory.path().join("source"), directory.path().join(HOSTILE));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&at).unwrap();
    let mut command = Command::new(program());
    command.arg("mount").arg(&source).arg(&at).args(["--memory", "16MiB", "--control"]);
    command.arg(directory.path().join("control")).env("RUST_BACKTRACE", "1");
    command.env("LARDER_FAULT", format!("mount={}", at.display()));
    let (child, line) = start(&mut command);
    assert!(fs::metadata(at.join("x")).is_err());
    let listed = String::from_utf8(ctl(&directory, &["stats"]).stdout).unwrap();
    assert!(listed.contains("internal error"), "{listed}");
    stop(child, line);
}

#[test]
fn names_of_watched_files_and_processes_do_not_control_the_terminal() {
    if !is_root() {
        return;
    }
    let _tracefs = MachineLock::shared("tracefs");
    let directory = TempDir::new().unwrap();
    let file = directory.path().join(HOSTILE);
    fs::write(&file, vec![1; 70_000]).unwrap();
    // The name of a process is the file name of its program.
    let reader = directory.path().join("r\u{1b}[2J\nSPOOF");
    fs::copy("/bin/cat", &reader).unwrap();
    let mut watch = Command::new(program());
    watch.args(["watch", "--for", "3s", "--interval", "1s"]).arg(&file);
    let child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
        let mut read = Command::new(&reader);
        read.arg(&file).stdout(Stdio::null()).status().unwrap();
    }
    check_output("watch", &child.wait_with_output().unwrap());
}

/// Returns true if the process is a zombie.
fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}
