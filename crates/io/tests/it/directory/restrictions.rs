//! Actions that a mount must refuse because the mount of SOURCE refuses them (setuid programs,
//! devices, all programs, writes), or because attributes of a file in SOURCE do.

use super::elsewhere;
use super::{Service, Setting, can_mount};
use crate::common::rig;
use larder_testing::skip;
use rustix::fs::{AtFlags, FileType, IFlags, Mode, OFlags, StatVfsMountFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A file system in memory that is mounted with restrictions until this is dropped.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    pub(super) fn new(path: &Path, flags: MountFlags) -> Self {
        rustix::mount::mount("tmpfs", path, "tmpfs", flags, c"size=4m").expect("root may");
        rustix::mount::mount_change(path, MountPropagationFlags::PRIVATE).expect("root may");
        Mounted(path.to_owned())
    }

    /// Mounts a directory again at another path.
    pub(super) fn bound(from: &Path, path: &Path) -> Self {
        rustix::mount::mount_bind(from, path).expect("root may");
        rustix::mount::mount_change(path, MountPropagationFlags::PRIVATE).expect("root may");
        Mounted(path.to_owned())
    }

    /// Creates a FUSE mount of this user, with the flags and options, whose server has ended.
    fn fuse(path: &Path, user: u32, flags: MountFlags, options: &str) -> Self {
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.expect("root may");
        let number = device.as_raw_fd();
        let options = format!("fd={number},rootmode=40000,user_id={user},group_id={user}{options}");
        let options = CString::new(options).expect("no zero in it");
        rustix::mount::mount("sshfs", path, "fuse.larder", flags, options.as_c_str())
            .expect("root may");
        Mounted(path.to_owned())
    }

    pub(super) fn remount(&self, flags: MountFlags) {
        rustix::mount::mount_remount(&self.0, MountFlags::BIND | flags, c"").expect("root may");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).ok();
    }
}

/// `ST_NOSYMFOLLOW` of linux/statfs.h.
const NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(1 << 13);

fn all() -> MountFlags {
    MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSYMFOLLOW
}

pub(super) fn restrictions(path: &Path) -> StatVfsMountFlags {
    let known = StatVfsMountFlags::NOSUID
        | StatVfsMountFlags::NODEV
        | StatVfsMountFlags::NOEXEC
        | NOSYMFOLLOW
        | StatVfsMountFlags::RDONLY;
    rustix::fs::statvfs(path).expect("it is mounted").f_flag & known
}

/// Puts a program and a device into a directory.
fn fill(directory: &Path) {
    let program = directory.join("program");
    fs::write(&program, "#!/bin/sh\nexit 7\n").expect("room");
    rustix::fs::chmod(program, Mode::from_raw_mode(0o4755)).expect("ours");
    let null = rustix::fs::makedev(1, 3);
    let mode = Mode::from_raw_mode(0o666);
    let device = directory.join("null");
    rustix::fs::mknodat(rustix::fs::CWD, device, FileType::CharacterDevice, mode, null)
        .expect("root may");
}

/// Returns the results of running the program and of opening the device.
fn results_of_use(directory: &Path) -> (Option<Errno>, Option<Errno>) {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).expect("of the kernel");
    let ran = elsewhere::status(&directory.join("program")).err().map(errno);
    (ran, fs::File::open(directory.join("null")).err().map(errno))
}

#[test]
fn a_mount_is_as_restricted_as_that_of_its_directory() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), all());
    fill(source.path());
    let inside = source.path().join("inside");
    fs::create_dir(&inside).expect("room");
    let service = Service::over(source, Setting::default());
    assert_eq!(restrictions(service.at.path()), restrictions(&mounted.0));
    assert_eq!(results_of_use(service.at.path()), (Some(Errno::ACCESS), Some(Errno::ACCESS)));
    let source = service.end();
    drop((source, mounted));
}

/// The kernel reuses the number of an unmounted file system for the next one.
#[test]
fn a_file_system_with_the_number_of_one_that_was_mounted_in_a_directory_is_cached() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let inside = source.path().join("inside");
    fs::create_dir(&inside).expect("room");
    let nested = Mounted::new(&inside, MountFlags::empty());
    let number = |path: &Path| rustix::fs::stat(path).expect("it is there").st_dev;
    let former = number(&inside);
    let service = Service::over(source, Setting::default());
    drop(nested);
    // Another test may have got the number first, and returns it when it ends.
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut found = None;
    while found.is_none() && Instant::now() < deadline {
        let source = tempfile::tempdir().expect("a directory");
        let mounted = Mounted::new(source.path(), MountFlags::empty());
        found = (number(source.path()) == former).then_some((source, mounted));
        std::thread::yield_now();
    }
    match found {
        Some((source, mounted)) => {
            let source = Service::over(source, Setting::default()).end();
            drop((source, mounted));
        }
        None => skip("no new file system got the number of the former one"),
    }
    drop(service.end());
}

#[test]
fn a_mount_of_an_unrestricted_directory_is_not_restricted() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), MountFlags::empty());
    fill(source.path());
    let service = Service::over(source, Setting::default());
    assert_eq!(restrictions(service.at.path()), StatVfsMountFlags::empty());
    assert_eq!(results_of_use(service.at.path()), (None, None));
    let source = service.end();
    drop((source, mounted));
}

#[test]
fn a_directory_that_becomes_restricted_restricts_its_mount() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), MountFlags::empty());
    fill(source.path());
    fs::create_dir(source.path().join("inside")).expect("room");
    let service = Service::over(source, Setting::default());
    let at = service.at.path().to_owned();
    let has_flags = |expected| restrictions(&at) == expected;
    mounted.remount(MountFlags::NODEV);
    rig::eventually("it follows", || has_flags(StatVfsMountFlags::NODEV));
    assert_eq!(results_of_use(&at), (None, Some(Errno::ACCESS)));
    // The mount follows again, and never loses a restriction.
    mounted.remount(MountFlags::NOEXEC);
    let both = StatVfsMountFlags::NODEV | StatVfsMountFlags::NOEXEC;
    rig::eventually("it follows again", || has_flags(both));
    assert_eq!(results_of_use(&at), (Some(Errno::ACCESS), Some(Errno::ACCESS)));
    // A mount inside SOURCE that is added later counts too.
    let inside = Mounted::new(&mounted.0.join("inside"), MountFlags::NOSUID);
    rig::eventually("it follows what is inside", || has_flags(both | StatVfsMountFlags::NOSUID));
    drop(inside);
    let source = service.end();
    drop((source, mounted));
}

#[test]
fn restrictions_that_the_administrator_adds_stay() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), MountFlags::empty());
    let service = Service::over(source, Setting::default());
    let at = service.at.path().to_owned();
    let added = MountFlags::BIND | MountFlags::NOSUID | MountFlags::RDONLY;
    rustix::mount::mount_remount(&at, added, c"").expect("root may");
    mounted.remount(MountFlags::NOEXEC);
    let is_followed = || restrictions(&at).contains(StatVfsMountFlags::NOEXEC);
    rig::eventually("it follows", is_followed);
    let all = StatVfsMountFlags::NOSUID | StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOEXEC;
    assert_eq!(restrictions(&at), all);
    let source = service.end();
    drop((source, mounted));
}

#[test]
fn a_file_system_that_calls_itself_larder_restricts_the_mount_too() {
    if !can_mount() {
        return;
    }
    let (source, other) =
        (tempfile::tempdir().expect("a directory"), Service::new(Setting::default()));
    let inside = source.path().join("inside");
    fs::create_dir(&inside).expect("room");
    let service = Service::over(source, Setting::default());
    let bound = Mounted::bound(other.at.path(), &inside);
    bound.remount(MountFlags::NOSUID);
    let at = service.at.path();
    rig::eventually("it follows", || restrictions(at) == StatVfsMountFlags::NOSUID);
    drop(bound);
    service.end();
    other.end();
}

#[test]
fn a_directory_that_is_renamed_is_followed() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    fs::create_dir(source.path().join("inside")).expect("room");
    let service = Service::over(source, Setting::default());
    let (old, at) = (service.source.path(), service.at.path());
    let new = old.with_extension("renamed");
    fs::rename(old, &new).expect("it is ours");
    let inside = Mounted::new(&new.join("inside"), MountFlags::NOSUID);
    rig::eventually("it follows", || restrictions(at) == StatVfsMountFlags::NOSUID);
    drop(inside);
    fs::rename(&new, old).expect("it is ours");
    service.end();
}

#[test]
fn a_name_in_a_mount_that_has_just_appeared_is_restricted_when_it_is_answered() {
    if !can_mount() {
        return;
    }
    for _ in 0..10 {
        let source = tempfile::tempdir().expect("a directory");
        let inside = source.path().join("inside");
        fs::create_dir(&inside).expect("room");
        let service = Service::over(source, Setting::default());
        let mounted = Mounted::new(&inside, all());
        let opened = fs::File::open(service.path("inside")).expect("it is there");
        let flags = rustix::fs::fstatvfs(&opened).expect("it is mounted").f_flag;
        assert!(flags.contains(restrictions(&mounted.0)), "{flags:?}");
        drop(opened);
        let source = service.end();
        drop((mounted, source));
    }
}

#[test]
fn a_restricted_mount_inside_of_the_directory_restricts_all_of_it() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let inside = source.path().join("inside");
    fs::create_dir(&inside).expect("room");
    let mounted = Mounted::new(&inside, all());
    fill(&inside);
    let service = Service::over(source, Setting::default());
    assert_eq!(restrictions(service.at.path()), restrictions(&mounted.0));
    assert_eq!(results_of_use(&service.path("inside")), (Some(Errno::ACCESS), Some(Errno::ACCESS)));
    let notes = service.mount.as_ref().expect("until the end").notes();
    assert!(notes.iter().any(|note| note.contains("nosuid,nodev,noexec")), "{notes:?}");
    let source = service.end();
    drop((mounted, source));
}

#[test]
fn a_mount_that_shows_files_of_the_directory_with_other_rights_is_not_entered() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let whole = Mounted::new(source.path(), MountFlags::empty());
    let path = |name: &str| source.path().join(name);
    for name in ["files", "same", "strict"] {
        fs::create_dir(path(name)).expect("room");
    }
    fs::write(path("files/f"), "text").expect("room");
    let same = Mounted::bound(&path("files"), &path("same"));
    let strict = Mounted::bound(&path("files"), &path("strict"));
    strict.remount(MountFlags::RDONLY);
    let service = Service::over(source, Setting::default());
    let at = |name: &str| service.path(name);
    for _ in 0..2 {
        for name in ["strict", "strict/f", "strict/new"] {
            let opened = fs::File::create(at(name));
            let errno = Errno::from_io_error(&opened.expect_err("it is read-only"));
            assert_eq!(errno, Some(Errno::ACCESS), "{name}");
        }
        fs::write(at("files/f"), "more").expect("the directory may be written");
        assert_eq!(fs::read(at("same/f")).expect("it has the same rights"), b"more");
    }
    strict.remount(MountFlags::empty());
    rig::eventually("the mount can be entered", || fs::read(at("strict/f")).is_ok());
    let source = service.end();
    drop((strict, same, whole));
    drop(source);
}

#[test]
fn fuse_mounts_of_other_users_in_the_directory_restrict_nothing_and_are_not_entered() {
    const OTHER: u32 = 65_534;
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), MountFlags::empty());
    fill(source.path());
    for name in ["before", "later", "own"] {
        fs::create_dir(source.path().join(name)).expect("room");
    }
    let refused = |service: &Service, name: &str| {
        let opened = fs::File::open(service.path(name)).map_err(|error| error.kind());
        assert_eq!(opened.map(drop), Err(std::io::ErrorKind::PermissionDenied), "{name}");
    };
    // The request to a mount that all users may use would fail with another error.
    let before = Mounted::fuse(&source.path().join("before"), OTHER, all(), "");
    let service = Service::over(source, Setting::default());
    let later = Mounted::fuse(&service.behind("later"), OTHER, all(), ",allow_other");
    refused(&service, "before");
    refused(&service, "later");
    let at = service.at.path();
    mounted.remount(MountFlags::NODEV);
    rig::eventually("it follows", || restrictions(at).contains(StatVfsMountFlags::NODEV));
    assert_eq!(restrictions(at), StatVfsMountFlags::NODEV);
    assert_eq!(results_of_use(at), (None, Some(Errno::ACCESS)));
    // The mount has the type of Larder mounts, so its user matters.
    let own = Mounted::fuse(&service.behind("own"), 0, MountFlags::NOEXEC, "");
    rig::eventually("it follows", || restrictions(at).contains(StatVfsMountFlags::NOEXEC));
    drop((before, later, own));
    fs::File::open(service.path("later")).expect("nothing is mounted there");
    let source = service.end();
    drop((mounted, source));
}

/// Returns every change of names, attributes and contents in `directory`, with its result.
fn changes(directory: &Path) -> Vec<(&'static str, Result<(), Errno>)> {
    let (file, dir, new) = (directory.join("file"), directory.join("dir"), directory.join("new"));
    let cwd = rustix::fs::CWD;
    let open = |path: &Path, flags| rustix::fs::open(path, flags, Mode::RUSR).map(drop);
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let node = |kind| rustix::fs::mknodat(cwd, &new, kind, Mode::RUSR, 0);
    let uid = Some(rustix::fs::Uid::from_raw(1));
    let set = || rustix::fs::setxattr(&file, "user.a", b"x", XattrFlags::empty());
    let errno = |error: std::io::Error| Errno::from_io_error(&error).expect("of the kernel");
    vec![
        ("open for writing", open(&file, OFlags::WRONLY)),
        ("open for both", open(&file, OFlags::RDWR | OFlags::DIRECT)),
        ("cut at opening", open(&file, OFlags::RDONLY | OFlags::TRUNC)),
        ("create", open(&new, OFlags::CREATE | OFlags::RDWR)),
        ("create to read", open(&new, OFlags::CREATE | OFlags::RDONLY)),
        ("create exclusively", open(&file, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)),
        ("temporary", open(directory, OFlags::TMPFILE | OFlags::RDWR)),
        ("make a directory", rustix::fs::mkdir(&new, Mode::RUSR)),
        ("make a fifo", node(FileType::Fifo)),
        ("make a file", node(FileType::RegularFile)),
        ("make a device", node(FileType::CharacterDevice)),
        ("make a symbolic link", rustix::fs::symlink("x", &new)),
        ("make a link", rustix::fs::link(&file, &new)),
        ("remove", rustix::fs::unlink(&file)),
        ("remove what is missing", rustix::fs::unlink(&new)),
        ("remove a directory", rustix::fs::rmdir(&dir)),
        ("rename", rustix::fs::rename(&file, &new)),
        ("change the mode", rustix::fs::chmod(&file, Mode::RUSR)),
        ("change the owner", rustix::fs::chownat(cwd, &file, uid, None, AtFlags::empty())),
        ("change times", rustix::fs::utimensat(cwd, &file, &times, AtFlags::empty())),
        ("cut", fs::OpenOptions::new().write(true).open(&file).map(drop).map_err(errno)),
        ("set an attribute", set()),
        ("remove an attribute", rustix::fs::removexattr(&file, "user.b")),
        ("ask for writing", rustix::fs::access(&file, rustix::fs::Access::WRITE_OK)),
    ]
}

fn fill_to_change(directory: &Path) {
    fs::write(directory.join("file"), "text").expect("room");
    fs::create_dir(directory.join("dir")).expect("room");
}

/// Mounts a directory with a read-only part, and compares the results.
fn compare_read_only(make: impl FnOnce(&TempDir) -> (Vec<Mounted>, PathBuf), private: bool) {
    let source = tempfile::tempdir().expect("a directory");
    let (mounted, inside) = make(&source);
    let expected = changes(&source.path().join(&inside));
    let refused = expected.iter().filter(|(_, result)| *result == Err(Errno::ROFS)).count();
    assert!(refused > 15, "{expected:?}");
    let service = Service::over(source, Setting { private, ..Setting::default() });
    let mut found = changes(&service.path(&inside.to_string_lossy()));
    let source = service.end();
    drop((mounted, source));
    if inside != Path::new("") {
        // The kernel answers these itself, and does not know that a part is read-only.
        let own = ["remove what is missing", "ask for writing"];
        let pairs = found.iter_mut().zip(&expected);
        pairs
            .filter(|(found, _)| own.contains(&found.0))
            .for_each(|(found, right)| *found = *right);
    }
    assert_eq!(found, expected, "private: {private}");
}

#[test]
fn what_is_read_only_says_so() {
    if !can_mount() {
        return;
    }
    for private in [false, true] {
        let whole = |source: &TempDir| {
            let mounted = Mounted::new(source.path(), MountFlags::empty());
            fill_to_change(source.path());
            mounted.remount(MountFlags::RDONLY);
            (vec![mounted], PathBuf::new())
        };
        compare_read_only(whole, private);
        let inside = |source: &TempDir| {
            let path = source.path().join("inside");
            fs::create_dir(&path).expect("room");
            let mounted = Mounted::new(&path, MountFlags::empty());
            fill_to_change(&path);
            mounted.remount(MountFlags::RDONLY);
            (vec![mounted], PathBuf::from("inside"))
        };
        compare_read_only(inside, private);
    }
}

/// A file in SOURCE with attributes of chattr(1), until this is dropped.
struct Flagged(fs::File);

impl Flagged {
    /// Sets the attributes; returns none if the file system does not support them.
    fn new(path: &Path, flags: IFlags) -> Option<Self> {
        let file = fs::File::open(path).expect("it is there");
        rustix::fs::ioctl_setflags(&file, flags).ok().map(|()| Flagged(file))
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        rustix::fs::ioctl_setflags(&self.0, IFlags::empty()).ok();
    }
}

/// Returns the results of opening a file for writing in several ways.
fn openings(path: &Path) -> [Option<Errno>; 4] {
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(drop);
    let flags = [OFlags::RDONLY, OFlags::RDWR, OFlags::WRONLY, OFlags::WRONLY | OFlags::TRUNC];
    flags.map(open).map(Result::err)
}

#[test]
fn a_file_that_is_open_for_writing_is_opened_again_only_as_its_attributes_permit() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    let (path, behind) = (service.path("f"), service.behind("f"));
    let open = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let open = open.expect("room");
    for flags in [IFlags::APPEND, IFlags::IMMUTABLE] {
        rustix::io::pwrite(&open, b"text", 0).expect("room");
        open.sync_all().expect("nothing is wrong");
        let Some(flagged) = Flagged::new(&behind, flags) else {
            skip("the file system of the tests has no attributes of chattr(1)");
            break;
        };
        let refused = Some(Errno::PERM);
        assert_eq!(openings(&behind), [None, refused, refused, refused], "{flags:?}");
        assert_eq!(openings(&path), openings(&behind), "{flags:?}");
        // SOURCE would permit this, but the kernel would then not protect the mount from other
        // writes.
        let append = OFlags::WRONLY | OFlags::APPEND;
        assert_eq!(rustix::fs::open(&path, append, Mode::empty()).err(), refused, "{flags:?}");
        if flags == IFlags::IMMUTABLE {
            rustix::io::pwrite(&open, b"late", 0).expect("the cache takes it");
            assert_eq!(rustix::fs::fsync(&open), Err(Errno::PERM));
        }
        assert_eq!(rustix::fs::ftruncate(&open, 1).err(), refused, "{flags:?}");
        drop(flagged);
        assert_eq!(openings(&path), [None; 4], "{flags:?}");
    }
    open.sync_all().expect("it can be written again");
    drop(open);
    service.end();
}
