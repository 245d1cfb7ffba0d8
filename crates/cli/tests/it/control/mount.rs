//! `larder mount`: a directory with a cache, from the start to the end, killed ones included.
//!
//! As root on a machine with FUSE; else each test says why it is skipped.

use super::files::{LAZY, Mountpoint};
use super::rig::{Server, eventually, larder, text};
use larder_testing::{can_mount, has_tool};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What lies behind the mount of a server in this directory.
pub(crate) fn source(directory: &Path) -> std::path::PathBuf {
    directory.join("source")
}

/// Mounts the directory `source` of `directory`.
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
        for before in 1..round {
            let kept = fs::read(mountpoint.file(&format!("kept{before}"))).unwrap();
            assert!(kept == vec![before; 70_001], "what the one before had been told to keep");
        }
        let mut kept = File::create(mountpoint.file(&format!("kept{round}"))).unwrap();
        kept.write_all(&vec![round; 70_001]).unwrap();
        kept.sync_all().unwrap();
        fs::write(mountpoint.file("new.tmp"), vec![round; 30_001]).unwrap();
        fs::rename(mountpoint.file("new.tmp"), mountpoint.file("new")).unwrap();
        let mut lost = File::create(mountpoint.file("lost")).unwrap();
        lost.write_all(&[77; 5000]).unwrap();
        let said;
        (directory, said) = server.kill_and_keep();
        let took_over = said.contains("was still mounted by a larder that was killed");
        assert_eq!(took_over, round > 1, "{said}");
        let behind = source(directory.path());
        let kept_behind = fs::read(behind.join(format!("kept{round}"))).unwrap();
        assert!(kept_behind == vec![round; 70_001], "round {round}");
        assert!(fs::read(behind.join("new")).unwrap() == vec![round; 30_001], "data, then name");
        assert_eq!(fs::read(behind.join("lost")).unwrap(), b"", "nothing was asked to be written");
        assert!(lost.sync_all().is_err(), "who has it open is told");
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
    let behind = source(server.directory.path());
    assert_eq!(fs::metadata(behind.join("f")).unwrap().len(), 0);
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
    for (words, why) in refused {
        let said = text(&server.ctl(words).stderr);
        assert!(said.contains(&format!("failed to {why}")), "{words:?}: {said}");
    }
    let open = File::open(mountpoint.file("f")).unwrap();
    server.signal(Signal::TERM);
    let said = server.hear(|line| line.contains("is in use"));
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    assert!(fs::read(behind.join("f")).unwrap() == vec![3; 2_000_001], "all of it is written");
    drop(open);
    let (_directory, _said) = (behind, server.wait());
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
    let said = server.wait();
    assert!(said.contains("somebody has unmounted it"), "{said}");
    assert!(fs::read(source(directory.path()).join("f")).unwrap() == vec![9; 300_001]);
}

#[test]
fn a_mount_follows_an_unmount_at_once_and_finds_all_that_was_written() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let mut directory = TempDir::new().unwrap();
    let mut before: Option<Server> = None;
    for round in 1..=12_u8 {
        let kept = directory.path().to_owned();
        // In every other round the previous mount has no dirty data.
        let server = mount(directory, &mountpoint, if round % 2 == 0 { &LAZY } else { &[] });
        if let Some(before) = before.take() {
            before.wait();
            let found = fs::read(mountpoint.file("f")).unwrap();
            assert!(found == vec![round - 1; 4_000_001], "data that the previous mount accepted");
        }
        fs::write(mountpoint.file("f"), vec![round; 4_000_001]).unwrap();
        let flags = rustix::mount::UnmountFlags::empty();
        eventually("it is not in use", || rustix::mount::unmount(mountpoint.path(), flags).is_ok());
        let mut server = server;
        // The directory lives longer than this server.
        directory = std::mem::replace(&mut server.directory, TempDir::new().unwrap());
        assert_eq!(directory.path(), kept);
        before = Some(server);
    }
    before.expect("the last one").wait();
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
    let behind = source(directory.path()).join("f");
    let mut file = File::create(mountpoint.file("f")).unwrap();
    file.write_all(&[1; 5000]).unwrap();
    let flags = rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(mountpoint.path(), flags).unwrap();
    let mut command = larder();
    command.arg("mount").arg(source(directory.path())).arg(next.path());
    command.args(["--memory", "16MiB", "--control", "none"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines.find(|line| line.as_ref().unwrap().contains("waiting for the other"));
    let said = said.expect("it waits").unwrap();
    assert!(said.contains(&format!("process {} (", first.pid())), "{said}");
    assert!(child.try_wait().unwrap().is_none() && !next.is_mounted(), "it is still used");
    file.write_all(&[2; 5000]).unwrap();
    drop(file);
    first.wait();
    eventually("it is mounted", || next.is_mounted());
    assert_eq!(fs::read(&behind).unwrap().len(), 10_000, "what was written after the unmount");
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
    // At once, while the first server may still write.
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
    let of_source = flags(&server.path("source"));
    let added = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NOEXEC;
    let known = added | StatVfsMountFlags::NODEV;
    assert_eq!(flags(mountpoint.path()) & known, (of_source | added) & known);
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
        ("missing", "at", "No such file or directory"),
        ("file", "at", "Not a directory"),
        ("source", "missing", "there is no such directory; make it first"),
        ("source", "full", "it is not empty, and what is in it would be hidden"),
        ("source", "source/inner", "that is inside of it; choose another mountpoint"),
    ];
    for (source, at, why) in cases {
        let mut command = larder();
        command.arg("mount").arg(path(source)).arg(path(at)).args(["--control", "none"]);
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let line = said.lines().find(|line| line.starts_with("larder: failed to "));
        assert!(line.is_some_and(|line| line.contains(why)), "{source} at {at}: {said}");
    }
}
