//! Names, attributes, opening, and refused operations.

use super::{MIB, Service, can_mount};
use crate::common::rig::{Memory, engine, geometry, volume};
use larder_core::mode::WriteMode;
use larder_io::front::fuse::{UnmountError, VolumeMount, check_name};
use larder_io::store::{OpenOptions as StoreOptions, SolidMap, open};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::sync::Arc;

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.expect_err("it is refused"))
}

#[test]
fn a_volume_is_a_file_of_its_size_whose_owner_can_be_changed() {
    if !can_mount() {
        return;
    }
    let service = Service::new(8 * MIB, MIB + 512, Memory::new(MIB + 512));
    let names = std::fs::read_dir(service.directory.path()).expect("a directory");
    let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["disk"]);
    let path = service.path("disk");
    let found = std::fs::metadata(&path).expect("it is there");
    assert!(found.is_file());
    assert_eq!((found.len(), found.mode() & 0o7777, found.nlink()), (MIB + 512, 0o600, 1));
    assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("allowed");
    chown(&path, Some(12), Some(34)).expect("allowed");
    let changed = std::fs::metadata(&path).expect("it is there");
    assert_eq!((changed.mode() & 0o7777, changed.uid(), changed.gid()), (0o640, 12, 34));
    let file = service.open();
    file.write_all_at(b"x", 0).expect("room");
    let written = std::fs::metadata(&path).expect("it is there");
    assert!(written.modified().unwrap() > found.modified().unwrap(), "writing shows");
    drop(file);
    service.end();
}

#[test]
fn what_would_change_the_volumes_or_their_size_is_refused() {
    if !can_mount() {
        return;
    }
    let service = Service::new(8 * MIB, MIB, Memory::new(MIB));
    let disk = service.path("disk");
    assert_eq!(errno(File::create(service.path("new"))), Some(Errno::PERM));
    assert_eq!(errno(std::fs::create_dir(service.path("new"))), Some(Errno::PERM));
    assert_eq!(errno(std::fs::remove_file(&disk)), Some(Errno::PERM));
    assert_eq!(errno(std::fs::rename(&disk, service.path("new"))), Some(Errno::PERM));
    assert_eq!(errno(File::create(&disk)), Some(Errno::PERM), "it would be emptied");
    assert_eq!(errno(std::fs::metadata(service.path("new"))), Some(Errno::NOENT));
    let file = service.open();
    assert_eq!(errno(file.set_len(MIB / 2)), Some(Errno::PERM));
    file.set_len(MIB).expect("that is its size");
    drop(file);
    service.end();
}

#[test]
fn at_the_end_it_is_as_with_a_disk() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(MIB);
    let service = Service::new(8 * MIB, MIB, memory.clone());
    let file = service.open();
    let mut bytes = [1; 100];
    assert_eq!(file.read_at(&mut bytes, MIB - 30).expect("some"), 30);
    assert_eq!(file.read_at(&mut bytes, MIB).expect("none"), 0);
    assert_eq!(file.read_at(&mut bytes, MIB * 7).expect("none"), 0);
    assert_eq!(file.write_at(&[7; 100], MIB - 30).expect("some"), 30);
    assert_eq!(errno(file.write_at(&[7; 100], MIB)), Some(Errno::NOSPC));
    let zero = FallocateFlags::ZERO_RANGE;
    assert_eq!(fallocate(&file, zero, MIB - 10, 20), Err(Errno::NOSPC));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, MIB), Err(Errno::OPNOTSUPP));
    fallocate(&file, zero | FallocateFlags::KEEP_SIZE, MIB - 10, 20).expect("up to the end");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, MIB * 2, 20)
        .expect("nothing is there to punch");
    file.sync_all().expect("the store works");
    let expected = [[7; 20].as_slice(), &[0; 10]].concat();
    assert_eq!(memory.bytes(MIB - 30, 30), expected);
    drop(file);
    service.end();
}

#[test]
fn a_read_only_volume_is_not_opened_for_writing() {
    if !can_mount() {
        return;
    }
    let engine = engine(8 * MIB);
    let disk = volume(&engine, "disk", MIB, Memory::new(MIB));
    let service = Service::start(engine, Arc::clone(&disk), Arc::new(SolidMap));
    let file = service.open();
    disk.set_write_mode(WriteMode::ReadOnly).expect("a mode");
    assert_eq!(errno(file.write_at(b"x", 0)), Some(Errno::ROFS));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&file, punch, 0, 4096), Err(Errno::ROFS));
    let writing = OpenOptions::new().write(true).open(service.path("disk"));
    assert_eq!(errno(writing), Some(Errno::ROFS));
    File::open(service.path("disk")).expect("reading is fine");
    assert_eq!(file.read_at(&mut [0; 5], 0).expect("bytes"), 5);
    drop(file);
    service.end();
}

#[test]
fn data_and_holes_are_found_also_where_only_the_cache_has_data() {
    if !can_mount() {
        return;
    }
    let image = tempfile::NamedTempFile::new().expect("a file");
    image.as_file().set_len(8 * MIB).expect("room");
    image.as_file().write_all_at(&[1; 4096], MIB).expect("room");
    let engine = engine(16 * MIB);
    let opened = open(image.path(), StoreOptions::default(), engine.clock()).expect("a store");
    let mut options = larder_core::volume::VolumeOptions::new("disk", opened.store.geometry());
    options.tunables.set("first-delay", 60_000).expect("a tunable");
    let disk = engine.add_volume(options, opened.store).expect("a volume");
    let service = Service::start(engine, disk, opened.map);
    let file = service.open();
    let data = |at| seek(&file, SeekFrom::Data(at));
    let hole = |at| seek(&file, SeekFrom::Hole(at));
    assert_eq!((data(0), hole(0)), (Ok(MIB), Ok(0)));
    assert_eq!((data(MIB + 9), hole(MIB + 9)), (Ok(MIB + 9), Ok(MIB + 4096)));
    assert_eq!((data(2 * MIB), hole(2 * MIB)), (Err(Errno::NXIO), Ok(2 * MIB)));
    file.write_all_at(&[2; 8192], 6 * MIB).expect("room");
    assert_eq!((data(2 * MIB), hole(6 * MIB)), (Ok(6 * MIB), Ok(6 * MIB + 8192)));
    assert_eq!((data(8 * MIB), hole(8 * MIB)), (Err(Errno::NXIO), Err(Errno::NXIO)));
    file.write_all_at(&[2; 4096], 8 * MIB - 4096).expect("room");
    assert_eq!(hole(8 * MIB - 4096), Ok(8 * MIB), "the end counts as a hole");
    drop(file);
    service.end();
}

#[test]
fn names_that_no_file_can_have_are_refused() {
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(check_name(name).unwrap_err().to_string().ends_with("name it with NAME=PATH"));
    }
    assert!(check_name(&"x".repeat(256)).unwrap_err().to_string().contains("255 bytes"));
    check_name(&"x".repeat(255)).expect("long, but a name");
    check_name(". a \\ b").expect("odd, but a name");
    if !can_mount() {
        return;
    }
    let engine = engine(8 * MIB);
    let odd = volume(&engine, "a\\b c\u{e4}", MIB, Memory::new(MIB));
    let service = Service::start(engine, odd, Arc::new(SolidMap));
    let found = std::fs::metadata(service.path("a\\b c\u{e4}")).expect("it is there");
    assert_eq!(found.len(), MIB);
    service.end();
}

#[test]
fn many_volumes_are_all_listed() {
    if !can_mount() {
        return;
    }
    let engine = engine(16 * MIB);
    let disk = volume(&engine, "disk", MIB, Memory::new(MIB));
    let service = Service::start(Arc::clone(&engine), disk, Arc::new(SolidMap));
    let mut expected = vec!["disk".to_owned()];
    for i in 0..40 {
        let name = format!("{i:0200}");
        let one = volume(&engine, &name, MIB, Memory::new(MIB));
        service.mount().add(one, Arc::new(SolidMap)).expect("a name");
        expected.push(name);
    }
    let entries = std::fs::read_dir(service.directory.path()).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    service.end();
}

#[test]
fn a_mount_in_use_stays_until_it_is_cut_off() {
    if !can_mount() {
        return;
    }
    let mut service = Service::new(8 * MIB, MIB, Memory::new(MIB));
    let file = service.open();
    let mount = service.mount.take().expect("there");
    let busy = mount.unmount(false).expect_err("a file is open");
    assert!(matches!(busy, UnmountError::Busy(_)), "{busy}");
    file.write_all_at(b"still served", 0).expect("room");
    let second = VolumeMount::start(
        Arc::clone(&service.engine),
        service.directory.path(),
        vec![],
        None,
        false,
    );
    let second = second.expect_err("it is taken").to_string();
    assert!(second.ends_with("a larder that runs has it mounted"), "{second}");
    mount.unmount(true).expect("lazily");
    assert_eq!(std::fs::read_dir(service.directory.path()).expect("empty").count(), 0);
    file.read_exact_at(&mut [0; 12], 0).expect("who has it open is served");
    mount.close();
    assert!(file.read_at(&mut [0; 12], 0).is_err(), "cut off");
    crate::common::rig::end(&service.engine);
}

#[test]
fn a_store_that_is_read_only_is_a_file_that_cannot_be_written() {
    if !can_mount() {
        return;
    }
    let engine = engine(8 * MIB);
    let read_only = larder_core::store::Geometry { read_only: true, ..geometry(MIB) };
    let mut options = larder_core::volume::VolumeOptions::new("disk", read_only);
    options.write_mode = WriteMode::ReadOnly;
    let store = larder_core::store::MemoryStore::new(read_only);
    let store = Box::new(larder_io::store::TimedStore::new(store, engine.clock()));
    let disk = engine.add_volume(options, store).expect("a volume");
    let service = Service::start(engine, disk, Arc::new(SolidMap));
    let found = std::fs::metadata(service.path("disk")).expect("it is there");
    assert_eq!(found.mode() & 0o7777, 0o400);
    service.end();
}
