//! Rights that files give to programs, and that writes clear: a write by another user leaves the
//! same mode as on a plain directory, and a program that is executed at that moment has none of the
//! rights.

use super::elsewhere;
use super::{Aligned, Rule, Service, Setting, can_mount, rule};
use larder_core::mode::WriteMode;
use larder_io::front::fuse::{FileOptions, KernelPages};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// An unprivileged user.
const OTHER: u32 = 65_534;
const PAGE: usize = 4096;
const CAPABILITIES: &str = "security.capability";

/// Runs an action as another user, in a separate thread.
pub(super) fn as_other<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // SAFETY: the call changes the file system group ID of this thread only, until the
            // thread ends here.
            unsafe { libc::setfsgid(OTHER) };
            // SAFETY: as above. This also drops the capabilities of root on files.
            unsafe { libc::setfsuid(OTHER) };
            work()
        });
        other.join().expect("it does not panic")
    })
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

fn write_all(file: OwnedFd) -> Result<(), Errno> {
    assert_eq!(rustix::io::write(file, b"new")?, 3);
    Ok(())
}

/// Writes bytes through a pipe, from which the kernel moves them into the file.
fn splice(path: &Path) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY)?;
    let (read, write) = rustix::pipe::pipe()?;
    rustix::io::write(&write, b"new")?;
    let flags = rustix::pipe::SpliceFlags::empty();
    assert_eq!(rustix::pipe::splice(read, None, file, None, 3, flags)?, 3);
    Ok(())
}

fn copy_range(path: &Path) -> Result<(), Errno> {
    let (from, to) = (open(&path.with_extension("from"), OFlags::RDONLY)?, path);
    let to = open(to, OFlags::WRONLY)?;
    assert!(rustix::fs::copy_file_range(from, None, to, None, 100)? > 0);
    Ok(())
}

fn allocate(path: &Path, flags: FallocateFlags) -> Result<(), Errno> {
    rustix::fs::fallocate(open(path, OFlags::WRONLY)?, flags, 0, 2 * PAGE as u64)
}

/// Changes the contents of a file.
type Change = fn(&Path) -> Result<(), Errno>;

/// All methods of changing the contents.
const METHODS: [(&str, Change); 11] = [
    ("write", |path| write_all(open(path, OFlags::WRONLY)?)),
    ("append", |path| write_all(open(path, OFlags::WRONLY | OFlags::APPEND)?)),
    ("synchronous", |path| write_all(open(path, OFlags::RDWR | OFlags::DSYNC)?)),
    ("direct", |path| {
        let file = open(path, OFlags::WRONLY | OFlags::DIRECT)?;
        assert_eq!(rustix::io::pwrite(file, &Aligned([7; PAGE]).0, 0)?, PAGE);
        Ok(())
    }),
    ("cut", |path| rustix::fs::ftruncate(open(path, OFlags::WRONLY)?, 10)),
    ("cut at opening", |path| open(path, OFlags::WRONLY | OFlags::TRUNC).map(drop)),
    ("splice", splice),
    ("copy", copy_range),
    ("allocate", |path| allocate(path, FallocateFlags::empty())),
    ("punch", |path| allocate(path, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)),
    ("zero", |path| allocate(path, FallocateFlags::ZERO_RANGE)),
];

/// `CAP_NET_RAW`, permitted and effective, in revision 2 of the format.
fn capabilities() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, CAPABILITIES, &mut [0; 0][..]).is_ok()
}

/// Returns the rights that a file gives.
fn rights(path: &Path) -> (String, bool) {
    let mode = fs::metadata(path).expect("it is there").permissions().mode();
    (format!("{:o}", mode & 0o7777), has_capabilities(path))
}

/// Modes that give rights; a file of the last one has capabilities.
const MODES: [u32; 5] = [0o4777, 0o2777, 0o6777, 0o2767, 0o777];

/// Returns the rights that each method leaves of each of [`MODES`] for a file in `root`; the rights
/// in `behind` must be the same.
fn left(root: &Path, behind: &Path) -> Vec<String> {
    let mut left = Vec::new();
    fs::write(root.join("f.from"), vec![3; 200]).expect("room");
    rustix::fs::chmod(root.join("f.from"), Mode::from_raw_mode(0o644)).expect("ours");
    for (name, change) in METHODS {
        for mode in MODES {
            for by_root in [true, false] {
                let path = root.join("f");
                fs::remove_file(&path).ok();
                fs::write(&path, vec![1; 3 * PAGE]).expect("room");
                rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).expect("ours");
                if mode == 0o777 {
                    let flags = XattrFlags::empty();
                    rustix::fs::setxattr(&path, CAPABILITIES, &capabilities(), flags)
                        .expect("ours");
                }
                let before = rights(&path);
                let done = if by_root { change(&path) } else { as_other(|| change(&path)) };
                let after = rights(&path);
                let behind = rights(&behind.join("f"));
                assert_eq!(after, behind, "{name} of {before:?}, by root: {by_root}, behind");
                left.push(format!("{name}, by root {by_root}: {before:?} {done:?} {after:?}"));
            }
        }
    }
    left
}

/// Returns a plain directory and a mounted one, both writable for all.
fn open_pair() -> (TempDir, Service) {
    let plain = tempfile::tempdir().expect("a directory");
    let service = Service::new(Setting::default());
    open_to_all(plain.path());
    open_to_all(service.at.path());
    (plain, service)
}

fn open_to_all(path: &Path) {
    rustix::fs::chmod(path, Mode::from_raw_mode(0o777)).expect("it is ours");
}

fn pages(kernel_pages: KernelPages) -> FileOptions {
    FileOptions { kernel_pages, ..FileOptions::default() }
}

#[test]
fn every_write_takes_the_rights_that_it_takes_on_a_plain_directory() {
    if !can_mount() {
        return;
    }
    let files = FileOptions { uncached: true, ..FileOptions::default() };
    let uncached: &[Rule] = Box::leak(Box::new([Rule { files, ..rule("*") }]));
    let plain = tempfile::tempdir().expect("a directory");
    open_to_all(plain.path());
    let settings = [
        ("write-back", Setting::default()),
        ("lazy", Setting { lazy: true, ..Setting::default() }),
        ("write-through", Setting { mode: WriteMode::Through, ..Setting::default() }),
        ("plain calls", Setting { plain: true, ..Setting::default() }),
        ("pages", Setting { rest: pages(KernelPages::Open), ..Setting::default() }),
        ("pages kept", Setting { rest: pages(KernelPages::Keep), ..Setting::default() }),
        ("uncached", Setting { rules: uncached, ..Setting::default() }),
    ];
    for (name, setting) in settings {
        let service = Service::new(setting);
        open_to_all(service.at.path());
        let expected = left(plain.path(), plain.path());
        let found = left(service.at.path(), service.source.path());
        assert_eq!(found, expected, "{name}");
        service.end();
    }
}

/// SOURCE's file system clears capabilities at each write, also at the writeback of earlier bytes.
#[test]
fn capabilities_that_are_set_after_a_write_stay() {
    if !can_mount() {
        return;
    }
    for rest in [FileOptions::default(), pages(KernelPages::Keep)] {
        let service = Service::new(Setting { rest, lazy: true, ..Setting::default() });
        let path = service.path("program");
        fs::write(&path, vec![7; 300_000]).expect("room");
        let set = rustix::fs::setxattr(&path, CAPABILITIES, &capabilities(), XattrFlags::empty());
        set.expect("root may");
        assert!(has_capabilities(&path));
        let source = service.end();
        assert!(has_capabilities(&source.path().join("program")), "{rest:?}");
    }
}

#[test]
fn only_root_sees_attributes_of_the_trusted_class() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let path = service.path("f");
    fs::write(&path, "text").expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
    for name in ["trusted.larder", "user.larder"] {
        let set = rustix::fs::setxattr(&path, name, b"value", XattrFlags::empty());
        if let Err(error) = set {
            return larder_testing::skip(format!("no attributes in the directory: {error}"));
        }
    }
    let list = || {
        let mut names = [0; 1000];
        let len = rustix::fs::listxattr(&path, &mut names[..]).expect("all may");
        let all_len = rustix::fs::listxattr_query(&path).expect("all may");
        assert_eq!(len, all_len, "what is asked for first");
        let names = String::from_utf8(names[..len].to_vec()).expect("text");
        names.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all = list();
    all.sort_unstable();
    assert_eq!(all, ["trusted.larder", "user.larder"]);
    assert_eq!(as_other(list), ["user.larder"]);
    service.end();
}

/// Returns an access ACL with an entry for another user, as the value of the extended attribute.
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 1), (4, 7, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let entry = |(tag, rights, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
}

/// Returns the modes of a file and a directory of the other user after changes by that user, who is
/// not a member of their group.
fn left_by_owner(root: &Path) -> Vec<String> {
    let (uid, strange) = (Some(rustix::fs::Uid::from_raw(OTHER)), 12_345);
    let mut left = Vec::new();
    for (mode, is_directory) in [(0o2755, false), (0o2745, false), (0o6755, false), (0o2755, true)]
    {
        for method in ["list", "group", "mode"] {
            let path = root.join(format!("{method}{mode:o}{is_directory}"));
            if is_directory {
                fs::create_dir(&path).expect("room");
            } else {
                fs::write(&path, "text").expect("room");
            }
            let to = |gid| (uid, Some(rustix::fs::Gid::from_raw(gid)));
            let change = |(uid, gid)| {
                rustix::fs::chownat(rustix::fs::CWD, &path, uid, gid, AtFlags::empty())
            };
            change(to(strange)).expect("root may");
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).expect("root may");
            let done = as_other(|| match method {
                "list" => {
                    let (name, flags) = ("system.posix_acl_access", XattrFlags::empty());
                    rustix::fs::setxattr(&path, name, &access_list(), flags)
                }
                "group" => change(to(OTHER)),
                _ => rustix::fs::chmod(&path, Mode::from_raw_mode(mode | 0o20)),
            });
            left.push(format!(
                "{method} of {mode:o}, {is_directory}: {done:?} {:?}",
                rights(&path)
            ));
        }
    }
    left
}

#[test]
fn what_is_made_setuid_is_masked() {
    if !can_mount() {
        return;
    }
    let (plain, service) = open_pair();
    let modes = |root: &Path| {
        let made = as_other(|| {
            let (flags, mode) = (OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o6777));
            rustix::fs::open(root.join("created"), flags, mode)?;
            let (cwd, path) = (rustix::fs::CWD, root.join("made"));
            rustix::fs::mknodat(cwd, &path, rustix::fs::FileType::RegularFile, mode, 0)
        });
        made.expect("all may");
        ["created", "made"].map(|name| rights(&root.join(name)).0)
    };
    assert_eq!(modes(service.at.path()), modes(plain.path()));
    service.end();
}

#[test]
fn an_owner_who_is_no_member_of_the_group_keeps_no_setgid() {
    if !can_mount() {
        return;
    }
    let (plain, service) = open_pair();
    assert_eq!(left_by_owner(service.at.path()), left_by_owner(plain.path()));
    service.end();
}

/// Offset of the program's version.
const VERSION_AT: usize = 138;
/// Exit status bit of the program if it runs as root.
const AS_ROOT: i32 = 0x40;

/// A program that exits with its version, and with `AS_ROOT` if its effective user is root.
fn program(version: u8) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    let code = [
        &[0xb8, 107, 0, 0, 0, 0x0f, 0x05][..], // geteuid
        &[0x31, 0xff, 0x85, 0xc0, 0x75, 0x03], // is it 0?
        &[0x83, 0xcf, 0x40, 0x83, 0xc7, version],
        &[0xb8, 60, 0, 0, 0, 0x0f, 0x05], // exit
    ]
    .concat();
    let half = |number: u16| number.to_le_bytes().to_vec();
    let word = |number: u32| number.to_le_bytes().to_vec();
    let long = |number: u64| number.to_le_bytes().to_vec();
    // An ELF header for x86-64 with one program header that maps the whole file.
    let header = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        [half(2), half(62), word(1), long(BASE + 120), long(64), long(0), word(0)].concat(),
        [half(64), half(56), half(1), half(0), half(0), half(0)].concat(),
        [word(1), word(5), long(0), long(BASE), long(BASE), long(PAGE as u64)].concat(),
        [long(PAGE as u64), long(PAGE as u64)].concat(),
    ]
    .concat();
    let mut program = [header, code].concat();
    program.resize(PAGE, 0);
    assert_eq!(program[VERSION_AT], version);
    program
}

/// Returns the exit status of the program at `path`, run by another user; none if a process is
/// writing it.
fn run_as_other(path: &Path) -> Option<i32> {
    match Command::new(path).uid(OTHER).gid(OTHER).status() {
        Ok(status) => Some(status.code().expect("it exits")),
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
        Err(error) => panic!("it can be run: {error}"),
    }
}

/// Changes the version of the program as another user who may write to it.
fn change_version(path: &Path, method: &str, version: u8) {
    let page = Aligned::<PAGE>(program(version).try_into().expect("a page"));
    let flags = match method {
        "direct" => OFlags::RDWR | OFlags::DIRECT,
        _ => OFlags::RDWR,
    };
    let changed = as_other(|| {
        let file = loop {
            match open(path, flags) {
                // The program is running.
                Err(Errno::TXTBSY) => std::thread::yield_now(),
                other => break other?,
            }
        };
        // A store through a mapping keeps the rights on a plain directory.
        if method != "mapped" {
            assert_eq!(rustix::io::pwrite(&file, &page.0, 0)?, PAGE);
            return Ok(());
        }
        let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let map =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, read_write, shared, &file, 0) }?;
        // SAFETY: a page is mapped, and the offset lies inside it.
        let at = unsafe { map.cast::<u8>().add(VERSION_AT) };
        // SAFETY: no other code uses the mapping.
        unsafe { at.write_volatile(version) };
        // SAFETY: exactly the mapped range.
        unsafe { rustix::mm::munmap(map, PAGE) }
    });
    changed.expect("all may write to it");
}

/// Turns the file into a setuid program of root that all users may write to.
fn make_setuid(path: &Path) {
    let file = open(path, OFlags::WRONLY).expect("root may");
    assert_eq!(rustix::io::pwrite(&file, &program(1), 0), Ok(PAGE));
    drop(file);
    rustix::fs::chmod(path, Mode::from_raw_mode(0o4777)).expect("root may");
    let flags = XattrFlags::empty();
    rustix::fs::setxattr(path, CAPABILITIES, &capabilities(), flags).expect("root may");
}

/// Writes repeatedly, and starts the program immediately after each write.
fn one_after_another(path: &Path, method: &str, attempts: u32) {
    for attempt in 0..attempts {
        make_setuid(path);
        // Makes the kernel read the mode.
        if attempt % 2 == 0 {
            assert_eq!(run_as_other(path), Some(1 | AS_ROOT), "it is setuid");
        }
        change_version(path, method, 2);
        let ran = run_as_other(path);
        assert!(!has_capabilities(path), "capabilities, {method}, {attempt}");
        assert_eq!(ran, Some(2), "{method}, {attempt}");
    }
}

/// Starts the program while another thread writes to it.
fn side_by_side(path: &Path, method: &str, attempts: u32) {
    for attempt in 0..attempts {
        make_setuid(path);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| change_version(path, method, 2));
            while !writer.is_finished() {
                let ran = run_as_other(path);
                let right = [None, Some(1), Some(1 | AS_ROOT), Some(2)];
                assert!(right.contains(&ran), "{method}, {attempt}: {ran:?}");
            }
        });
        assert_eq!(run_as_other(path), Some(2), "{method}, {attempt}, in the end");
    }
}

/// The part of the test that another process runs: attempts on the program in a directory.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::arguments("privileges") else { return };
    let [path, method, attempts] = words.as_slice() else { panic!("{words:?}") };
    let (path, attempts) = (Path::new(path), attempts.parse().expect("a number"));
    one_after_another(path, method, attempts);
    // A store through a mapping keeps the rights on a plain directory.
    if method != "mapped" {
        side_by_side(path, method, attempts);
    }
}

/// Total number of attempts of each kind, unless the environment sets it.
const ATTEMPTS: &str = "30";
/// Number of attempts per process.
const ATTEMPTS_AT_ONCE: u32 = 500;

fn race(setting: Setting) {
    if !can_mount() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let attempts = std::env::var("LARDER_SETUID_ATTEMPTS").unwrap_or_else(|_| ATTEMPTS.into());
    let mut left: u32 = attempts.parse().expect("a number");
    let service = Service::new(setting);
    open_to_all(service.at.path());
    let path = service.path("program");
    fs::write(&path, program(1)).expect("room");
    while left > 0 {
        let now = left.min(ATTEMPTS_AT_ONCE);
        for method in ["written", "direct", "mapped"] {
            let words = [path.display().to_string(), method.to_owned(), now.to_string()];
            elsewhere::run("privileges", "directory::privileges::part_of_another_process", &words);
        }
        left -= now;
    }
    service.end();
}

#[test]
fn what_another_user_has_written_is_not_run_as_root() {
    race(Setting::default());
}

#[test]
fn what_another_user_has_written_through_is_not_run_as_root() {
    race(Setting { mode: WriteMode::Through, plain: true, ..Setting::default() });
}

#[test]
fn what_another_user_has_written_to_pages_is_not_run_as_root() {
    race(Setting { rest: pages(KernelPages::Keep), ..Setting::default() });
}
