//! Guarantees of fsync(2), rename(2) and modes, and the reporting of errors.

use super::{MIB, Service, Setting, can_mount};
use crate::common::rig;
use larder_core::mode::WriteMode;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

fn lazy() -> Setting {
    Setting { lazy: true, ..Setting::default() }
}

#[test]
fn an_fsync_writes_its_file_and_no_other() {
    if !can_mount() {
        return;
    }
    let service = Service::new(lazy());
    let [mut one, mut other] =
        ["one", "other"].map(|name| File::create(service.path(name)).expect("a file"));
    one.write_all(&[1; 50_001]).expect("room");
    other.write_all(&[2; 50_001]).expect("room");
    assert_eq!(fs::metadata(service.behind("one")).expect("it").len(), 0, "nothing was asked for");
    one.sync_data().expect("the directory works");
    assert!(fs::read(service.behind("one")).expect("it") == [1; 50_001]);
    assert_eq!(fs::metadata(service.behind("other")).expect("it").len(), 0);
    drop((one, other));
    let source = service.end();
    assert!(fs::read(source.path().join("other")).expect("it") == [2; 50_001], "at the end");
}

#[test]
fn a_synchronous_write_is_in_the_directory_when_it_returns() {
    if !can_mount() {
        return;
    }
    let service = Service::new(lazy());
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_SYNC);
    let file = options.open(service.path("f")).expect("a file");
    file.write_all_at(&[5; 5000], 3000).expect("room");
    let behind = fs::read(service.behind("f")).expect("it");
    assert!(behind.len() == 8000 && behind[3000..] == [5; 5000]);
    drop(file);
    service.end();
}

#[test]
fn a_rename_takes_place_after_the_data() {
    if !can_mount() {
        return;
    }
    let service = Service::new(lazy());
    fs::write(service.path("f"), "old").expect("a file");
    fs::write(service.path("f.tmp"), vec![7; 30_000]).expect("a file");
    fs::rename(service.path("f.tmp"), service.path("f")).expect("a name");
    assert!(fs::read(service.behind("f")).expect("it") == [7; 30_000]);
    service.end();
}

#[test]
fn writing_through_has_written_when_the_write_returns() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { mode: WriteMode::Through, ..Setting::default() });
    fs::write(service.path("f"), vec![7; 30_001]).expect("a file");
    assert!(fs::read(service.behind("f")).expect("it") == [7; 30_001]);
    service.end();
}

#[test]
fn nothing_changes_where_only_reading_is_allowed() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    fs::write(source.path().join("f"), "text").expect("a file");
    let setting = Setting { mode: WriteMode::ReadOnly, ..Setting::default() };
    let service = Service::over(source, setting);
    assert_eq!(fs::read(service.path("f")).expect("it"), b"text");
    let refused = fs::write(service.path("g"), "x").expect_err("it is read-only");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    let refused = OpenOptions::new().write(true).open(service.path("f")).expect_err("the same");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    service.end();
}

/// A file system over a directory, which is unmounted when this is dropped.
pub(super) struct SmallFileSystem<'a>(pub(super) &'a std::path::Path);

impl Drop for SmallFileSystem<'_> {
    fn drop(&mut self) {
        let _was_mounted = rustix::mount::unmount(self.0, UnmountFlags::DETACH).is_ok();
    }
}

#[test]
fn a_full_directory_is_told_by_fsync_and_nothing_is_lost() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let path = source.path().to_owned();
    let flags = MountFlags::empty();
    rustix::mount::mount("tmpfs", &path, "tmpfs", flags, c"size=1m").expect("root may");
    let small = SmallFileSystem(&path);
    let service = Service::over(source, lazy());
    let file = File::create(service.path("large")).expect("a file");
    let len = 2 * usize::try_from(MIB).expect("small");
    file.write_all_at(&vec![1; len], 0).expect("the cache has room");
    for _ in 0..2 {
        let failed = file.sync_all().expect_err("the directory is full");
        assert_eq!(Errno::from_io_error(&failed), Some(Errno::NOSPC));
    }
    let bytes = fs::read(service.path("large")).expect("it can be read all the same");
    assert!(bytes == vec![1; len]);
    file.set_len(300_001).expect("it can be made to fit");
    rig::eventually("it fits", || file.sync_all().is_ok());
    assert!(fs::read(service.behind("large")).expect("it") == vec![1; 300_001]);
    drop(file);
    let source = service.end();
    drop(small);
    drop(source);
}
