//! Locks, copies within the kernel, access lists and syncfs(2): what the kernel does for a mount
//! with a little help of ours.

use super::{MIB, Service, Setting, can_mount, elsewhere};
use larder_testing::skip;
use rustix::fs::{FlockOperation, XattrFlags, copy_file_range, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

/// An access list of version 2: the owner all, user 7 reading, the group and the mask reading,
/// others nothing. Tag, rights and who, as the kernel's `posix_acl_xattr.h` has them.
const ACCESS: [(u16, u16, u32); 5] =
    [(1, 7, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(path).expect("a file")
}

#[test]
fn locks_hold_between_openings_and_between_programs() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let path = service.path("f");
    let (one, other) = (open(&path), open(&path));
    flock(&one, FlockOperation::LockExclusive).expect("nobody has it");
    let refused = flock(&other, FlockOperation::NonBlockingLockShared);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    flock(&one, FlockOperation::Unlock).expect("it is ours");
    flock(&other, FlockOperation::NonBlockingLockShared).expect("nobody has it");
    fcntl_lock(&one, FlockOperation::LockExclusive).expect("nobody has it");
    let words = [path.display().to_string()];
    elsewhere::run("locks", "folder::locks::part_of_another_process", &words);
    drop((one, other));
    service.end();
}

/// The part of another process, since such locks belong to processes.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::words("locks") else { return };
    let file = open(Path::new(&words[0]));
    let refused = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    assert!(matches!(refused, Err(Errno::AGAIN | Errno::ACCESS)), "{refused:?}");
}

#[test]
fn a_copy_within_the_kernel_copies_what_is_not_written_yet() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    let bytes: Vec<u8> = (0..MIB + 777).map(|at| u8::try_from(at % 253).expect("small")).collect();
    fs::write(service.path("from"), &bytes).expect("room");
    let (from, to) = (open(&service.path("from")), open(&service.path("to")));
    let (mut read_at, mut write_at) = (5, 4000);
    while read_at < bytes.len() as u64 {
        let left = bytes.len() - usize::try_from(read_at).expect("small");
        let copied = copy_file_range(&from, Some(&mut read_at), &to, Some(&mut write_at), left);
        assert!(copied.expect("both are there") > 0);
    }
    let copy = fs::read(service.path("to")).expect("it");
    assert!(copy[..4000].iter().all(|&byte| byte == 0) && copy[4000..] == bytes[5..]);
    drop((from, to));
    let source = service.end();
    assert!(fs::read(source.path().join("to")).expect("it") == copy, "and so it is behind");
}

#[test]
fn access_lists_are_kept_and_count() {
    for private in [false, true] {
        access_list(private);
    }
}

fn access_list(private: bool) {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { private, ..Setting::default() });
    let path = service.path("f");
    fs::write(&path, "x").expect("room");
    let entries = ACCESS.into_iter().flat_map(|(tag, rights, who)| {
        let mut bytes = [tag.to_le_bytes(), rights.to_le_bytes()].concat();
        bytes.extend(who.to_le_bytes());
        bytes
    });
    let list: Vec<u8> = 2u32.to_le_bytes().into_iter().chain(entries).collect();
    let name = "system.posix_acl_access";
    if let Err(error) = rustix::fs::setxattr(service.behind("f"), name, &list, XattrFlags::empty())
    {
        skip(format_args!("the directory of the tests does not support ACLs: {error}"));
        return;
    }
    rustix::fs::setxattr(&path, name, &list, XattrFlags::empty()).expect("by the mount too");
    let mut read = [0; 200];
    for at in [&path, &service.behind("f")] {
        let len = rustix::fs::getxattr(at, name, &mut read[..]).expect("it was set");
        assert_eq!(read[..len], list[..], "{}", at.display());
    }
    let mode = |path: &Path| rustix::fs::stat(path).expect("it is there").st_mode & 0o777;
    assert_eq!(
        (mode(&path), mode(&service.behind("f"))),
        (0o740, 0o740),
        "the mask is the group's"
    );
    service.end();
}

#[test]
fn syncfs_of_the_mount_loses_nothing_and_fsync_keeps_its_promise_after_it() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    fs::write(service.path("f"), [3; 70_000]).expect("room");
    let file = open(&service.path("f"));
    // The kernel asks for this in file systems of its own alone, as docs/mount.md says.
    rustix::fs::syncfs(&file).expect("nothing is wrong");
    assert!(fs::read(service.path("f")).expect("it") == [3; 70_000]);
    file.sync_all().expect("the folder works");
    assert!(fs::read(service.behind("f")).expect("it") == [3; 70_000]);
    drop(file);
    service.end();
}
