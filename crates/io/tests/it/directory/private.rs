//! A mount that only its user, root, may use: access through it, and the checks.

use super::{Service, Setting, can_mount, elsewhere};
use crate::common::spawn::starting;
use larder_testing::skip;
use rustix::fs::{Access, Mode};
use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Returns a mount that file modes open to all users, and the path of a file with this text that
/// all users may write.
fn service_with(text: &str) -> (Service, PathBuf) {
    let service = Service::new(Setting { private: true, ..Setting::default() });
    for directory in [service.at.path(), service.source.path()] {
        rustix::fs::chmod(directory, Mode::from_raw_mode(0o777)).expect("it is there");
    }
    let path = service.path("f");
    fs::write(&path, text).expect("room");
    rustix::fs::chmod(&path, Mode::from_raw_mode(0o666)).expect("it is there");
    (service, path)
}

#[test]
fn access_is_what_the_directory_says() {
    if !can_mount() {
        return;
    }
    let (service, path) = service_with("#!/bin/sh\nexit 7\n");
    let executable = |mode| {
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).expect("it is there");
        (rustix::fs::access(&path, Access::EXEC_OK), elsewhere::status(&path))
    };
    let (may, ran) = executable(0o600);
    assert_eq!(may, Err(Errno::ACCESS));
    assert_eq!(Errno::from_io_error(&ran.expect_err("no user may")), Some(Errno::ACCESS));
    let (may, ran) = executable(0o700);
    assert_eq!((may, ran.expect("it runs").code()), (Ok(()), Some(7)));
    // Root may read and write whatever the mode is.
    rustix::fs::chmod(&path, Mode::empty()).expect("it is there");
    rustix::fs::access(&path, Access::READ_OK | Access::WRITE_OK).expect("root may");
    assert_eq!(fs::read(&path).expect("root may").len(), 17);
    assert_eq!(rustix::fs::access(service.path("g"), Access::EXISTS), Err(Errno::NOENT));
    fs::create_dir(service.path("d")).expect("room");
    let _starting = starting();
    let mut going_into = Command::new("sh");
    going_into.args(["-c", "cd d && ls .."]).current_dir(service.at.path());
    let gone_into = going_into.output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&gone_into.stdout), "d\nf\n");
    service.end();
}

#[test]
fn nobody_else_gets_in_whoever_acts_for_them() {
    if !can_mount() {
        return;
    }
    let (service, path) = service_with("mine");
    let guard = starting();
    let other = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"])
        .arg(&path)
        .output();
    drop(guard);
    match other {
        Ok(other) => assert!(!other.status.success() && other.stdout.is_empty(), "{other:?}"),
        Err(error) => skip(format_args!("cannot run setpriv (package util-linux): {error}")),
    }
    // A thread of root that acts for another user, as file servers do; neither root's permission to
    // open the file nor a name that the kernel has cached may give it access.
    let acting = std::thread::scope(|scope| {
        let opened = scope.spawn(|| {
            // SAFETY: the call changes the user of file accesses of this thread only, until the
            // thread ends.
            unsafe { libc::setfsuid(65534) };
            [fs::read(&path).map(drop), fs::write(service.path("new"), "theirs")]
        });
        opened.join().expect("it does not panic")
    });
    for refused in acting {
        let errno = Errno::from_io_error(&refused.expect_err("it is not for them"));
        assert_eq!(errno, Some(Errno::ACCESS));
    }
    assert!(!service.behind("new").exists());
    assert_eq!(fs::read(&path).expect("root may"), b"mine");
    service.end();
}
