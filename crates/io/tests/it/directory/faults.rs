//! Failures of a directory behind the cache: full, read-only, unmounted. The affected programs get
//! the errors, no accepted data is lost, and no program waits forever.

use super::promises::SmallFileSystem;
use super::{Service, Setting, can_mount};
use crate::common::{rig, spawn::closing};
use larder_core::cache::AtRisk;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn lazy() -> Setting {
    Setting { lazy: true, ..Setting::default() }
}

/// Mounts a small file system in memory over a directory, invisible in other mount namespaces.
fn mount_small(path: &Path) {
    let flags = MountFlags::empty();
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, c"size=1m").expect("root may");
    rustix::mount::mount_change(path, MountPropagationFlags::PRIVATE).expect("root may");
}

/// Closes a file as a program that checks the result of close(2).
fn close(file: File) -> Result<(), Errno> {
    let descriptor = file.into_raw_fd();
    // SAFETY: only this file owned the descriptor, and it has given it up.
    if unsafe { libc::close(descriptor) } == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("an errno"))
}

#[test]
fn an_error_of_a_late_write_is_told_by_close_to_its_own_file_and_listed_under_its_name() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let path = source.path().to_owned();
    mount_small(&path);
    let small = SmallFileSystem(&path);
    fs::create_dir(path.join("logs")).expect("room");
    fs::write(path.join("fits"), vec![1; 100_000]).expect("room");
    // Data that has its space in the directory can be written, and no other data.
    let room = fs::write(path.join("filler"), vec![0; 2 << 20]).expect_err("it is small");
    assert_eq!(Errno::from_io_error(&room), Some(Errno::NOSPC));
    let service = Service::over(source, Setting::default());
    let guard = closing();
    let large = File::create(service.path("logs/large")).expect("a name needs little room");
    large.write_all_at(&[2; 300_000], 0).expect("the cache has room");
    let fits = OpenOptions::new().write(true).open(service.path("fits")).expect("it");
    fits.write_all_at(&[3; 50_000], 0).expect("room");
    let (cache, volume) = (service.engine.cache(), &service.volumes()[0]);
    let mut risk = AtRisk::default();
    rig::eventually("the lazy writer has tried both", || {
        risk = cache.at_risk(volume, 16);
        !risk.failing.is_empty() && fs::read(service.behind("fits")).expect("it")[..3] == [3; 3]
    });
    let mount = service.mount.as_ref().expect("a mount");
    let listed = mount.failing("files", &risk.failing);
    let [file] = &listed[..] else { panic!("one file: {listed:?}") };
    assert_eq!(file.path, "logs/large");
    assert!(file.failing_bytes > 0 && file.failing_bytes <= 303_104, "{file:?}");
    assert!(file.error.as_ref().is_some_and(|error| error.contains("No space left")), "{file:?}");
    assert!(mount.failing("another", &risk.failing).is_empty());
    assert_eq!(close(fits), Ok(()), "its own data could be written");
    assert_eq!(close(large), Err(Errno::NOSPC));
    drop(guard);
    // The data is kept, read from the cache, and written when there is room.
    assert!(fs::read(service.path("logs/large")).expect("it") == [2; 300_000]);
    let again = OpenOptions::new().write(true).open(service.path("logs/large")).expect("it");
    assert_eq!(again.sync_all().map_err(|e| Errno::from_io_error(&e)), Err(Some(Errno::NOSPC)));
    fs::remove_file(service.path("filler")).expect("it can go");
    rig::eventually("there is room", || again.sync_all().is_ok());
    assert_eq!(close(again), Ok(()));
    assert!(fs::read(service.behind("logs/large")).expect("it") == [2; 300_000]);
    let risk = cache.at_risk(volume, 16);
    assert_eq!((risk.failing_blocks, risk.failing), (0, Vec::new()), "nothing is listed any more");
    let source = service.end();
    drop(small);
    drop(source);
}

#[test]
fn a_directory_that_becomes_read_only_refuses_and_loses_nothing() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let path = source.path().to_owned();
    mount_small(&path);
    let small = SmallFileSystem(&path);
    let service = Service::over(source, lazy());
    fs::write(service.path("f"), vec![1; 100_001]).expect("room");
    assert_eq!(fs::metadata(service.behind("f")).expect("it").len(), 0, "only in the cache");
    let remount = |flags| rustix::mount::mount_remount(&path, flags, c"size=1m");
    rig::eventually("no process has it open", || remount(MountFlags::RDONLY).is_ok());
    let errno = |error: std::io::Error| Errno::from_io_error(&error);
    let file = File::open(service.path("f")).expect("reading is allowed");
    assert_eq!(errno(file.sync_all().expect_err("it is read-only")), Some(Errno::ROFS));
    let refused = OpenOptions::new().write(true).open(service.path("f")).expect_err("the same");
    assert_eq!(errno(refused), Some(Errno::ROFS));
    assert_eq!(errno(File::create(service.path("g")).expect_err("the same")), Some(Errno::ROFS));
    assert!(fs::read(service.path("f")).expect("it") == vec![1; 100_001], "it is all there");
    assert!(service.dirty() > 0, "and kept until it can be written");
    remount(MountFlags::empty()).expect("root may");
    rig::eventually("it can be written again", || file.sync_all().is_ok());
    assert!(fs::read(service.behind("f")).expect("it") == vec![1; 100_001]);
    drop(file);
    let source = service.end();
    drop(small);
    drop(source);
}

#[test]
fn a_directory_that_is_unmounted_below_goes_on_out_of_sight_with_nothing_lost() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let path = source.path().to_owned();
    mount_small(&path);
    let kept = File::open(&path).expect("a directory");
    let service = Service::over(source, lazy());
    fs::write(service.path("before"), vec![1; 50_001]).expect("room");
    rustix::mount::unmount(&path, UnmountFlags::DETACH).expect("root may");
    assert!(!service.behind("before").exists(), "it is out of sight");
    assert!(fs::read(service.path("before")).expect("it") == vec![1; 50_001]);
    fs::write(service.path("after"), vec![2; 50_001]).expect("room");
    fs::create_dir(service.path("directory")).expect("names too");
    fs::rename(service.path("after"), service.path("directory/after")).expect("names too");
    let file = File::open(service.path("directory/after")).expect("it");
    file.sync_all().expect("it is as stable as it would have been");
    drop(file);
    let source = service.end();
    let read = |name: &str| {
        let opened = rustix::fs::openat(&kept, name, OFlags::RDONLY, Mode::empty());
        let mut bytes = Vec::new();
        File::from(opened.expect("it")).read_to_end(&mut bytes).expect("bytes");
        bytes
    };
    assert!(read("before") == vec![1; 50_001], "written at the end");
    assert!(read("directory/after") == vec![2; 50_001]);
    drop(source);
}

#[test]
fn what_was_not_written_is_laid_over_a_file_that_others_have_cut() {
    if !can_mount() {
        return;
    }
    let setting = Setting { ttl: std::time::Duration::ZERO, ..lazy() };
    let service = Service::new(setting);
    fs::write(service.path("f"), vec![1; 300_000]).expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(service.path("f")).expect("it");
    file.sync_all().expect("the directory works");
    // The first one lies before the new end, the second one behind it.
    file.write_all_at(&[2; 10_240], 5_120).expect("room");
    file.write_all_at(&[3; 10_240], 204_800).expect("room");
    let behind = OpenOptions::new().write(true).open(service.behind("f")).expect("it");
    behind.set_len(100_000).expect("shorter");
    behind.write_all_at(&[9; 1000], 50_000).expect("room");
    let mut expected = vec![1; 100_000];
    expected[5_120..15_360].fill(2);
    expected[50_000..51_000].fill(9);
    expected.resize(204_800, 0);
    expected.resize(215_040, 3);
    assert!(fs::read(service.path("f")).expect("it") == expected, "as it is opened");
    assert!(fs::read(service.behind("f")).expect("it") == expected, "and in the directory");
    assert_eq!(file.metadata().expect("it is open").len(), 215_040);
    drop(file);
    // Without unwritten data the file ends where the other program cut it.
    behind.set_len(5).expect("shorter");
    assert_eq!(fs::metadata(service.path("f")).expect("it").len(), 5);
    assert_eq!(fs::read(service.path("f")).expect("it"), [1; 5]);
    service.end();
}

#[test]
fn what_others_append_is_not_overwritten_by_what_was_not_written() {
    if !can_mount() {
        return;
    }
    let setting = Setting { ttl: std::time::Duration::ZERO, ..lazy() };
    let service = Service::new(setting);
    fs::write(service.path("f"), vec![1; 10_001]).expect("a file");
    File::open(service.path("f")).and_then(|f| f.sync_all()).expect("the directory works");
    // In the same sector as the bytes that the other program appends.
    let file = OpenOptions::new().write(true).open(service.path("f")).expect("it");
    file.write_all_at(&[2; 1], 10_000).expect("room");
    let behind = OpenOptions::new().write(true).open(service.behind("f")).expect("it");
    behind.write_all_at(&[9; 1000], 10_001).expect("room");
    let mut expected = vec![1; 10_000];
    expected.push(2);
    expected.resize(11_001, 9);
    assert_eq!(fs::metadata(service.path("f")).expect("it").len(), 11_001);
    assert!(fs::read(service.path("f")).expect("it") == expected);
    drop(file);
    let source = service.end();
    assert!(fs::read(source.path().join("f")).expect("it") == expected);
}
