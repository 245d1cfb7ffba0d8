//! `--fuse`: volumes as files, from the start to the stop of a server, including killed servers.
//!
//! The tests need root and FUSE; otherwise each of them reports a skip.

use super::rig::{MIB, Server, eventually, images, larder, text};
use larder_testing::{can_mount, has_tool, skip};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

/// Settings that delay writeback until a client requests it.
pub(crate) const LAZY: [&str; 6] =
    ["--set", "first-delay=60000", "--set", "idle-delay=60000", "--set", "age-max=3600000"];

/// A mountpoint that is unmounted when dropped.
pub(crate) struct Mountpoint(TempDir);

impl Mountpoint {
    pub(crate) fn new() -> Self {
        Mountpoint(TempDir::new().expect("a directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let device = std::fs::metadata(self.path()).map(|found| found.dev());
        let parent = std::fs::metadata(self.path().parent().expect("a parent")).expect("there");
        device.map_or(true, |device| device != parent.dev())
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        // In most tests the server has already unmounted it.
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _was_mounted = rustix::mount::unmount(self.path(), flags).is_ok();
    }
}

/// Starts a server of images that shows them at `mountpoint`. Existing images stay as they are.
fn serve(directory: TempDir, names: &[&str], mountpoint: &Mountpoint) -> Server {
    let image = |name: &&str| directory.path().join(format!("{name}.img"));
    if !names.iter().map(image).all(|path| path.exists()) {
        images(directory.path(), names);
    }
    let mut command = larder();
    command.arg("serve").args(names.iter().map(image)).args(["--memory", "16MiB", "--fuse"]);
    command.arg(mountpoint.path()).args(LAZY).arg("--listen");
    command.arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
    Server::spawn(directory, command, names.len())
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a file")
}

#[test]
fn the_file_and_the_export_of_a_volume_are_one() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let server = serve(TempDir::new().unwrap(), &["one", "two"], &mountpoint);
    let (mut one, file) = (server.client(0), open(&mountpoint.file("one")));
    assert_eq!(file.metadata().unwrap().len(), 16 * MIB);
    one.write_at(5000, &[1; 10_000], false).unwrap();
    let mut bytes = [0; 10_000];
    file.read_exact_at(&mut bytes, 5000).unwrap();
    assert!(bytes == [1; 10_000]);
    file.write_all_at(&[2; 10_000], 7000).unwrap();
    one.read_at(7000, &mut bytes).unwrap();
    assert!(bytes == [2; 10_000]);
    open(&mountpoint.file("two")).write_all_at(b"other", 0).unwrap();
    one.disconnect().unwrap();
    drop(file);
    let image = server.path("one.img");
    let mut kept = std::fs::read(&image).unwrap();
    assert!(kept[5000..17_000].iter().all(|&byte| byte == 0), "nothing was asked to be written");
    let (directory, log) = server.stop_and_keep();
    kept = std::fs::read(&image).unwrap();
    assert!(kept[5000..7000] == [1; 2000] && kept[7000..17_000] == [2; 10_000], "{log}");
    assert!(std::fs::read(directory.path().join("two.img")).unwrap().starts_with(b"other"));
    assert!(!mountpoint.is_mounted(), "{log}");
}

#[test]
fn what_was_fsynced_survives_kill_9_and_the_next_start_takes_the_directory_over() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut directory = TempDir::new().unwrap();
    for round in 1..=3u8 {
        let server = serve(directory, &["disk"], &mountpoint);
        let file = open(&mountpoint.file("disk"));
        let mut bytes = [9; 8192];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == [round - 1; 8192], "what the one before had been told to keep");
        file.write_all_at(&[round; 8192], 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[77; 8192], 8 * MIB).unwrap();
        let log;
        (directory, log) = server.kill_and_keep();
        assert_eq!(
            log.contains("was still mounted by a larder that was killed"),
            round > 1,
            "{log}"
        );
        let image = std::fs::read(directory.path().join("disk.img")).unwrap();
        assert!(image[..8192] == [round; 8192], "round {round}");
        assert!(file.read_at(&mut [0; 10], 0).is_err(), "a process that has it open gets an error");
        let dead = std::fs::metadata(mountpoint.path()).unwrap_err();
        assert_eq!(Errno::from_io_error(&dead), Some(Errno::NOTCONN));
    }
    serve(directory, &["disk"], &mountpoint).stop();
    assert!(!mountpoint.is_mounted());
}

#[test]
fn files_come_and_go_with_their_volumes_and_not_under_those_who_use_them() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let server = serve(TempDir::new().unwrap(), &["one"], &mountpoint);
    images(server.directory.path(), &["two"]);
    let two = mountpoint.file("two");
    assert!(!two.exists());
    let volume = format!("two={}", server.path("two.img").display());
    server.ctl_text(&["add", &volume]);
    let file = open(&two);
    file.write_all_at(&[5; 4096], 4096).unwrap();
    let refused = server.ctl(&["remove", "two"]);
    let stderr = text(&refused.stderr);
    let user = format!("process {} (", std::process::id());
    assert!(
        !refused.status.success() && stderr.contains("is in use") && stderr.contains(&user),
        "{stderr}"
    );
    drop(file);
    eventually("it is closed", || server.ctl(&["remove", "two"]).status.success());
    assert!(!two.exists());
    let image = std::fs::read(server.path("two.img")).unwrap();
    assert!(image[4096..8192] == [5; 4096]);
    server.ctl_text(&["add", &volume]);
    let file = open(&two);
    server.ctl_text(&["remove", "two", "--disconnect"]);
    let gone = file.read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(Errno::from_io_error(&gone), Some(Errno::SHUTDOWN));
    drop(file);
    let refused = server.ctl(&["add", &format!("..={}", server.path("two.img").display())]);
    let stderr = text(&refused.stderr);
    assert!(
        stderr.contains("show the volume \"..\" as a file: no file can be called so"),
        "{stderr}"
    );
    server.stop();
}

#[test]
fn a_stop_waits_for_those_who_use_a_file_and_says_who_they_are() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = serve(TempDir::new().unwrap(), &["disk"], &mountpoint);
    let file = open(&mountpoint.file("disk"));
    file.write_all_at(&[1; 4096], 0).unwrap();
    let mut stop = server.ctl_command(&["stop"]);
    let mut stop = stop.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let log = server.wait_for_line(|line| line.contains("is in use"));
    let user = format!("process {} (", std::process::id());
    assert!(log.contains(&user), "{log}");
    let mut note = String::new();
    BufReader::new(stop.stderr.take().unwrap()).read_line(&mut note).unwrap();
    assert!(note.contains("is in use") && note.contains(&user), "{note}");
    let image = server.path("disk.img");
    assert!(std::fs::read(&image).unwrap()[..4096] == [1; 4096], "all of it is written");
    // The server still serves the file, and writes each request through to the store.
    file.write_all_at(&[2; 4096], 4096).unwrap();
    assert!(std::fs::read(&image).unwrap()[4096..8192] == [2; 4096]);
    drop(file);
    server.wait();
    assert!(!mountpoint.is_mounted());
    let stopped = stop.wait_with_output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(text(&stopped.stdout).contains("written: "), "{stopped:?}");
}

#[test]
fn a_second_stop_cuts_off_those_who_use_a_file_and_says_so() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = serve(TempDir::new().unwrap(), &["disk"], &mountpoint);
    let file = open(&mountpoint.file("disk"));
    let mut first = server.ctl_command(&["stop"]);
    // The command itself has the file open, as if a shell had left it open.
    let first =
        first.stdin(file.try_clone().unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut first = first.spawn().unwrap();
    server.wait_for_line(|line| line.contains("is in use"));
    let mut notes = BufReader::new(first.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (waiting, own) = (notes.next().unwrap(), notes.next().unwrap());
    let of = |pid: u32| format!("process {pid} (");
    assert!(waiting.contains(&of(std::process::id())), "{waiting}");
    assert!(!waiting.contains(&of(first.id())), "{waiting}");
    assert!(own.contains("this command has a file of the mount open"), "{own}");
    let second = server.ctl(&["stop"]);
    assert!(second.status.success() && second.stderr.is_empty(), "{second:?}");
    server.wait();
    for stdout in [second.stdout, first.wait_with_output().unwrap().stdout] {
        let stdout = text(&stdout);
        assert!(stdout.contains("disconnected from the mount, and data that they had"), "{stdout}");
    }
    assert!(!mountpoint.is_mounted());
}

#[test]
fn a_second_signal_cuts_off_those_who_use_a_file() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = serve(TempDir::new().unwrap(), &["disk"], &mountpoint);
    let file = open(&mountpoint.file("disk"));
    file.write_all_at(&[1; 4096], 0).unwrap();
    server.signal(Signal::TERM);
    server.wait_for_line(|line| line.contains("is in use"));
    server.signal(Signal::TERM);
    let log = server.wait();
    assert!(log.contains("is disconnected from its users"), "{log}");
    assert!(!mountpoint.is_mounted());
    assert!(file.read_at(&mut [0; 10], 0).is_err());
}

#[test]
fn what_cannot_be_mounted_is_said_and_nothing_is_left_behind() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let image = images(directory.path(), &["disk"]).remove(0);
    std::fs::write(path("file"), "x").unwrap();
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full/x"), "x").unwrap();
    let cases = [
        ("missing", "there is no such directory; make it first"),
        ("file", "it is not a directory"),
        ("full", "it is not empty, and the mount would hide its content; use an empty one"),
    ];
    for (name, reason) in cases {
        let mut command = larder();
        command.arg("serve").arg(&image).arg("--fuse").arg(path(name));
        command.arg("--listen").arg(format!("unix:{}", path("sock").display()));
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let expected = format!("larder: cannot mount at {}: {reason}", path(name).display());
        assert!(stderr.lines().any(|line| line == expected), "{stderr}");
        assert!(!path("sock").exists(), "{name}: it does not listen");
    }
    let config = path("larder.toml");
    let tables = "fuse = \"/mnt\"\n[[volume]]\nname = \"..\"\npath = \"/x\"\n";
    std::fs::write(&config, tables).unwrap();
    let output = larder().arg("check-config").arg(&config).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("line 3: show the volume \"..\" as a file"), "{stderr}");
}

#[test]
fn a_user_mounts_with_the_helper() {
    const NOBODY: u32 = 65_534;
    if !can_mount() {
        return;
    }
    if !has_tool("fusermount3") {
        return;
    }
    let mode = std::fs::metadata("/dev/fuse").unwrap().permissions().mode();
    if mode & 0o006 != 0o006 {
        skip("only root can open /dev/fuse on this machine");
        return;
    }
    let (directory, mountpoint) = (TempDir::new().unwrap(), Mountpoint::new());
    let image = images(directory.path(), &["disk"]).remove(0);
    for path in [directory.path(), mountpoint.path(), &image] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The user may have no access to the directory of the program. If this process copied it, a
    // child of another test could still hold the copy open for writing, and it could not be
    // executed.
    let program = directory.path().join("larder");
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg(env!("CARGO_BIN_EXE_larder")).arg(&program).status().unwrap().success());
    chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = std::process::Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir(directory.path()).arg("serve").arg(&image);
    command.args(["--memory", "16MiB", "--fuse"]).arg(mountpoint.path());
    command.arg("--listen").arg(format!("unix:{}", directory.path().join("nbd.sock").display()));
    let server = Server::spawn(directory, command, 1);
    let read = |path: PathBuf| {
        let mut command = std::process::Command::new("head");
        command.uid(NOBODY).gid(NOBODY).args(["-c", "5"]).arg(path).output().unwrap()
    };
    let mut client = server.client(0);
    client.write_at(0, b"hello", false).unwrap();
    client.disconnect().unwrap();
    let output = read(mountpoint.file("disk"));
    assert_eq!(text(&output.stdout), "hello", "{}", text(&output.stderr));
    let log = server.stop();
    assert!(!mountpoint.is_mounted(), "{log}");
}
