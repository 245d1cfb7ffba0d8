//! Locks, copies within the kernel, access lists and syncfs(2): functions of the kernel that need
//! support by the mount.

use super::privileges::as_other;
use super::promises::SmallFileSystem;
use super::{MIB, Service, Setting, can_mount, elsewhere};
use crate::common::rig;
use larder_testing::skip;
use rustix::fs::{FlockOperation, Mode, OFlags, XattrFlags, copy_file_range, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::CpuSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// An access list of version 2: the owner has all rights, user 7 reads, the group and the mask
/// read, others have none. Each entry has tag, rights and ID, as in the kernel's
/// `posix_acl_xattr.h`.
const ACCESS: [(u16, u16, u32); 5] =
    [(1, 7, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];

/// Returns [`ACCESS`] as the value of the extended attribute.
fn list() -> Vec<u8> {
    let entries = ACCESS.into_iter().flat_map(|(tag, rights, id)| {
        let mut bytes = [tag.to_le_bytes(), rights.to_le_bytes()].concat();
        bytes.extend(id.to_le_bytes());
        bytes
    });
    2u32.to_le_bytes().into_iter().chain(entries).collect()
}

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
    flock(&one, FlockOperation::LockExclusive).expect("it is unlocked");
    let refused = flock(&other, FlockOperation::NonBlockingLockShared);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    flock(&one, FlockOperation::Unlock).expect("it is ours");
    flock(&other, FlockOperation::NonBlockingLockShared).expect("it is unlocked");
    fcntl_lock(&one, FlockOperation::LockExclusive).expect("it is unlocked");
    let words = [path.display().to_string()];
    elsewhere::run("locks", "directory::locks::part_of_another_process", &words);
    drop((one, other));
    service.end();
}

/// The part of the test that another process runs, since such locks belong to processes.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::arguments("locks") else { return };
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
    let list = list();
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

/// NFS 4, SMB, FAT and ramfs do not support such lists.
#[test]
fn a_source_without_access_lists_has_the_rights_of_its_modes() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let path = source.path().to_owned();
    rustix::mount::mount("ramfs", &path, "ramfs", MountFlags::empty(), None).expect("root may");
    let small = SmallFileSystem(&path);
    rustix::mount::mount_change(&path, MountPropagationFlags::PRIVATE).expect("root may");
    let name = "system.posix_acl_access";
    assert_eq!(rustix::fs::getxattr(&path, name, &mut [0; 99][..]), Err(Errno::OPNOTSUPP));
    let service = Service::over(source, Setting::default());
    let (open, secret) = (service.path("open"), service.path("secret"));
    for (directory, mode) in [(&service.path(""), 0o755), (&open, 0o777), (&secret, 0o700)] {
        fs::create_dir_all(directory).expect("room");
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).expect("root may");
    }
    as_other(|| {
        fs::create_dir(open.join("directory")).expect("all may");
        fs::write(open.join("file"), "text").expect("all may");
        let made = fs::create_dir(secret.join("directory")).expect_err("only root may");
        assert_eq!(Errno::from_io_error(&made), Some(Errno::ACCESS));
    });
    let found = rustix::fs::getxattr(&open, name, &mut [0; 99][..]);
    assert!(matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP)), "{found:?}");
    let set = rustix::fs::setxattr(&open, name, &list(), XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    let source = service.end();
    drop(small);
    drop(source);
}

#[test]
fn syncfs_of_the_mount_loses_nothing_and_fsync_keeps_its_promise_after_it() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    fs::write(service.path("f"), [3; 70_000]).expect("room");
    let file = open(&service.path("f"));
    // The kernel sends this request only for its own file systems, as docs/mount.md says.
    rustix::fs::syncfs(&file).expect("nothing is wrong");
    assert!(fs::read(service.path("f")).expect("it") == [3; 70_000]);
    file.sync_all().expect("the directory works");
    assert!(fs::read(service.behind("f")).expect("it") == [3; 70_000]);
    drop(file);
    service.end();
}

/// Otherwise every thread of the mount would wait for the owner of the files, and no other request
/// would be served.
#[test]
fn files_that_another_process_has_leases_on_keep_nobody_else_waiting() {
    // With io_uring, one processor has at most 32 requests in flight.
    const LEASED: usize = 40;
    if !can_mount() {
        return;
    }
    let by_ring = fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
        .is_ok_and(|text| text.trim() == "Y");
    let service = Service::new(Setting::default());
    let name = |number: usize| format!("leased-{number}");
    let leases: Vec<File> =
        (0..LEASED).map(|number| lease(&service.behind(&name(number)))).collect();
    fs::write(service.behind("other"), "text").expect("room");
    std::thread::scope(|scope| {
        let open = |number: usize| {
            let path = service.path(&name(number));
            scope.spawn(move || {
                use_one_processor();
                if number.is_multiple_of(2) {
                    fs::read(path).map(drop)
                } else {
                    fs::write(path, "new")
                }
            })
        };
        let waiting: Vec<_> = (0..LEASED).map(open).collect();
        rig::eventually("all of them wait", || {
            leases.iter().all(|lease| type_of_lease(lease) != libc::F_WRLCK)
        });
        use_one_processor();
        for _ in 0..LEASED {
            assert_eq!(fs::read(service.path("other")).expect("it has no lease"), b"text");
            fs::write(service.path("new"), "x").expect("room");
            fs::remove_file(service.path("new")).expect("it is there");
        }
        let opened = rustix::fs::open(
            service.path(&name(0)),
            OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::empty(),
        );
        assert_eq!(opened.err(), Some(Errno::AGAIN));
        let refused = waiting.iter().filter(|thread| thread.is_finished()).count();
        assert!(refused < if by_ring { LEASED } else { 1 }, "{refused} did not wait");
        drop(leases);
        let results = waiting.into_iter().map(|thread| thread.join().expect("no panic"));
        let errors: Vec<_> = results.filter_map(Result::err).map(|error| error.kind()).collect();
        assert!(errors.iter().all(|kind| *kind == ErrorKind::WouldBlock), "{errors:?}");
        assert!(errors.len() <= refused, "the others get the file when the lease is gone");
    });
    service.end();
}

/// Runs this thread on the first processor alone, as all threads that call it.
fn use_one_processor() {
    let mut set = CpuSet::new();
    set.set(0);
    rustix::thread::sched_setaffinity(None, &set).expect("it is one of ours");
}

/// `F_SETSIG` of fcntl.h.
const F_SETSIG: libc::c_int = 10;

/// Returns a new file on which this process has a lease.
fn lease(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path).expect("room");
    let number = file.as_raw_fd();
    // SAFETY: the call changes the signal of this descriptor to one that is ignored by default.
    assert_eq!(unsafe { libc::fcntl(number, F_SETSIG, libc::SIGURG) }, 0);
    // SAFETY: the call takes no pointers.
    assert_eq!(unsafe { libc::fcntl(number, libc::F_SETLEASE, libc::F_WRLCK) }, 0);
    file
}

/// Returns the type of a lease that the kernel leaves to a process: a weaker one once another
/// process waits for it.
fn type_of_lease(file: &File) -> libc::c_int {
    // SAFETY: the call takes no pointers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) }
}
