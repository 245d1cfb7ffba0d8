//! Files that lose their last name in SOURCE behind the mount: the mount releases those that no
//! program has open, which frees their space; those that are open or mapped stay unchanged.

use super::promises::SmallFileSystem;
use super::{Service, Setting, can_mount};
use crate::common::{TIMEOUT, rig, spawn::closing};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

fn lazy() -> Setting {
    Setting { lazy: true, ..Setting::default() }
}

/// Returns the number of descriptors of this process whose file was deleted as `name` in a
/// directory.
fn held(directory: &Path, name: &str) -> usize {
    let deleted = directory.canonicalize().expect("a directory").join(format!("{name} (deleted)"));
    let descriptors = fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    descriptors
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == deleted))
        .count()
}

/// Writes a file through the mount and has it written to SOURCE.
fn write_stable(service: &Service, name: &str, bytes: &[u8]) {
    let file = File::create(service.path(name)).expect("a file");
    file.write_all_at(bytes, 0).expect("the cache has room");
    file.sync_all().expect("the directory works");
}

#[test]
fn a_file_that_is_deleted_in_source_gives_up_its_descriptor_and_its_pages() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    fs::create_dir(service.path("directory")).expect("a name");
    for name in ["f", "directory/g"] {
        write_stable(&service, name, &[1; 300_000]);
    }
    fs::remove_file(service.behind("f")).expect("it");
    fs::remove_dir_all(service.behind("directory")).expect("it");
    for name in ["f", "directory/g"] {
        rig::eventually("it is given up", || held(service.source.path(), name) == 0);
    }
    rig::eventually("nothing of it is cached", || {
        service.mount.as_ref().expect("a mount").files().is_empty()
    });
    write_stable(&service, "f", b"another");
    assert_eq!(fs::read(service.behind("f")).expect("it"), b"another");
    service.end();
}

#[test]
fn unwritten_data_of_a_file_that_is_deleted_in_source_and_closed_is_dropped() {
    if !can_mount() {
        return;
    }
    let service = Service::new(lazy());
    fs::write(service.path("f"), vec![1; 300_000]).expect("a file");
    fs::write(service.path("kept"), vec![2; 8192]).expect("a file");
    rig::eventually("it is closed", || {
        let files = service.mount.as_ref().expect("a mount").files();
        files.iter().all(|file| file.opens == 0)
    });
    assert!(service.dirty() > 300_000, "nothing was written");
    fs::remove_file(service.behind("f")).expect("it");
    rig::eventually("only the other file waits", || service.dirty() == 8192);
    rig::eventually("it is given up", || held(service.source.path(), "f") == 0);
    let source = service.end();
    assert!(fs::read(source.path().join("kept")).expect("it") == vec![2; 8192]);
}

#[test]
fn a_file_that_is_deleted_in_source_stays_as_it_is_while_a_program_has_it_open_or_mapped() {
    if !can_mount() {
        return;
    }
    let service = Service::new(lazy());
    let guard = closing();
    for name in ["open", "mapped", "linked", "decoy"] {
        write_stable(&service, name, &[1; 100_000]);
    }
    fs::hard_link(service.behind("linked"), service.behind("other")).expect("a name");
    let options = || OpenOptions::new().read(true).write(true).clone();
    let open = options().open(service.path("open")).expect("it");
    let linked = options().open(service.path("linked")).expect("it");
    linked.write_all_at(&[3; 100], 0).expect("room");
    drop(linked);
    let file = File::open(service.path("mapped")).expect("it");
    // SAFETY: the file is not truncated while it is mapped.
    let mapped = unsafe {
        let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
        rustix::mm::mmap(std::ptr::null_mut(), 100_000, protection, flags, &file, 0)
            .expect("memory")
    };
    drop(file);
    open.write_all_at(&[2; 50_000], 50_000).expect("room");
    for name in ["open", "mapped", "linked", "decoy"] {
        fs::remove_file(service.behind(name)).expect("it");
    }
    rig::eventually("the others were looked at", || held(service.source.path(), "decoy") == 0);
    let mut bytes = vec![0; 100_000];
    open.read_exact_at(&mut bytes, 0).expect("it is open");
    assert!(bytes[..50_000] == [1; 50_000] && bytes[50_000..] == [2; 50_000]);
    open.write_all_at(&[4; 4096], 4096).expect("it is open");
    open.sync_all().expect("it has a place in the directory");
    open.read_exact_at(&mut bytes[..4096], 4096).expect("it is open");
    assert!(bytes[..4096] == [4; 4096]);
    // SAFETY: the pages stay mapped, and no code changes them, until they are unmapped below.
    let pages = unsafe { std::slice::from_raw_parts(mapped.cast::<u8>(), 100_000) };
    assert!(pages.iter().all(|&byte| byte == 1));
    // SAFETY: the pages are mapped, and are not used after this.
    unsafe { rustix::mm::munmap(mapped, 100_000) }.expect("they are mapped");
    let mut expected = vec![1; 100_000];
    expected[..100].fill(3);
    assert!(fs::read(service.path("other")).expect("its other name") == expected);
    drop(open);
    drop(guard);
    for name in ["open", "mapped"] {
        rig::eventually("it is given up", || held(service.source.path(), name) == 0);
    }
    let source = service.end();
    assert!(fs::read(source.path().join("other")).expect("it") == expected, "it was not dropped");
}

/// State of the mount while data waits for space.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Mounted,
    Unmounted,
}

/// Fills a file system, ends the mount, deletes a file in SOURCE, and expects that the data that
/// did not fit is written.
fn expect_room_after_deletion(ending: Ending) {
    let source = tempfile::tempdir().expect("a directory");
    let path = source.path().to_owned();
    let flags = MountFlags::empty();
    rustix::mount::mount("tmpfs", &path, "tmpfs", flags, c"size=1m").expect("root may");
    let small = SmallFileSystem(&path);
    let service = Service::over(source, lazy());
    // Another test may just have filled a file system with the same device number.
    rig::eventually("it is not taken for full any more", || {
        fs::write(service.path("big"), vec![1; 700_000]).is_ok()
    });
    let synced = File::open(service.path("big")).and_then(|file| file.sync_all());
    synced.expect("there is room");
    fs::write(service.path("big2"), vec![2; 600_000]).expect("the cache has room");
    let synced = File::open(service.path("big2")).and_then(|file| file.sync_all());
    assert!(synced.is_err(), "the directory is full");
    if ending == Ending::Unmounted {
        rig::eventually("it is not in use", || {
            rustix::mount::unmount(service.at.path(), UnmountFlags::empty()).is_ok()
        });
    }
    let (started, mut has_room) = (Instant::now(), false);
    let drained = service.engine.drain(|at| {
        assert!(started.elapsed() < TIMEOUT, "in vain: {at:?}");
        if at.error.is_some() && !has_room {
            fs::remove_file(path.join("big")).expect("it");
            has_room = true;
        }
    });
    drained.expect("there is room");
    assert!(has_room, "it did not fit before");
    assert!(fs::read(path.join("big2")).expect("it") == vec![2; 600_000]);
    assert_eq!(held(&path, "big"), 0);
    let source = if ending == Ending::Mounted { service.end() } else { service.end_unmounted() };
    drop(small);
    drop(source);
}

#[test]
fn a_stop_that_waits_for_space_ends_when_a_file_is_deleted_in_source() {
    if !can_mount() {
        return;
    }
    expect_room_after_deletion(Ending::Mounted);
}

#[test]
fn after_an_unmount_that_waits_for_space_a_file_that_is_deleted_in_source_makes_room() {
    if !can_mount() {
        return;
    }
    expect_room_after_deletion(Ending::Unmounted);
}
