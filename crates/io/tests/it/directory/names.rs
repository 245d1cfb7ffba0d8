//! Special cases of names and attributes: owners, umasks, special files, large directories, files
//! without a name, several names.

use super::privileges::as_other;
use super::{Service, Setting, can_mount};
use larder_testing::{has_tool, skip};
use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn special_files_are_what_they_are() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let make = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(rustix::fs::CWD, service.path(name), kind, mode, device)
            .expect("it can be made");
        (
            fs::metadata(service.path(name)).expect("it"),
            fs::metadata(service.behind(name)).expect("it"),
        )
    };
    let (pipe, behind) = make("pipe", FileType::Fifo, 0);
    assert!(pipe.file_type().is_fifo() && behind.file_type().is_fifo());
    let null = rustix::fs::makedev(1, 3);
    let (device, behind) = make("null", FileType::CharacterDevice, null);
    assert_eq!((device.rdev(), behind.rdev()), (null, null));
    let mut opened = fs::OpenOptions::new().write(true).open(service.path("null")).expect("it");
    opened.write_all(b"gone").expect("it takes everything");
    drop(opened);
    std::os::unix::net::UnixListener::bind(service.path("socket")).expect("a socket");
    assert!(fs::metadata(service.behind("socket")).expect("it").file_type().is_socket());
    service.end();
}

#[test]
fn what_others_make_is_theirs_under_their_mask() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(service.path(""), open.clone()).expect("root may");
    fs::set_permissions(service.at.path(), open).expect("root may");
    let script = format!(
        "cd {} && umask 027 && mkdir d && echo x > d/f && ln -s f d/l && mkfifo d/p && \
         umask 002 && echo y > d/g && chmod 4755 d/g && echo z >> d/g && ! echo x > /{}/root-only",
        service.at.path().display(),
        service.at.path().display()
    );
    fs::write(service.path("root-only"), "mine").expect("root may");
    fs::set_permissions(service.path("root-only"), fs::Permissions::from_mode(0o600)).expect("it");
    let _starting = crate::common::spawn::starting();
    let ran = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
        .output();
    let Ok(ran) = ran else {
        skip("setpriv (package util-linux) is not installed");
        service.end();
        return;
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let modes = [("d", 0o40_750), ("d/f", 0o100_640), ("d/p", 0o10_640), ("d/g", 0o100_755)];
    for (name, mode) in modes {
        let metadata = fs::symlink_metadata(service.behind(name)).expect("it is there");
        assert_eq!((metadata.uid(), metadata.gid()), (65534, 65534), "whose {name} is");
        assert_eq!(
            metadata.mode(),
            mode,
            "the mode of {name}; writing takes the right to run as \
                   another away"
        );
    }
    service.end();
}

/// A new ext4 whose directories pass their group to new entries, until this is dropped.
struct GroupsOfDirectories {
    image: tempfile::NamedTempFile,
    at: PathBuf,
}

impl GroupsOfDirectories {
    fn mount(at: &Path) -> Self {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(32 << 20).expect("room");
        let mounted = GroupsOfDirectories { image, at: at.to_owned() };
        let image = mounted.image.path();
        let make: [&OsStr; 2] = ["-q".as_ref(), image.as_os_str()];
        let mount: [&OsStr; 4] =
            ["-o".as_ref(), "loop,grpid".as_ref(), image.as_os_str(), at.as_os_str()];
        for (program, words) in [("mkfs.ext4", &make[..]), ("mount", &mount[..])] {
            let _starting = crate::common::spawn::starting();
            let ran = Command::new(program).args(words).output().expect("the program starts");
            assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
        }
        mounted
    }
}

impl Drop for GroupsOfDirectories {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

/// Returns the groups of entries that another user creates in directories of `root`, by several
/// calls.
fn groups_made(root: &Path) -> Vec<(u32, u32)> {
    let make = |name: &str, mode: u32| {
        let directory = root.join(name);
        fs::create_dir(&directory).expect("room");
        std::os::unix::fs::chown(&directory, None, Some(5)).expect("root may");
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("root may");
        as_other(|| {
            let at = |name: &str| directory.join(name);
            let (here, mode) = (rustix::fs::CWD, Mode::from_raw_mode(0o6770));
            let open = |path: PathBuf, flags| rustix::fs::open(path, flags, mode).expect("all may");
            let created = open(at("created"), OFlags::CREATE | OFlags::WRONLY);
            let nameless = open(at("."), OFlags::TMPFILE | OFlags::WRONLY);
            rustix::fs::mkdir(at("directory"), mode).expect("all may");
            rustix::fs::symlink("x", at("link")).expect("all may");
            rustix::fs::mknodat(here, at("made"), FileType::RegularFile, mode, 0).expect("all may");
            let named = ["directory", "link", "made"]
                .map(|name| rustix::fs::lstat(at(name)).expect("it was made"));
            let opened =
                [created, nameless].map(|file| rustix::fs::fstat(file).expect("it is open"));
            let all = named.into_iter().chain(opened);
            all.map(|stat| (stat.st_gid, stat.st_mode)).collect::<Vec<_>>()
        })
    };
    [("plain", 0o777), ("setgid", 0o2777)].map(|(name, mode)| make(name, mode)).concat()
}

#[test]
fn what_others_make_has_the_group_that_the_file_system_gives_it() {
    if !can_mount() || !has_tool("mkfs.ext4") {
        return;
    }
    let (plain, source) = [(); 2].map(|()| tempfile::tempdir().expect("a directory")).into();
    let mounted = [&plain, &source].map(|at| GroupsOfDirectories::mount(at.path()));
    let service = Service::over(source, Setting::default());
    let expected = groups_made(plain.path());
    assert!(expected.iter().all(|(group, _)| *group == 5), "{expected:?}");
    assert_eq!(groups_made(service.at.path()), expected);
    let source = service.end();
    drop((mounted, source));
}

#[test]
fn large_directories_are_listed_whole() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    fs::create_dir(service.path("many")).expect("a directory");
    let mut expected: Vec<String> =
        (0..3000).map(|i| format!("{i}-{}", "x".repeat(i % 200))).collect();
    for name in &expected {
        fs::write(service.behind("many").join(name), "").expect("a file");
    }
    for _ in 0..2 {
        let entries = fs::read_dir(service.path("many")).expect("a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut found: Vec<_> = entries.map(|e| name(e).into_string().expect("ASCII")).collect();
        found.sort();
        expected.sort();
        assert!(found == expected, "{} of {} names", found.len(), expected.len());
    }
    fs::remove_dir_all(service.path("many")).expect("all can go");
    assert!(!service.behind("many").exists());
    service.end();
}

#[test]
fn what_has_no_name_any_more_lives_until_it_is_closed() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    let mut options = fs::OpenOptions::new();
    let mut file =
        options.read(true).write(true).create_new(true).open(service.path("gone")).expect("a file");
    file.write_all(&[3; 100_000]).expect("room");
    fs::remove_file(service.path("gone")).expect("it can go");
    assert!(!service.behind("gone").exists());
    file.rewind().expect("it is open");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("it is open");
    assert!(bytes == [3; 100_000]);
    assert_eq!(file.metadata().expect("it is open").nlink(), 0);
    assert!(service.dirty() > 0);
    drop(file);
    crate::common::rig::eventually("its dirty data is discarded", || service.dirty() == 0);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let nameless = rustix::fs::open(service.at.path(), flags, Mode::RWXU).expect("no name");
    rustix::io::write(&nameless, b"text").expect("room");
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless));
    let (here, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
    rustix::fs::linkat(here, link, here, service.path("named"), follow).expect("a name");
    assert_eq!(fs::read(service.path("named")).expect("a file"), b"text");
    drop(nameless);
    service.end();
}

#[test]
fn times_that_are_set_outlive_late_writes() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    let mut file = fs::File::create(service.path("old")).expect("a file");
    file.write_all(&[1; 10_000]).expect("room");
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(&file, &times).expect("its owner may");
    file.sync_all().expect("the directory works");
    drop(file);
    for path in [service.path("old"), service.behind("old")] {
        let metadata = fs::metadata(path).expect("it is there");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
    }
    let before = fs::metadata(service.path("old")).expect("it");
    let mut file = fs::OpenOptions::new().append(true).open(service.path("old")).expect("it");
    file.write_all(b"more").expect("room");
    drop(file);
    let written = fs::metadata(service.path("old")).expect("it");
    assert!(written.mtime() > before.mtime(), "a write changes it");
    let source = service.end();
    let last = fs::metadata(source.path().join("old")).expect("it");
    assert_eq!((last.mtime(), last.mtime_nsec()), (written.mtime(), written.mtime_nsec()));
}

#[test]
fn a_file_is_cached_once_whatever_its_names_are() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    fs::write(service.path("one"), "text").expect("a file");
    fs::hard_link(service.path("one"), service.path("two")).expect("another name");
    fs::write(service.path("two"), "other text").expect("a file");
    assert_eq!(fs::read(service.path("one")).expect("it"), b"other text");
    let [one, two] = ["one", "two"].map(|name| fs::metadata(service.path(name)).expect("it"));
    assert_eq!((one.ino(), one.nlink()), (two.ino(), 2));
    service.end();
}

#[test]
fn when_a_file_was_made_is_told_as_the_directory_has_it() {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let expected = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let statx_of = |path| statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, expected).expect("it");
    fs::write(service.path("f"), vec![1; 5000]).expect("a file");
    fs::create_dir(service.path("d")).expect("a directory");
    for name in ["f", "d"] {
        let (seen, there) = (statx_of(service.path(name)), statx_of(service.behind(name)));
        assert_eq!(seen.stx_mask & StatxFlags::BTIME.bits(), there.stx_mask & 0x800);
        let times = |of: &rustix::fs::Statx| (of.stx_btime.tv_sec, of.stx_btime.tv_nsec);
        assert_eq!(times(&seen), times(&there), "{name}");
        assert_eq!((seen.stx_mode, seen.stx_nlink), (there.stx_mode, there.stx_nlink));
    }
    assert_eq!(statx_of(service.path("f")).stx_size, 5000, "also what is not written yet");
    service.end();
}
