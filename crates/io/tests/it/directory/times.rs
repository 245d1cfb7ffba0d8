//! Times: the times that an operation changes, compared with a plain directory of the same file
//! system; values to the nanosecond; and no operation may leave an older time than an earlier one.
//!
//! Before an operation the times are set to values in the distant past, and the clock from which
//! file systems take times must have advanced: so each change is visible. Times of reads are not
//! kept in the directory, as docs/mount.md says: reads are done so that no file system records
//! them.

use super::{Service, Setting, can_mount, elsewhere};
use crate::common::Random;
use larder_core::mode::WriteMode;
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Seconds and nanoseconds.
type Time = (i64, i64);

const LONG_AGO: Time = (1_000_000_007, 123_456_789);
const LENGTH: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Times {
    atime: Time,
    mtime: Time,
    ctime: Time,
}

fn times_of(stat: &Stat) -> Times {
    let nanos = |nanos: u64| i64::try_from(nanos).expect("below a second");
    Times {
        atime: (stat.st_atime, nanos(stat.st_atime_nsec)),
        mtime: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
        ctime: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
    }
}

fn times(path: &Path) -> Times {
    times_of(&rustix::fs::lstat(path).expect("it is there"))
}

/// Returns the current time of the clock from which file systems take times.
fn now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// Waits until every time that is recorded from now on is later than `time`.
fn wait_past(time: Time) {
    while now() <= time {
        std::thread::yield_now();
    }
}

fn set(path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<(), Errno> {
    let spec = |time: Option<Time>| match time {
        Some((seconds, nanos)) => Timespec { tv_sec: seconds, tv_nsec: nanos },
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
}

fn fallocate(path: &Path, flags: FallocateFlags, at: u64, len: u64) -> Result<(), Errno> {
    rustix::fs::fallocate(open(path, OFlags::RDWR)?, flags, at, len)
}

/// Returns another name for the file.
fn other(path: &Path) -> PathBuf {
    path.with_extension("other")
}

/// Writes a byte of a file through a mapping.
fn write_mapped(path: &Path) -> Result<(), Errno> {
    let file = open(path, OFlags::RDWR | OFlags::NOATIME)?;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), LENGTH, protection, flags, &file, 0) }?;
    // SAFETY: the file has that many bytes, and no other code uses the mapping.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), LENGTH) };
    bytes[5000] = 7;
    // SAFETY: the range is exactly the mapping.
    unsafe { rustix::mm::msync(start, LENGTH, MsyncFlags::SYNC) }?;
    // SAFETY: the range is exactly the mapping, which is not used any more.
    unsafe { rustix::mm::munmap(start, LENGTH) }
}

/// An operation that may change times of the file at the given path.
type Operation = (&'static str, fn(&Path) -> Result<(), Errno>);

const OPERATIONS: &[Operation] = &[
    ("write", |path| rustix::io::pwrite(open(path, OFlags::WRONLY)?, b"new", 100).map(drop)),
    ("write of nothing", |path| {
        rustix::io::pwrite(open(path, OFlags::WRONLY)?, b"", 100).map(drop)
    }),
    ("write past the end", |path| {
        rustix::io::pwrite(open(path, OFlags::WRONLY)?, b"new", 30_000).map(drop)
    }),
    ("append", |path| {
        rustix::io::write(open(path, OFlags::WRONLY | OFlags::APPEND)?, b"new").map(drop)
    }),
    ("synchronous write", |path| {
        rustix::io::pwrite(open(path, OFlags::WRONLY | OFlags::SYNC)?, b"new", 7).map(drop)
    }),
    ("write to a mapping", write_mapped),
    ("ftruncate to less", |path| rustix::fs::ftruncate(open(path, OFlags::WRONLY)?, 5000)),
    ("ftruncate to more", |path| rustix::fs::ftruncate(open(path, OFlags::WRONLY)?, 50_000)),
    ("ftruncate to the same", |path| {
        rustix::fs::ftruncate(open(path, OFlags::WRONLY)?, LENGTH as u64)
    }),
    ("opened with O_TRUNC", |path| open(path, OFlags::WRONLY | OFlags::TRUNC).map(drop)),
    ("opened and closed", |path| open(path, OFlags::RDWR).map(drop)),
    ("read", |path| {
        let file = open(path, OFlags::RDONLY | OFlags::NOATIME)?;
        rustix::io::pread(file, &mut [0; 5000][..], 10).map(drop)
    }),
    ("fallocate", |path| fallocate(path, FallocateFlags::empty(), 0, 20_000)),
    ("fallocate within", |path| fallocate(path, FallocateFlags::empty(), 0, 5000)),
    ("fallocate behind", |path| fallocate(path, FallocateFlags::KEEP_SIZE, 20_000, 9000)),
    ("a hole", |path| {
        fallocate(path, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1000, 8000)
    }),
    ("a zeroed range", |path| fallocate(path, FallocateFlags::ZERO_RANGE, 1000, 8000)),
    ("fsync", |path| rustix::fs::fsync(open(path, OFlags::RDWR)?)),
    ("chmod", |path| rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP)),
    ("chmod to the same", |path| rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)),
    ("chown", |path| {
        let id = rustix::fs::Uid::from_raw(12_345);
        rustix::fs::chown(path, Some(id), None)
    }),
    ("setxattr", |path| rustix::fs::setxattr(path, "user.a", b"value", XattrFlags::empty())),
    ("getxattr", |path| rustix::fs::getxattr(path, "user.a", &mut [0; 9][..]).map(drop)),
    ("link", |path| rustix::fs::link(path, other(path))),
    ("rename", |path| {
        rustix::fs::rename(path, other(path))?;
        rustix::fs::rename(other(path), path)
    }),
    ("rename over another", |path| {
        fs::write(other(path), "x").expect("a file");
        let (here, flags) = (rustix::fs::CWD, RenameFlags::EXCHANGE);
        rustix::fs::renameat_with(here, path, here, other(path), flags)?;
        rustix::fs::renameat_with(here, path, here, other(path), flags)
    }),
    ("unlink of another name", |path| {
        rustix::fs::link(path, other(path))?;
        rustix::fs::unlink(other(path))
    }),
    ("utimensat of both", |path| set(path, Some((-5, 999_999_999)), Some((4_000_000_000, 1)))),
    ("utimensat of atime", |path| set(path, Some((77, 1)), None)),
    ("utimensat of mtime", |path| set(path, None, Some((77, 987_654_321)))),
];

/// Changes of the times of a file.
#[derive(Debug, PartialEq, Eq)]
struct TimeChanges {
    result: Result<(), Errno>,
    /// None if the time changed to one during the operation, otherwise the time; ctime can only
    /// change.
    atime: Option<Time>,
    mtime: Option<Time>,
    ctime_moved: bool,
    /// True if the modification time of the directory changed.
    directory_moved: bool,
}

/// Performs an operation on a new file of `directory`; returns the changes of its times. With
/// `dirty` the content was written just before, and its writeback must then change nothing.
fn time_changes(directory: &Path, operation: &Operation, dirty: bool) -> TimeChanges {
    let path = directory.join("f");
    fs::create_dir(directory).expect("a directory");
    fs::write(&path, vec![1; LENGTH]).expect("a file");
    let file = open(&path, OFlags::RDWR).expect("it is there");
    if !dirty {
        rustix::fs::fsync(&file).expect("the directory works");
    }
    rustix::fs::chmod(&path, Mode::RUSR | Mode::WUSR).expect("it is there");
    set(&path, Some(LONG_AGO), Some(LONG_AGO)).expect("any time can be set");
    set(directory, Some(LONG_AGO), Some(LONG_AGO)).expect("any time can be set");
    let before = times(&path);
    assert_eq!((before.atime, before.mtime), (LONG_AGO, LONG_AGO), "as they were set");
    wait_past(before.ctime.max(times(directory).ctime));
    let begun = now();
    let result = operation.1(&path);
    let after = times(&path);
    let ended = clock_gettime(ClockId::Realtime);
    let span = begun..=(ended.tv_sec, ended.tv_nsec);
    let fixed = |time: Time| (!span.contains(&time)).then_some(time);
    let moved = after.ctime != before.ctime;
    assert!(!moved || span.contains(&after.ctime), "{}: {span:?} {after:?}", operation.0);
    let open_file = times_of(&rustix::fs::fstat(&file).expect("it is open"));
    assert_eq!(open_file, after, "{}: by the descriptor as by the name", operation.0);
    rustix::fs::fsync(&file).expect("the directory works");
    assert_eq!(times(&path), after, "{}: writing late moves nothing", operation.0);
    TimeChanges {
        result,
        atime: fixed(after.atime),
        mtime: fixed(after.mtime),
        ctime_moved: moved,
        directory_moved: times(directory).mtime != LONG_AGO,
    }
}

/// The part of the test that another process runs, since it maps files.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::arguments("times") else { return };
    let [cached, plain, threads, seed] = words.as_slice() else { panic!("{words:?}") };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    std::thread::scope(|scope| {
        for i in 0..number(threads) {
            let [cached, plain] = [cached, plain].map(|root| Path::new(root).join(i.to_string()));
            let mut random = Random::new(number(seed) + i);
            scope.spawn(move || {
                fs::create_dir(&cached).expect("a directory");
                fs::create_dir(&plain).expect("a directory");
                let begin = random.below(OPERATIONS.len());
                for number in 0..OPERATIONS.len() {
                    let operation = &OPERATIONS[(begin + number) % OPERATIONS.len()];
                    let dirty = random.below(2) == 0;
                    let name = number.to_string();
                    let found = time_changes(&cached.join(&name), operation, dirty);
                    let expected = time_changes(&plain.join(&name), operation, dirty);
                    assert_eq!(found, expected, "{}, dirty: {dirty}", operation.0);
                }
            });
        }
    });
}

fn mirrored(setting: Setting, threads: u64, seed: u64) {
    let plain = tempfile::tempdir().expect("a directory");
    let service = Service::new(setting);
    let [cached, other] = [service.at.path(), plain.path()].map(|path| path.display().to_string());
    let words = [cached, other, threads.to_string(), seed.to_string()];
    elsewhere::run("times", "directory::times::part_of_another_process", &words);
    service.end();
}

#[test]
fn operations_move_the_times_that_they_move_without_a_cache() {
    if !can_mount() {
        return;
    }
    mirrored(Setting::default(), 8, 1000);
}

#[test]
fn times_move_so_where_everything_is_written_through_too() {
    if !can_mount() {
        return;
    }
    mirrored(Setting { mode: WriteMode::Through, ..Setting::default() }, 4, 2000);
}

#[test]
fn times_are_kept_to_the_nanosecond_over_the_end_of_the_mount() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, ..Setting::default() });
    let late = service.path("late");
    fs::write(&late, vec![1; LENGTH]).expect("a file");
    let written = times(&late);
    let set_to = service.path("set");
    fs::write(&set_to, vec![1; LENGTH]).expect("a file");
    set(&set_to, Some((1, 2)), Some((-3, 4))).expect("any time can be set");
    let source = service.end();
    assert_eq!(times(&source.path().join("late")).mtime, written.mtime);
    let kept = times(&source.path().join("set"));
    assert_eq!((kept.atime, kept.mtime), ((1, 2), (-3, 4)));
}

/// A program that compares times of two files, as make does, must not take the later one for the
/// older one, whether the cache or the directory recorded the times.
#[test]
fn a_later_operation_never_leaves_an_older_time() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let mut random = Random::new(3000);
    let paths = [0, 1, 2, 3].map(|n| service.path(&n.to_string()));
    for path in &paths {
        fs::write(path, vec![1; LENGTH]).expect("a file");
    }
    let mut last = ("nothing", (0, 0));
    for round in 0..4000_usize {
        let path = &paths[random.below(paths.len())];
        let name = match random.below(5) {
            0 => {
                let bits = if round.is_multiple_of(2) { 0o600 } else { 0o640 };
                rustix::fs::chmod(path, Mode::from_raw_mode(bits)).expect("it is there");
                "chmod"
            }
            1 => {
                rustix::fs::unlink(path).expect("it is there");
                fs::write(path, "").expect("a file");
                "making"
            }
            2 => {
                let file = open(path, OFlags::WRONLY).expect("it is there");
                rustix::fs::ftruncate(file, random.below(LENGTH) as u64).expect("any size");
                rustix::fs::chmod(path, Mode::RWXU).expect("it is there");
                "truncate"
            }
            _ => {
                let file = open(path, OFlags::WRONLY).expect("it is there");
                rustix::io::pwrite(file, b"new", 100).expect("room");
                "write"
            }
        };
        let ctime = times(path).ctime;
        assert!(ctime >= last.1, "round {round}: {name} at {ctime:?} came after {last:?}");
        last = (name, ctime);
    }
    service.end();
}
