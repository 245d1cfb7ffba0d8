//! `larder mount` under adverse conditions: a full SOURCE, no FUSE, missing permissions, and a
//! SOURCE that other processes change.
//!
//! The tests need root and FUSE; otherwise each of them reports a skip.

use super::files::{LAZY, Mountpoint};
use super::mount::{mount, source};
use super::rig::{eventually, larder, text};
use larder_host::changes::Changes;
use larder_testing::{can_mount, has_tool, skip};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A user without permissions.
const NOBODY: u32 = 65_534;

/// A small tmpfs, unmounted when dropped.
struct SmallFs(PathBuf);

impl SmallFs {
    fn new(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, c"size=1m").unwrap();
        SmallFs(path)
    }
}

impl Drop for SmallFs {
    fn drop(&mut self) {
        let _was_mounted = rustix::mount::unmount(&self.0, UnmountFlags::DETACH).is_ok();
    }
}

#[test]
fn files_that_a_full_directory_cannot_take_are_listed_by_name_until_it_can() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let small = SmallFs::new(source(directory.path()));
    assert!(fs::write(small.0.join("filler"), vec![0; 2 << 20]).is_err(), "it is small");
    let mountpoint = Mountpoint::new();
    let server = mount(directory, &mountpoint, &[]);
    fs::create_dir(mountpoint.file("logs")).unwrap();
    fs::write(mountpoint.file("logs/new"), vec![7; 100_000]).unwrap();
    let at_risk = || server.ctl(&["at-risk"]);
    // The server retries the writes repeatedly, also while `ctl` queries it.
    let mut stdout = String::new();
    eventually("the lazy writer has tried", || {
        let listed = at_risk();
        stdout = text(&listed.stdout);
        listed.status.code() == Some(1) && stdout.contains("cannot be written: ")
    });
    let line =
        stdout.lines().find(|line| line.contains("cannot be written: ")).expect("it is listed");
    assert!(line.starts_with("WARNING: source: "), "{line}");
    let reason = " of logs/new cannot be written: no space left on device";
    assert!(line.ends_with(reason), "{line}");
    assert!(!stdout.contains("failing: bytes "), "offsets in the store mean nothing: {stdout}");
    eventually("it is named for programs too", || {
        let json = server.get("/v1/at-risk").json();
        json["volumes"][0]["files"][0]["path"] == "logs/new"
    });
    fs::remove_file(mountpoint.file("filler")).unwrap();
    eventually("there is room", || at_risk().status.success());
    let directory = server.stop_and_keep().0;
    let stored = fs::read(source(directory.path()).join("logs/new")).unwrap();
    assert!(stored == vec![7; 100_000]);
    drop(small);
}

#[test]
fn a_full_file_system_inside_of_the_directory_does_not_stop_writes_beside_it() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let inner = SmallFs::new(source(directory.path()).join("inner"));
    let mountpoint = Mountpoint::new();
    let server = mount(directory, &mountpoint, &[]);
    // The files together are larger than the dirty limit.
    let piece = vec![1; 1 << 20];
    let refused = |number: i32| {
        let name = mountpoint.file(&format!("inner/{number}"));
        let error = fs::write(name, &piece).err()?;
        Some(error.raw_os_error())
    };
    let refused: Vec<_> = (0..64).filter_map(refused).collect();
    assert!(refused.iter().all(|&error| error == Some(libc::ENOSPC)), "{refused:?}");
    assert!(!refused.is_empty(), "the file system is full");
    for number in 0..16 {
        let file = File::create(mountpoint.file(&format!("beside-{number}"))).unwrap();
        file.write_all_at(&piece, 0).unwrap();
        file.sync_all().unwrap();
    }
    for entry in fs::read_dir(mountpoint.file("inner")).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    eventually("nothing is left to fail", || server.ctl(&["at-risk"]).status.success());
    let directory = server.stop_and_keep().0;
    assert_eq!(fs::read(source(directory.path()).join("beside-15")).unwrap(), piece);
    drop(inner);
}

#[test]
fn what_others_change_is_seen_while_it_is_believed() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    if let Err(error) = Changes::of(directory.path()) {
        skip(format_args!("cannot {error}"));
        return;
    }
    let mountpoint = Mountpoint::new();
    let server = mount(directory, &mountpoint, &["--shared", "--ttl", "1h"]);
    let source_file = |name: &str| source(server.directory.path()).join(name);
    fs::write(mountpoint.file("f"), "ours").unwrap();
    fs::write(mountpoint.file("g"), "ours").unwrap();
    File::open(mountpoint.file("f")).unwrap().sync_all().unwrap();
    let open = File::open(mountpoint.file("f")).unwrap();
    fs::write(source_file("f"), "theirs").unwrap();
    eventually("the size is seen", || open.metadata().unwrap().len() == 6);
    assert_eq!(fs::read(mountpoint.file("f")).unwrap(), b"theirs");
    assert!(!mountpoint.file("new").exists());
    fs::write(source_file("new"), "new").unwrap();
    eventually("the name is seen", || mountpoint.file("new").exists());
    fs::rename(source_file("g"), source_file("h")).unwrap();
    eventually("the old name is gone", || !mountpoint.file("g").exists());
    assert_eq!(fs::read(mountpoint.file("h")).unwrap(), b"ours");
    drop(open);
    let log = server.stop();
    assert!(!log.contains("believed"), "nothing was missed: {log}");
}

#[test]
fn a_change_that_is_not_reported_is_seen_in_an_open_file_after_the_ttl() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    // The server gets no events for changes in a file system that is mounted inside SOURCE.
    let inner = SmallFs::new(source(directory.path()).join("inner"));
    let mountpoint = Mountpoint::new();
    let server = mount(directory, &mountpoint, &["--shared", "--ttl", "50ms"]);
    fs::write(inner.0.join("f"), "old").unwrap();
    let open = File::open(mountpoint.file("inner/f")).unwrap();
    let read = || {
        let mut bytes = [0; 3];
        open.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(read(), *b"old");
    std::thread::sleep(Duration::from_millis(50));
    fs::write(inner.0.join("f"), "new").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(read(), *b"new");
    drop(open);
    let _directory = server.stop_and_keep().0;
    drop(inner);
}

#[test]
fn without_fuse_it_is_said_what_is_missing() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["source", "at"] {
        fs::create_dir(path(name)).unwrap();
    }
    // The command runs in a mount namespace in which /dev is empty.
    let program = env!("CARGO_BIN_EXE_larder");
    let script = format!(
        "mount -t tmpfs none /dev && exec {program} mount {} {} --control none",
        path("source").display(),
        path("at").display()
    );
    if !has_tool("unshare") {
        return;
    }
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let expected = "larder: cannot open /dev/fuse: no such file or directory; it \
                  comes with the kernel's module fuse (modprobe fuse), and a container must be \
                  given it";
    assert!(stderr.lines().any(|line| line == expected), "{stderr}");
}

#[test]
fn without_rights_and_helper_it_is_said_what_is_missing() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["source", "at"] {
        fs::create_dir(path(name)).unwrap();
        chown(path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = larder();
    command.arg("mount").arg(path("source")).arg(path("at")).args(["--control", "none"]);
    // The helper is not in PATH.
    command.uid(NOBODY).gid(NOBODY).env("PATH", path("source"));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            skip(format_args!("the unprivileged user cannot run the program: {error}"));
            return;
        }
    };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let line = stderr.lines().find(|line| line.starts_with("larder: cannot "));
    let line = line.unwrap_or_else(|| panic!("no sentence: {stderr}"));
    if line.contains("/dev/fuse") {
        assert!(line.contains("permission denied"), "{line}");
    } else {
        let expected =
            "only root mounts by itself, and fusermount3 (package fuse3) cannot be run: ";
        assert!(line.contains(expected), "{line}");
    }
    assert_eq!(fs::read_dir(path("at")).unwrap().count(), 0, "nothing is left there");
}

#[test]
fn a_directory_that_is_read_only_for_a_while_loses_nothing() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let small = SmallFs::new(source(directory.path()));
    let mountpoint = Mountpoint::new();
    let server = mount(directory, &mountpoint, &LAZY);
    fs::write(mountpoint.file("f"), vec![7; 100_000]).unwrap();
    let remount = |flags| rustix::mount::mount_remount(&small.0, flags, c"size=1m");
    eventually("no process has it open", || remount(MountFlags::RDONLY).is_ok());
    let file = File::open(mountpoint.file("f")).unwrap();
    let refused = file.sync_all().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{refused}");
    drop(file);
    let listed = server.ctl(&["at-risk"]);
    assert_eq!(listed.status.code(), Some(1));
    let stdout = text(&listed.stdout);
    let reason = " of f cannot be written: read-only file system";
    assert!(stdout.contains(reason), "{stdout}");
    remount(MountFlags::empty()).unwrap();
    let directory = server.stop_and_keep().0;
    assert!(fs::read(source(directory.path()).join("f")).unwrap() == vec![7; 100_000]);
    drop(small);
}
