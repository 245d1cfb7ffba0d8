//! `larder mount`: a directory mounted through a cache, from start to stop, including killed
//! servers.
//!
//! The tests need root and FUSE; otherwise each of them reports a skip.

use super::files::{LAZY, Mountpoint};
use super::rig::{Server, eventually, larder, text};
use larder_testing::{can_mount, has_tool};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Returns the SOURCE of the mount of a server that runs in `directory`.
pub(crate) fn source(directory: &Path) -> std::path::PathBuf {
    directory.join("source")
}

/// Mounts the directory `source` of `directory` at `mountpoint`.
pub(crate) fn mount(directory: TempDir, mountpoint: &Mountpoint, options: &[&str]) -> Server {
    fs::create_dir_all(source(directory.path())).unwrap();
    let mut command = larder();
    command.arg("mount").arg(source(directory.path())).arg(mountpoint.path());
    command.args(["--memory", "16MiB", "--control"]).arg(directory.path().join("nbd.control"));
    command.args(options);
    Server::spawn(directory, command, 1)
}

#[test]
fn what_was_fsynced_survives_kill_9_and_the_next_start_takes_the_mountpoint_over() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut directory = TempDir::new().unwrap();
    for round in 1..=3_u8 {
        let server = mount(directory, &mountpoint, &LAZY);
        for previous in 1..round {
            let kept = fs::read(mountpoint.file(&format!("kept{previous}"))).unwrap();
            assert!(kept == vec![previous; 70_001], "what the one before had been told to keep");
        }
        let mut kept = File::create(mountpoint.file(&format!("kept{round}"))).unwrap();
        kept.write_all(&vec![round; 70_001]).unwrap();
        kept.sync_all().unwrap();
        fs::write(mountpoint.file("new.tmp"), vec![round; 30_001]).unwrap();
        fs::rename(mountpoint.file("new.tmp"), mountpoint.file("new")).unwrap();
        let mut lost = File::create(mountpoint.file("lost")).unwrap();
        lost.write_all(&[77; 5000]).unwrap();
        let log;
        (directory, log) = server.kill_and_keep();
        let took_over = log.contains("was still mounted by a larder that was killed");
        assert_eq!(took_over, round > 1, "{log}");
        let source_directory = source(directory.path());
        let stored = fs::read(source_directory.join(format!("kept{round}"))).unwrap();
        assert!(stored == vec![round; 70_001], "round {round}");
        assert!(
            fs::read(source_directory.join("new")).unwrap() == vec![round; 30_001],
            "data, then name"
        );
        assert_eq!(
            fs::read(source_directory.join("lost")).unwrap(),
            b"",
            "nothing was asked to be written"
        );
        assert!(lost.sync_all().is_err(), "a process that has it open gets an error");
        assert_eq!(rustix::fs::statfs(mountpoint.path()).unwrap_err(), Errno::NOTCONN);
    }
    mount(directory, &mountpoint, &[]).stop();
    assert!(!mountpoint.is_mounted());
}

#[test]
fn a_stop_writes_everything_and_waits_for_those_who_use_it() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = mount(TempDir::new().unwrap(), &mountpoint, &LAZY);
    fs::write(mountpoint.file("f"), vec![3; 2_000_001]).unwrap();
    let source_directory = source(server.directory.path());
    assert_eq!(fs::metadata(source_directory.join("f")).unwrap().len(), 0);
    let volumes = server.ctl_text(&["volumes"]);
    assert!(volumes.contains("source") && !volumes.contains("PiB"), "no length: {volumes}");
    let files = server.ctl_text(&["files", "--top", "5"]);
    assert!(files.lines().any(|line| line.starts_with("f ") && line.contains("MiB")), "{files}");
    let none = server.ctl_text(&["files", "--top", "0", "--format", "json"]);
    let none: serde_json::Value = serde_json::from_str(&none).unwrap();
    assert!(none["files"].as_array().is_some_and(Vec::is_empty), "{none}");
    assert!(none["total"].as_u64().is_some_and(|total| total > 0), "{none}");
    let refused = [
        (
            &["add", "/etc/hostname"][..],
            "add hostname: this is a mounted directory, which is one volume",
        ),
        (&["remove", "source"], "remove source: this is a mounted directory, which is one volume"),
        (&["warm", "source"], "warm source: this is a mounted directory, whose files are warm"),
        (&["pin", "source", "0+1MiB"], "pin source: this is a mounted directory, whose files are"),
        (
            &["unpin", "source"],
            "unpin source: this is a mounted directory, whose files are pinned by",
        ),
    ];
    for (args, reason) in refused {
        let stderr = text(&server.ctl(args).stderr);
        assert!(stderr.contains(&format!("cannot {reason}")), "{args:?}: {stderr}");
    }
    let open = File::open(mountpoint.file("f")).unwrap();
    server.signal(Signal::TERM);
    let log = server.wait_for_line(|line| line.contains("is in use"));
    assert!(log.contains(&format!("process {} (", std::process::id())), "{log}");
    assert!(
        fs::read(source_directory.join("f")).unwrap() == vec![3; 2_000_001],
        "all of it is written"
    );
    drop(open);
    let (_directory, _log) = (source_directory, server.wait());
    assert!(!mountpoint.is_mounted());
}

#[test]
fn a_stop_waits_for_the_users_of_a_bind_mount() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = mount(TempDir::new().unwrap(), &mountpoint, &LAZY);
    let bound = Mountpoint::new();
    rustix::mount::mount_bind(mountpoint.path(), bound.path()).unwrap();
    let file = File::create(bound.file("f")).unwrap();
    server.signal(Signal::TERM);
    let log = server.wait_for_line(|line| line.contains("is in use"));
    assert!(log.contains("a bind mount, a process in another mount namespace"), "{log}");
    assert!(!mountpoint.is_mounted(), "the mount itself is not in use");
    file.write_all_at(&[4; 4096], 0).unwrap();
    file.sync_all().unwrap();
    let source_directory = source(server.directory.path());
    assert!(fs::read(source_directory.join("f")).unwrap() == vec![4; 4096]);
    drop((file, bound));
    let log = server.wait();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn a_stop_from_within_the_mount_does_not_wait_for_itself() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let server = mount(TempDir::new().unwrap(), &mountpoint, &LAZY);
    let mut stop = server.ctl_command(&["stop"]);
    let stop = stop.current_dir(mountpoint.path()).output().unwrap();
    assert!(stop.status.success() && stop.stderr.is_empty(), "{stop:?}");
    server.wait();
    assert!(!mountpoint.is_mounted());
}

#[test]
fn an_unmount_by_somebody_else_writes_everything_and_ends_it() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = mount(TempDir::new().unwrap(), &mountpoint, &LAZY);
    fs::write(mountpoint.file("f"), vec![9; 300_001]).unwrap();
    let directory = std::mem::replace(&mut server.directory, TempDir::new().unwrap());
    let flags = rustix::mount::UnmountFlags::empty();
    eventually("it is not in use", || rustix::mount::unmount(mountpoint.path(), flags).is_ok());
    let log = server.wait();
    assert!(!log.contains("WARN"), "umount is a normal end: {log}");
    assert!(fs::read(source(directory.path()).join("f")).unwrap() == vec![9; 300_001]);
}

#[test]
fn a_mount_follows_an_unmount_at_once_and_finds_all_that_was_written() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut directory = TempDir::new().unwrap();
    let mut previous: Option<Server> = None;
    for round in 1..=12_u8 {
        let path = directory.path().to_owned();
        // In every other round the previous mount has no dirty data.
        let server = mount(directory, &mountpoint, if round % 2 == 0 { &LAZY } else { &[] });
        if let Some(previous) = previous.take() {
            previous.wait();
            let found = fs::read(mountpoint.file("f")).unwrap();
            assert!(found == vec![round - 1; 4_000_001], "data that the previous mount accepted");
        }
        fs::write(mountpoint.file("f"), vec![round; 4_000_001]).unwrap();
        let flags = rustix::mount::UnmountFlags::empty();
        eventually("it is not in use", || rustix::mount::unmount(mountpoint.path(), flags).is_ok());
        let mut server = server;
        // The directory outlives this server.
        directory = std::mem::replace(&mut server.directory, TempDir::new().unwrap());
        assert_eq!(directory.path(), path);
        previous = Some(server);
    }
    previous.expect("the last one").wait();
    assert!(fs::read(source(directory.path()).join("f")).unwrap() == vec![12; 4_000_001]);
}

#[test]
fn a_mount_waits_for_programs_that_still_use_one_that_was_unmounted_lazily() {
    if !can_mount() {
        return;
    }
    let (mountpoint, next) = (Mountpoint::new(), Mountpoint::new());
    let mut first = mount(TempDir::new().unwrap(), &mountpoint, &LAZY);
    let directory = std::mem::replace(&mut first.directory, TempDir::new().unwrap());
    let stored = source(directory.path()).join("f");
    let mut file = File::create(mountpoint.file("f")).unwrap();
    file.write_all(&[1; 5000]).unwrap();
    let flags = rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(mountpoint.path(), flags).unwrap();
    let mut command = larder();
    command.arg("mount").arg(source(directory.path())).arg(next.path());
    command.args(["--memory", "16MiB", "--control", "none"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let log_line = lines.find(|line| line.as_ref().unwrap().contains("waiting for the other"));
    let log_line = log_line.expect("it waits").unwrap();
    assert!(log_line.contains(&format!("process {} (", first.pid())), "{log_line}");
    assert!(child.try_wait().unwrap().is_none() && !next.is_mounted(), "it is still used");
    file.write_all(&[2; 5000]).unwrap();
    drop(file);
    first.wait();
    eventually("it is mounted", || next.is_mounted());
    assert_eq!(fs::read(&stored).unwrap().len(), 10_000, "what was written after the unmount");
    assert!(fs::read(next.file("f")).unwrap()[5000..] == [2; 5000]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_unmount_by_the_helper_ends_it_too() {
    if !can_mount() || !has_tool("fusermount3") {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut server = mount(TempDir::new().unwrap(), &mountpoint, &LAZY);
    let directory = std::mem::replace(&mut server.directory, TempDir::new().unwrap());
    let file = File::create(mountpoint.file("f")).unwrap();
    let unmount = || Command::new("fusermount3").arg("-u").arg(mountpoint.path()).output().unwrap();
    let busy = unmount();
    assert!(!busy.status.success() && mountpoint.is_mounted(), "{}", text(&busy.stderr));
    file.set_len(1_000_001).unwrap();
    drop(file);
    eventually("it is not in use", || unmount().status.success());
    // The next mount starts immediately, while the first server may still write.
    let again = mount(directory, &mountpoint, &[]);
    server.wait();
    assert_eq!(fs::metadata(mountpoint.file("f")).unwrap().len(), 1_000_001);
    again.stop();
}

#[test]
fn restrictions_can_be_added_and_not_removed() {
    if !can_mount() {
        return;
    }
    let flags = |path: &Path| rustix::fs::statvfs(path).unwrap().f_flag;
    let mountpoint = Mountpoint::new();
    let options = ["--options", "nosuid,noexec"];
    let server = mount(TempDir::new().unwrap(), &mountpoint, &options);
    let source_flags = flags(&server.path("source"));
    let added = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NOEXEC;
    let mask = added | StatVfsMountFlags::NODEV;
    assert_eq!(flags(mountpoint.path()) & mask, (source_flags | added) & mask);
    server.stop();
    for (option, next) in
        [("suid", "leave it out"), ("ro", "--write-mode read-only"), ("x", "nodev")]
    {
        let refused = larder().args(["mount", "-o", option, "/usr", "/mnt"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(next), "{}", text(&refused.stderr));
    }
}

#[test]
fn what_cannot_be_mounted_is_said() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["source", "source/inner", "at", "full"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("full/x"), "x").unwrap();
    fs::write(path("file"), "x").unwrap();
    let cases = [
        ("missing", "at", "no such file or directory"),
        ("file", "at", "not a directory"),
        ("source", "missing", "there is no such directory; make it first"),
        (
            "source",
            "full",
            "it is not empty, and the mount would hide its content; use an empty one",
        ),
        ("source", "source/inner", "the mountpoint is inside the directory; choose another one"),
    ];
    for (source, at, reason) in cases {
        let mut command = larder();
        command.arg("mount").arg(path(source)).arg(path(at)).args(["--control", "none"]);
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let line = stderr.lines().find(|line| line.starts_with("larder: cannot "));
        assert!(line.is_some_and(|line| line.contains(reason)), "{source} at {at}: {stderr}");
    }
}
