//! Limits of the process: the size of files, and file descriptors. The server keeps running,
//! reports the limit, and loses no data.

use super::files::{LAZY, Mountpoint};
use super::mount::source;
use super::rig::{MIB, Server, eventually, images, larder, text};
use crate::cold::rig::Loop;
use larder_io::nbd_client::{Client, ClientError, ZeroFlags};
use larder_testing::{can_mount, has_tool};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Returns `command` under limits set by prlimit(1).
fn limited(limits: &[&str], command: &Command) -> Command {
    let mut limited = Command::new("prlimit");
    limited.args(limits).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    limited
}

/// Changes limits of a running server.
fn change_limits(server: &Server, limits: &[&str]) {
    let pid = server.pid().to_string();
    let changed = Command::new("prlimit").args(["--pid", &pid]).args(limits).output().unwrap();
    assert!(changed.status.success(), "{}", text(&changed.stderr));
}

fn serve(directory: TempDir, names: &[&str], limits: &[&str]) -> Server {
    let mut command = larder();
    command.arg("serve").args(images(directory.path(), names)).args(["--memory", "16MiB"]);
    command.args(LAZY).arg("--listen");
    command.arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
    Server::spawn(directory, limited(limits, &command), names.len())
}

#[test]
fn the_descriptors_of_clients_that_have_left_are_closed_without_a_next_client() {
    let server = Server::start(&["disk"], &[]);
    let clients: Vec<_> = (0..16).map(|_| server.client(0)).collect();
    // Each client has two descriptors. The server may still open other files.
    let most = server.open_files() - clients.len();
    drop(clients);
    eventually("fewer descriptors", || server.open_files() <= most);
    server.stop();
}

#[test]
fn a_limit_on_the_size_of_files_fails_writes_and_loses_nothing() {
    if !has_tool("prlimit") {
        return;
    }
    let mut server = serve(TempDir::new().unwrap(), &["disk"], &["--fsize=4194304:"]);
    let note = server.wait_for_line(|line| line.contains("RLIMIT_FSIZE"));
    assert!(note.contains("disk.img beyond its first 4194304 bytes will fail"), "{note}");
    let mut client = server.client(0);
    client.write_at(MIB, &[1; 4096], false).unwrap();
    client.flush().unwrap();
    // One write inside, one across, and one beyond the limit.
    for (at, len) in [(2 * MIB, 4096), (4 * MIB - 4096, 8192), (8 * MIB, 4096)] {
        client.write_at(at, &vec![2; len], false).unwrap();
    }
    let error = client.flush().unwrap_err();
    assert!(error.to_string().contains("File too large"), "{error}");
    assert!(client.write_at(9 * MIB, &[3; 4096], true).is_err(), "it is written through");
    let listed = server.ctl(&["at-risk"]);
    assert_eq!(listed.status.code(), Some(1));
    let stdout = text(&listed.stdout);
    assert!(stdout.contains("failing: bytes 8388608 to 8392704"), "{stdout}");
    let mut read = [0; 4096];
    client.read_at(8 * MIB, &mut read).unwrap();
    assert_eq!(read, [2; 4096], "it is kept");
    change_limits(&server, &["--fsize=unlimited:"]);
    eventually("the kept data is written", || client.flush().is_ok());
    client.disconnect().unwrap();
    let (directory, _) = server.stop_and_keep();
    let image = fs::read(directory.path().join("disk.img")).unwrap();
    for (at, len, byte) in [
        (1 << 20, 4096, 1),
        (2 << 20, 4096, 2),
        ((4 << 20) - 4096, 8192, 2),
        (8 << 20, 4096, 2),
        (9 << 20, 4096, 3),
    ] {
        assert!(image[at..at + len].iter().all(|found| *found == byte), "{len} bytes at {at}");
    }
}

#[test]
fn a_quota_that_is_used_up_fails_writes_and_loses_nothing() {
    if !has_tool("btrfs") {
        return;
    }
    let Some(disk) = Loop::with("btrfs") else { return };
    let quota = |args: &[&str]| {
        let output = Command::new("btrfs").args(args).arg(disk.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    quota(&["quota", "enable"]);
    quota(&["qgroup", "limit", "4M"]);
    let server = serve(TempDir::new_in(disk.path()).unwrap(), &["disk"], &["--core=0"]);
    let mut client = server.client(0);
    let block = |number: u8| vec![number; 1 << 20];
    for number in 0..6 {
        client.write_at(u64::from(number) * MIB, &block(number + 1), false).unwrap();
    }
    let error = client.flush().unwrap_err();
    assert!(error.to_string().contains("Disk quota exceeded"), "{error}");
    assert!(text(&server.ctl(&["at-risk"]).stdout).contains("failing: bytes "));
    quota(&["qgroup", "limit", "none"]);
    eventually("what was kept is written", || client.flush().is_ok());
    client.disconnect().unwrap();
    let (directory, _) = server.stop_and_keep();
    let image = fs::read(directory.path().join("disk.img")).unwrap();
    assert!(
        (0..6).all(|number| { image[usize::from(number) << 20..][..1 << 20] == block(number + 1) })
    );
}

#[test]
fn a_zeroing_beyond_the_limit_on_the_size_of_files_does_not_end_the_server() {
    if !has_tool("prlimit") {
        return;
    }
    for plain in [&[][..], &["--plain-io"]] {
        let directory = TempDir::new().unwrap();
        let mut command = larder();
        command.arg("serve").args(images(directory.path(), &["disk"])).args(["--memory", "16MiB"]);
        command.args(plain).args(["--write-mode", "through", "--listen"]);
        command.arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
        let server = Server::spawn(directory, limited(&["--fsize=4194304:"], &command), 1);
        let mut client = server.client(0);
        // The server answers each request, whether the limit allows it or not.
        for no_hole in [false, true] {
            let flags = ZeroFlags { no_hole, ..ZeroFlags::default() };
            let _answered = client.write_zeroes(8 * MIB, 65536, flags).is_ok();
        }
        assert!(client.write_at(8 * MIB, &[1; 4096], false).is_err(), "written through");
        client.write_at(0, &[1; 4096], false).unwrap();
        client.disconnect().unwrap();
        change_limits(&server, &["--fsize=unlimited:"]);
        server.stop();
    }
}

#[test]
fn files_of_a_mount_beyond_the_limit_on_their_size_fail_and_are_kept() {
    if !can_mount() || !has_tool("prlimit") {
        return;
    }
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    fs::create_dir(source(directory.path())).unwrap();
    let mut command = larder();
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control"]).arg(directory.path().join("nbd.control"));
    command.args(LAZY);
    let mut server = Server::spawn(directory, limited(&["--fsize=1048576:"], &command), 1);
    server.wait_for_line(|line| line.contains("beyond their first 1048576 bytes"));
    fs::write(mountpoint.file("small"), vec![1; 100_000]).unwrap();
    fs::write(mountpoint.file("large"), vec![2; 2_000_000]).unwrap();
    File::open(mountpoint.file("small")).unwrap().sync_all().unwrap();
    let large = File::open(mountpoint.file("large")).unwrap();
    let error = large.sync_all().unwrap_err();
    assert!([libc::ENOSPC, libc::EFBIG].contains(&error.raw_os_error().unwrap()), "{error}");
    assert!(fs::read(mountpoint.file("large")).unwrap() == vec![2; 2_000_000], "it is kept");
    // The limit also applies to lengths that the mount sets.
    let grown = File::create(mountpoint.file("grown")).unwrap();
    assert!(grown.set_len(4 << 20).is_err(), "beyond the limit");
    drop(grown);
    change_limits(&server, &["--fsize=unlimited:"]);
    eventually("the kept data is written", || large.sync_all().is_ok());
    drop(large);
    let (directory, _) = server.stop_and_keep();
    let stored = |name: &str| fs::read(source(directory.path()).join(name)).unwrap();
    assert!(stored("small") == vec![1; 100_000] && stored("large") == vec![2; 2_000_000]);
}

/// Runs a command with a file size limit of 8 KiB.
fn run_with_small_files(directory: &TempDir, args: &[&str]) -> Output {
    let mut command = larder();
    command.args(args);
    limited(&["--fsize=8192"], &command).current_dir(directory.path()).output().unwrap()
}

#[test]
fn commands_that_write_files_outlive_the_limit_on_their_size() {
    if !has_tool("prlimit") {
        return;
    }
    let directory = TempDir::new().unwrap();
    for args in [
        &["trace", "synth", "zipf", "large.csv", "--requests", "100000"][..],
        &["trace", "synth", "zipf", "large.ltr", "--requests", "1000000"],
        &["trace", "record", "live.ltr", "--for", "1h"],
    ] {
        let output = run_with_small_files(&directory, args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {:?}: {stderr}", output.status);
        let errors: Vec<_> =
            stderr.lines().filter(|line| line.contains("larder: cannot")).collect();
        assert_eq!(errors.len(), 1, "{args:?}: {stderr}");
        if args[1] == "synth" {
            assert!(errors[0].contains("file too large"), "{args:?}: {stderr}");
        }
    }
}

fn connect(server: &Server) -> Result<Client, ClientError> {
    Client::connect(&server.uris[0].parse().unwrap())
}

#[test]
fn clients_beyond_the_limit_on_descriptors_wait_and_are_served_when_others_leave() {
    if !has_tool("prlimit") {
        return;
    }
    // A connection needs two descriptors. With one limit its socket is refused, with the other its
    // second descriptor.
    for limit in ["--nofile=40:40", "--nofile=41:41"] {
        clients_beyond_the_limit_on_descriptors_are_served_later(limit);
    }
}

fn clients_beyond_the_limit_on_descriptors_are_served_later(limit: &str) {
    let mut server = serve(TempDir::new().unwrap(), &["disk"], &[limit]);
    let mut first = connect(&server).unwrap();
    first.write_at(0, &[1; 4096], false).unwrap();
    let path = server.path("nbd.sock");
    let crowd: Vec<_> = (0..60).map(|_| UnixStream::connect(&path).unwrap()).collect();
    server
        .wait_for_line(|line| line.contains("cannot be accepted") || line.contains("a thread for"));
    first.write_at(4096, &[2; 4096], false).unwrap();
    first.flush().unwrap();
    drop(crowd);
    eventually("there is room again", || connect(&server).is_ok());
    first.disconnect().unwrap();
    // A stop needs no descriptor; none is free here.
    let crowd: Vec<_> = (0..60).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
    let warnings = log.lines().filter(|line| line.contains("cannot be accepted")).count();
    assert!(warnings <= 2, "one warning per refusal: {log}");
    drop(crowd);
}

#[test]
fn more_files_than_descriptors_are_no_error_of_a_program() {
    if !can_mount() || !has_tool("prlimit") || !has_tool("setpriv") {
        return;
    }
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    for name in ["a", "b", "c"] {
        let directory = source(directory.path()).join(name);
        fs::create_dir_all(&directory).unwrap();
        for number in 0..700 {
            fs::write(directory.join(number.to_string()), number.to_string()).unwrap();
        }
    }
    let mut command = larder();
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control", "none", "--ttl", "1h"]);
    // Without this capability root cannot raise the limit.
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]);
    unprivileged.arg(command.get_program()).args(command.get_args());
    let limited = limited(&["--nofile=512:512"], &unprivileged);
    let server = Server::spawn(directory, limited, 1);
    for _ in 0..2 {
        for name in ["a", "b", "c"] {
            let directory = mountpoint.file(name);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 700);
            for number in 0..700 {
                let read = fs::read_to_string(directory.join(number.to_string()));
                assert_eq!(read.unwrap(), number.to_string());
            }
            for number in 0..300 {
                let new = directory.join(format!("new{number}"));
                fs::write(&new, "new").unwrap();
                fs::remove_file(&new).unwrap();
            }
        }
    }
    let descriptors = server.open_files();
    assert!(descriptors < 512, "{descriptors} descriptors");
    server.stop();
}

#[test]
fn clients_that_do_not_read_their_responses_hold_a_few_bodies_in_memory() {
    let directory = TempDir::new().unwrap();
    let mut command = larder();
    command.arg("serve");
    for path in images(directory.path(), &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        command.arg(format!("{}={}", stem.repeat(255), path.display()));
    }
    command.args(["--memory", "32MiB", "--listen"]);
    command.arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
    let server = Server::spawn(directory, command, 10);
    let peak_bytes = || -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    let one = server.get("/metrics").body.len();
    // Two bodies are smaller than the limit of the server, so it creates a third.
    assert!(one > 700_000, "{one} bytes");
    let before = peak_bytes();
    let clients: Vec<_> = (0..14)
        .map(|_| {
            let mut client = UnixStream::connect(server.socket()).unwrap();
            client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            client
        })
        .collect();
    std::thread::sleep(Duration::from_secs(3));
    let more = peak_bytes() - before;
    assert!(more < 6 * one, "{} bodies", more / one);
    // Requests with small responses do not wait.
    assert_eq!(server.post("/v1/unfreeze", "").status, 200);
    let waiter = std::thread::spawn({
        let mut client = clients[13].try_clone().unwrap();
        move || client.read_exact(&mut [0; 1024])
    });
    drop(clients);
    waiter.join().unwrap().expect("it is served when the others have left");
    assert_eq!(server.get("/metrics").status, 200);
    server.stop();
}
