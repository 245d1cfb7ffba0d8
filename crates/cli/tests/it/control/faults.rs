//! Internal errors: a thread of each kind panics, and only its connection, its mount or its volume
//! fails; its dirty data is listed and kept, and no data of others is lost.
//!
//! Only debug builds have the fault points.

mod helpers;

use super::files::{LAZY, Mountpoint};
use super::mount::source;
use super::rig::{MIB, Server, eventually, images, larder, text};
use larder_testing::{can_mount, skip};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use tempfile::TempDir;

/// Returns true if the program has fault points.
fn can_inject() -> bool {
    let can = cfg!(debug_assertions) && std::env::var_os("LARDER_BINARY").is_none();
    if !can {
        skip("needs a program with debug assertions");
    }
    can
}

/// Returns the program, with a fault point armed for a thread of this kind.
fn faulty(point: &str) -> Command {
    let mut command = larder();
    command.env("LARDER_FAULT", point);
    command
}

/// Starts a server of the volumes `left` and `right`, with a fault point armed.
fn serve(point: &str, options: &[&str]) -> Server {
    let directory = TempDir::new().unwrap();
    let mut command = faulty(point);
    command.arg("serve").args(images(directory.path(), &["left", "right"]));
    command.args(["--memory", "16MiB"]).args(LAZY).args(options).arg("--listen");
    command.arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
    Server::spawn(directory, command, 2)
}

/// Writes to a volume and flushes, so that the image has the data.
fn check_served(server: &Server, volume: usize, byte: u8) {
    let mut client = server.client(volume);
    client.write_at(5 * MIB, &[byte; 8192], false).unwrap();
    client.flush().unwrap();
    let mut read = [0; 8192];
    client.read_at(5 * MIB, &mut read).unwrap();
    assert_eq!(read, [byte; 8192]);
    client.disconnect().unwrap();
    let image = File::open(server.path(["left.img", "right.img"][volume])).unwrap();
    let mut stored = [0; 8192];
    image.read_exact_at(&mut stored, 5 * MIB).unwrap();
    assert_eq!(stored, [byte; 8192]);
}

#[test]
fn the_panic_of_a_store_fails_its_volume_and_no_other() {
    if !can_inject() {
        return;
    }
    let mut server = serve("store=left", &[]);
    let (mut left, mut right) = (server.client(0), server.client(1));
    for client in [&mut left, &mut right] {
        client.write_at(MIB, &[1; 4096], false).unwrap();
        client.write_at(3 * MIB, &[2; 8192], false).unwrap();
    }
    let error = left.flush().unwrap_err().to_string();
    assert!(error.contains("internal error"), "requests under way are answered: {error}");
    let log = server.wait_for_line(|line| line.contains("the volume has failed"));
    let ranges = "12 KiB: bytes 1048576 to 1052672, 3145728 to 3153920";
    assert!(log.contains("left") && log.contains(ranges), "{log}");
    let mut read = [0; 4096];
    assert!(left.read_at(MIB, &mut read).is_err(), "not even what is in the cache");
    assert!(left.read_at(9 * MIB, &mut read).is_err());
    assert!(left.write_at(MIB, &[3; 4096], false).is_err());
    assert!(left.flush().is_err() && left.trim(0, 65536, false).is_err());
    let listed = server.ctl(&["at-risk"]);
    assert_eq!(listed.status.code(), Some(1));
    let listed = text(&listed.stdout);
    for range in ["left: failing: bytes 1048576 to 1052672", "left: failing: bytes 3145728 to"] {
        assert!(listed.contains(range), "{listed}");
    }
    right.flush().unwrap();
    check_served(&server, 1, 7);
    // The server keeps the volume until its data is given up.
    left.disconnect().unwrap();
    let mut stderr = String::new();
    eventually("no client is connected to it", || {
        stderr = text(&server.ctl(&["remove", "left"]).stderr);
        !stderr.contains("connected")
    });
    assert!(stderr.contains("internal error"), "{stderr}");
    server.ctl_text(&["remove", "left", "--give-up"]);
    let log = server.wait_for_line(|line| line.contains("given up"));
    assert!(log.contains("bytes 1048576 to 1052672"), "{log}");
    assert!(server.ctl(&["at-risk"]).status.success());
    // Another process may serve the image again: the server does not hold it.
    let before = fs::read(server.path("left.img")).unwrap();
    assert!(before.iter().all(|byte| *byte == 0), "nothing of it was written");
    right.disconnect().unwrap();
    check_served(&server, 1, 8);
    let image = fs::read(server.path("right.img")).unwrap();
    assert!(image[1 << 20..][..4096] == [1; 4096] && image[3 << 20..][..8192] == [2; 8192]);
    server.stop();
}

#[test]
fn a_stop_names_what_a_failed_volume_loses_and_writes_the_others() {
    if !can_inject() {
        return;
    }
    let server = serve("store=left", &[]);
    let (mut left, mut right) = (server.client(0), server.client(1));
    left.write_at(MIB, &[1; 4096], false).unwrap();
    right.write_at(MIB, &[2; 4096], false).unwrap();
    assert!(left.flush().is_err());
    let (directory, code, log) = server.end_with(Signal::TERM);
    assert_eq!(code, Some(2), "{log}");
    let last = log.lines().rfind(|line| line.contains("cannot use left")).expect(&log);
    assert!(last.contains("not written: 4 KiB: bytes 1048576 to 1052672"), "{last}");
    let image = fs::read(directory.path().join("right.img")).unwrap();
    assert!(image[1 << 20..][..4096] == [2; 4096], "the other one is written");
}

#[test]
fn the_panic_of_a_connection_ends_it_alone() {
    if !can_inject() {
        return;
    }
    let server = serve("connection=left", &[]);
    let mut right = server.client(1);
    right.write_at(MIB, &[2; 4096], false).unwrap();
    let mut left = server.client(0);
    assert!(left.write_at(MIB, &[1; 4096], false).is_err(), "it is cut off");
    right.flush().unwrap();
    for volume in [0, 1] {
        check_served(&server, volume, 7);
    }
    right.disconnect().unwrap();
    // No request is left that would keep the volume busy.
    eventually("no client is connected to it", || server.ctl(&["remove", "left"]).status.success());
    server.stop();
}

#[test]
fn the_panic_of_the_acceptor_refuses_one_client() {
    if !can_inject() {
        return;
    }
    let server = serve("acceptor=server", &[]);
    let uri = server.uris[0].parse().unwrap();
    assert!(larder_io::nbd_client::Client::connect(&uri).is_err());
    check_served(&server, 0, 3);
    server.stop();
}

#[test]
fn the_panic_of_the_recorder_ends_the_recording_and_not_the_service() {
    if !can_inject() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let trace = directory.path().join("a.ltr");
    let server = serve("recorder=trace", &["--record", trace.to_str().unwrap()]);
    for round in 1..4 {
        check_served(&server, 0, round);
        check_served(&server, 1, round);
    }
    server.stop();
}

#[test]
fn the_panic_of_the_main_thread_stops_the_server_and_loses_nothing() {
    if !can_inject() {
        return;
    }
    let server = serve("main=report", &[]);
    let mut client = server.client(0);
    client.write_at(MIB, &[1; 4096], false).unwrap();
    let (directory, code, log) = server.end_with(Signal::USR1);
    assert_eq!(code, Some(2), "{log}");
    let image = fs::read(directory.path().join("left.img")).unwrap();
    assert!(image[1 << 20..][..4096] == [1; 4096], "it is written: {log}");
}

#[test]
fn a_damaged_cache_ends_the_process_and_names_what_is_lost() {
    if !can_inject() {
        return;
    }
    let server = serve("maintenance=cache", &[]);
    let (mut left, mut right) = (server.client(0), server.client(1));
    left.write_at(MIB, &[1; 4096], false).unwrap();
    right.write_at(2 * MIB, &[2; 4096], false).unwrap();
    right.flush().unwrap();
    // A change of the memory size wakes the maintenance thread.
    let _ended = server.ctl(&["set", "memory=12MiB"]).status.success();
    let (directory, code, log) = server.end_with(Signal::CONT);
    assert_eq!(code, None, "as after a power failure: {log}");
    assert!(log.contains("left: not written: 4 KiB: bytes 1048576 to 1052672"), "{log}");
    assert!(log.contains("right: everything was written"), "{log}");
    let image = fs::read(directory.path().join("right.img")).unwrap();
    assert!(image[2 << 20..][..4096] == [2; 4096], "what was flushed is there");
}

/// Starts a mount in which one thread panics at its first request. Writeback is delayed. A `point`
/// without a name gets the mountpoint as its name.
fn mount(point: &str, options: &[&str]) -> (Server, Mountpoint) {
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    fs::create_dir(source(directory.path())).unwrap();
    fs::write(source(directory.path()).join("old"), vec![9; 100_000]).unwrap();
    let named_point = format!("{point}={}", mountpoint.path().display());
    let mut command = faulty(if point.contains('=') { point } else { &named_point });
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control"]).arg(directory.path().join("nbd.control"));
    command.args(LAZY).args(options);
    (Server::spawn(directory, command, 1), mountpoint)
}

/// Checks that a failed mount answers every request with EIO.
fn check_refuses(mountpoint: &Mountpoint) {
    for error in [
        fs::metadata(mountpoint.file("other")).unwrap_err(),
        fs::read_dir(mountpoint.path()).unwrap_err(),
        fs::write(mountpoint.file("new"), "x").unwrap_err(),
    ] {
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    }
}

#[test]
fn the_panic_of_a_thread_of_a_mount_fails_the_mount_with_eio() {
    if !can_inject() || !can_mount() {
        return;
    }
    for options in [&[][..], &["--plain-io"]] {
        let (mut server, mountpoint) = mount("mount", options);
        // Another process, such as df, may make the first request to the mount and trigger the
        // panic while another thread still answers this request.
        let request = || fs::metadata(mountpoint.file("old")).err();
        let error = std::iter::repeat_with(request).flatten().next().expect("it does not end");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "it is answered: {error}");
        server.wait_for_line(|line| line.contains("the mount has failed"));
        check_refuses(&mountpoint);
        let log = server.stop();
        assert!(!mountpoint.is_mounted(), "{log}");
    }
}

#[test]
fn the_panic_of_a_worker_that_may_wait_fails_the_mount_and_what_was_written_is_kept() {
    if !can_inject() || !can_mount() {
        return;
    }
    for options in [&[][..], &["--plain-io"]] {
        let (mut server, mountpoint) = mount("blocking-worker", options);
        let mut file = File::create(mountpoint.file("new")).unwrap();
        file.write_all(&vec![5; 300_000]).unwrap();
        // A change of the length may block, so a worker does it.
        let error = file.set_len(200_000).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "it is answered: {error}");
        server.wait_for_line(|line| line.contains("the mount has failed"));
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
        drop(file);
        check_refuses(&mountpoint);
        let (directory, _) = server.stop_and_keep();
        assert!(!mountpoint.is_mounted());
        let stored = fs::read(source(directory.path()).join("new")).unwrap();
        assert!(stored == vec![5; 300_000], "{} bytes", stored.len());
    }
}

#[test]
fn the_panic_of_the_store_of_a_mount_fails_its_files_and_every_request_is_answered() {
    if !can_inject() || !can_mount() {
        return;
    }
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    fs::create_dir(source(directory.path())).unwrap();
    let mut command = faulty("store=source");
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control"]).arg(directory.path().join("nbd.control"));
    let mut server = Server::spawn(
        directory,
        {
            command.args(LAZY);
            command
        },
        1,
    );
    let mut file = File::create(mountpoint.file("new")).unwrap();
    file.write_all(&vec![5; 300_000]).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    server.wait_for_line(|line| line.contains("the volume has failed"));
    assert_eq!(file.write_all(&[6; 5000]).unwrap_err().raw_os_error(), Some(libc::EIO));
    let listed = text(&server.ctl(&["at-risk"]).stdout);
    assert!(listed.contains(" of new"), "the file is named: {listed}");
    drop(file);
    let (_directory, code, log) = server.end_with(Signal::TERM);
    assert_eq!(code, Some(2), "{log}");
    assert!(!mountpoint.is_mounted(), "{log}");
}
