//! Threads that write to a file, and threads that store into the same pages through a mapping:
//! neither may lose data.
//!
//! Runs in a separate process, as all tests that map files which this process serves.

use super::elsewhere;
use super::{Service, Setting, can_mount};
use larder_core::mode::WriteMode;
use larder_io::front::fuse::{FileOptions, KernelPages};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Barrier;

const PAGE: usize = 4096;
const PAGES: usize = 64;
const BYTES: usize = PAGES * PAGE;
/// Number of threads that store, and of threads that write.
const PAIRS: usize = 4;
/// Number of files, one after the other, unless the environment sets it.
const ROUNDS: &str = "40";

/// Returns the offset of a thread's mark in a page. Marks of writers and storers are adjacent.
fn mark_at(thread: usize, page: usize) -> usize {
    page * PAGE + thread * size_of::<u64>()
}

fn mark(thread: usize, page: usize, round: usize) -> u64 {
    (round * PAGES * 64 + page * 64 + thread + 1) as u64
}

struct Map(*mut u8);

// SAFETY: the memory is mapped until the mapping is dropped; each offset belongs to one thread.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &OwnedFd) -> Self {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let map =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, flags, file, 0) };
        Map(map.expect("it can be mapped").cast())
    }

    fn at(&self, offset: usize) -> *mut u64 {
        assert!(offset < BYTES && offset.is_multiple_of(8));
        // SAFETY: the offset lies in the mapping.
        unsafe { self.0.add(offset) }.cast()
    }

    fn store(&self, offset: usize, value: u64) {
        // SAFETY: the offset belongs to this thread.
        unsafe { self.at(offset).write_volatile(value) };
    }

    fn load(&self, offset: usize) -> u64 {
        // SAFETY: the file has these bytes, and the storing threads have ended.
        unsafe { self.at(offset).read_volatile() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range, and no thread uses it any more.
        unsafe { rustix::mm::munmap(self.0.cast(), BYTES) }.expect("it is mapped");
    }
}

fn verify(round: usize, access: &str, load: impl Fn(usize) -> u64) {
    for (page, thread) in (0..PAGES).flat_map(|page| (0..2 * PAIRS).map(move |i| (page, i))) {
        let found = load(mark_at(thread, page));
        let action = if thread < PAIRS { "stored" } else { "written" };
        assert_eq!(
            found,
            mark(thread, page, round),
            "round {round}, page {page}, what thread {thread} has {action}, {access}"
        );
    }
}

fn bytes_of(file: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    assert_eq!(rustix::io::pread(file, &mut bytes[..], 0), Ok(BYTES));
    bytes
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"))
}

fn round(path: &Path, round: usize) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).expect("a file");
    rustix::fs::ftruncate(&file, BYTES as u64).expect("room");
    let map = Map::new(&file);
    let start = Barrier::new(2 * PAIRS);
    std::thread::scope(|scope| {
        for thread in 0..2 * PAIRS {
            let (file, map, start) = (&file, &map, &start);
            scope.spawn(move || {
                start.wait();
                for step in 0..PAGES {
                    // Half of the threads go backwards, so that all of them meet.
                    let page = if thread % 2 == 0 { step } else { PAGES - 1 - step };
                    let (offset, value) = (mark_at(thread, page), mark(thread, page, round));
                    if thread < PAIRS {
                        map.store(offset, value);
                    } else {
                        let bytes = value.to_le_bytes();
                        let written = rustix::io::pwrite(file, &bytes, offset as u64);
                        assert_eq!(written, Ok(bytes.len()));
                    }
                }
            });
        }
    });
    verify(round, "in the mapping", |offset| map.load(offset));
    let bytes = bytes_of(&file);
    verify(round, "as read", |offset| word(&bytes, offset));
    drop((map, file));
    let again = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it is there");
    let bytes = bytes_of(&again);
    verify(round, "as read after it was closed", |offset| word(&bytes, offset));
}

/// The test body, run by another process.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::arguments("holes") else { return };
    let [path, rounds] = words.as_slice() else { panic!("{words:?}") };
    for number in 0..rounds.parse().expect("a number") {
        round(Path::new(path), number);
    }
}

fn rounds(setting: Setting) {
    if !can_mount() {
        return;
    }
    let rounds = std::env::var("LARDER_HOLES_ROUNDS").unwrap_or_else(|_| ROUNDS.into());
    let service = Service::new(setting);
    let path = service.path("file");
    let words = [path.display().to_string(), rounds.clone()];
    elsewhere::run("holes", "directory::holes::part_of_another_process", &words);
    let source = service.end();
    let last = rounds.parse::<usize>().expect("a number") - 1;
    let bytes = std::fs::read(source.path().join("file")).expect("it is there");
    verify(last, "in the directory behind", |offset| word(&bytes, offset));
}

#[test]
fn writes_beside_stores_to_a_mapping_are_not_lost() {
    rounds(Setting::default());
}

#[test]
fn writes_through_beside_stores_to_a_mapping_are_not_lost() {
    rounds(Setting { mode: WriteMode::Through, ..Setting::default() });
}

#[test]
fn writes_to_pages_beside_stores_to_a_mapping_are_not_lost() {
    let rest = FileOptions { kernel_pages: KernelPages::Open, ..FileOptions::default() };
    rounds(Setting { rest, ..Setting::default() });
}
