//! Special cases of contents: mappings, large offsets, borders of segments, appending.

use super::{MIB, Service, Setting, can_mount};
use rustix::fs::{FallocateFlags, IFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt;

/// Bytes of a segment of the store.
const SEGMENT: u64 = 1 << 30;
/// Flags of fallocate(2) for a hole.
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Memory for direct I/O.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn open(service: &Service, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(service.path(name)).expect("a file")
}

#[test]
fn far_places_and_borders_of_segments_hold_what_was_written() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let file = open(&service, "sparse");
    let places = [0, SEGMENT - 5000, 3 * SEGMENT - 100_000, 5 << 40, (1 << 43) - 300_000];
    for (i, place) in places.into_iter().enumerate() {
        let bytes = vec![u8::try_from(i + 1).expect("few"); 200_000];
        file.write_all_at(&bytes, place).expect("room");
    }
    let end = places[4] + 200_000;
    assert_eq!(file.metadata().expect("it is open").len(), end);
    file.sync_all().expect("the directory works");
    for (i, place) in places.into_iter().enumerate() {
        let mut bytes = vec![0; 200_000];
        file.read_exact_at(&mut bytes, place).expect("bytes");
        assert!(bytes.iter().all(|&byte| usize::from(byte) == i + 1), "what is at {place}");
    }
    let mut before = [1; 100];
    file.read_exact_at(&mut before, SEGMENT / 2).expect("a hole");
    assert_eq!(before, [0; 100]);
    file.set_len(SEGMENT).expect("shorter");
    file.set_len(4 * SEGMENT).expect("longer");
    let mut after = [1; 100];
    file.read_exact_at(&mut after, SEGMENT + 100).expect("a hole");
    assert_eq!(after, [0; 100], "what was cut off does not come back");
    drop(file);
    let source = service.end();
    assert_eq!(fs::metadata(source.path().join("sparse")).expect("it").len(), 4 * SEGMENT);
}

#[test]
fn a_read_beside_a_truncation_does_not_bring_the_old_data_back() {
    const LEN: usize = 64 << 10;
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    for round in 0..larder_testing::budget(100, 5_000) {
        // No data of the file is cached.
        let name = format!("f{round}");
        fs::write(service.behind(&name), [7; LEN]).expect("a file");
        let (file, other) = (open(&service, &name), open(&service, &name));
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| other.read_at(&mut [0; LEN], 0).expect("it is open"));
            file.set_len(0).expect("shorter");
            file.set_len(LEN as u64).expect("longer");
            reading.join().expect("a read");
        });
        let mut bytes = [1; LEN];
        file.read_exact_at(&mut bytes, 0).expect("a hole");
        assert!(bytes == [0; LEN], "round {round}");
    }
    service.end();
}

#[test]
fn a_truncation_that_fails_loses_nothing() {
    const LEN: usize = 5000;
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let file = open(&service, "f");
    let places = [0, SEGMENT, 3 * SEGMENT + 7];
    for (byte, place) in (1..).zip(places) {
        file.write_all_at(&[byte; LEN], place).expect("room");
    }
    let behind = File::open(service.behind("f")).expect("it is there");
    if rustix::fs::ioctl_setflags(&behind, IFlags::IMMUTABLE).is_err() {
        return larder_testing::skip("the file system has no immutable files");
    }
    for size in [3, SEGMENT, 2 * SEGMENT, 3 * SEGMENT + 8] {
        file.set_len(size).expect_err("it is immutable");
    }
    rustix::fs::ioctl_setflags(&behind, IFlags::empty()).expect("as before");
    let end = places[2] + LEN as u64;
    let check = |file: &File| {
        assert_eq!(file.metadata().expect("it is open").len(), end);
        for (byte, place) in (1..).zip(places) {
            let mut bytes = [0; LEN];
            file.read_exact_at(&mut bytes, place).expect("bytes");
            assert!(bytes == [byte; LEN], "what is at {place}");
        }
    };
    check(&file);
    drop(file);
    let source = service.end();
    check(&File::open(source.path().join("f")).expect("it is there"));
}

/// A truncation drops the block of the new end from the cache.
#[test]
fn a_truncation_keeps_what_is_written_meanwhile_before_the_new_end() {
    const SIZE: u64 = 64 << 10;
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let file = open(&service, "f");
    let direct = OFlags::RDWR | OFlags::DIRECT;
    let direct = rustix::fs::open(service.path("f"), direct, Mode::empty()).expect("it is there");
    let mut ring = io_uring::IoUring::new(8).expect("the kernel has io_uring");
    for round in 0..larder_testing::budget(300, 20_000) {
        file.set_len(SIZE).expect("longer");
        let byte = u8::try_from(round % 255).expect("a byte") + 1;
        let bytes = Aligned([byte; 4096]);
        let target = io_uring::types::Fd(direct.as_raw_fd());
        let write = io_uring::opcode::Write::new(target, bytes.0.as_ptr(), 4096).build();
        // SAFETY: the bytes and the file stay until the write has ended below.
        unsafe { ring.submission().push(&write).expect("there is room") };
        ring.submit().expect("it is taken");
        file.set_len(4096 - 7).expect("shorter");
        ring.submit_and_wait(1).expect("it ends");
        let ended = ring.completion().next().expect("one write").result();
        assert_eq!(ended, 4096, "round {round}");
        let mut read = [0; 4096 - 7];
        file.read_exact_at(&mut read, 0).expect("bytes");
        assert!(read == [byte; 4096 - 7], "round {round}: {} and not {byte}", read[0]);
    }
    drop((file, direct));
    service.end();
}

#[test]
fn holes_of_a_huge_file_are_zeros_until_they_are_written() {
    if !can_mount() {
        return;
    }
    // A file on tmpfs may be that long.
    let source = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let service = Service::over(source, Setting::default());
    let file = open(&service, "huge");
    file.set_len(1 << 60).expect("longer");
    let read = |place| {
        let mut bytes = [1; 100];
        file.read_exact_at(&mut bytes, place).expect("bytes");
        bytes
    };
    for number in 0..1000 {
        assert_eq!(read(number * SEGMENT + 12_345), [0; 100], "GiB {number}");
    }
    file.write_all_at(&[7; 50], 77 * SEGMENT).expect("room");
    let border = read(77 * SEGMENT - 50);
    assert!(border[..50] == [0; 50] && border[50..] == [7; 50]);
    rustix::fs::fallocate(&file, PUNCH, 0, 1 << 60).expect("a hole");
    assert_eq!(read(77 * SEGMENT), [0; 100]);
    drop(file);
    service.end();
}

#[test]
fn shared_mappings_and_writes_see_one_another() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let file = open(&service, "mapped");
    file.write_all_at(&[7; 10_000], 5_000).expect("room");
    file.set_len(MIB).expect("longer");
    let len = 1 << 20;
    let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, read_write, shared, &file, 0) };
    let start = start.expect("shared mappings are allowed").cast::<u8>();
    // SAFETY: the mapping has that many bytes, and no other code uses it.
    let mapped = unsafe { std::slice::from_raw_parts_mut(start, len) };
    assert_eq!((mapped[4_999], mapped[5_000], mapped[14_999], mapped[15_000]), (0, 7, 7, 0));
    mapped[20_000..30_000].fill(9);
    let mut bytes = [0; 10_000];
    file.read_exact_at(&mut bytes, 20_000).expect("bytes");
    assert!(bytes == [9; 10_000], "read(2) sees what was written to the mapping");
    file.write_all_at(&[5; 100], 25_000).expect("room");
    assert_eq!(mapped[25_050], 5, "the mapping sees what write(2) wrote");
    file.sync_all().expect("the directory works");
    // SAFETY: the range is the mapping from above, which is not used any more.
    unsafe { rustix::mm::munmap(start.cast(), len) }.expect("it is mapped");
    let behind = fs::read(service.behind("mapped")).expect("a file");
    assert!(behind[20_000..25_000] == [9; 5_000] && behind[25_000..25_100] == [5; 100]);
    drop(file);
    service.end();
}

#[test]
fn a_hole_in_what_was_not_written_yet_leaves_the_length() {
    if !can_mount() {
        return;
    }
    for flags in [PUNCH, FallocateFlags::ZERO_RANGE] {
        let service = Service::new(Setting { lazy: true, ..Setting::default() });
        let file = open(&service, "f");
        file.write_all_at(&[7; 6225], 0).expect("room");
        rustix::fs::fallocate(&file, flags, 4096, 2129).expect("a hole");
        drop(file);
        let source = service.end();
        let bytes = fs::read(source.path().join("f")).expect("it");
        assert!(bytes.len() == 6225 && bytes[..4096] == [7; 4096] && bytes[4096..] == [0; 2129]);
    }
}

#[test]
fn programs_can_be_run_from_it() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    fs::copy("/bin/true", service.path("true")).expect("a copy");
    let ran = super::elsewhere::status(&service.path("true")).expect("it runs");
    assert!(ran.success());
    service.end();
}

#[test]
fn threads_that_append_lose_nothing() {
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting::default());
    let path = service.path("log");
    std::thread::scope(|scope| {
        for i in 0..4_u8 {
            let path = &path;
            scope.spawn(move || {
                let mut options = OpenOptions::new();
                let mut file = options.append(true).create(true).open(path).expect("a file");
                for _ in 0..200 {
                    file.write_all(&[b'a' + i; 77]).expect("room");
                }
            });
        }
    });
    let bytes = fs::read(&path).expect("a file");
    assert_eq!(bytes.len(), 4 * 200 * 77);
    let lines = bytes.chunks(77);
    assert!(lines.into_iter().all(|line| line.iter().all(|byte| *byte == line[0])), "whole lines");
    service.end();
}
