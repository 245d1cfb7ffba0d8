//! Many asynchronous direct writes to a file that is mapped and stored to.
//!
//! Such writes use the kernel's background requests, which pages of the mapping need as well.

use super::elsewhere;
use super::{Aligned, MIB, Service, Setting, can_mount};
use io_uring::{IoUring, opcode, types};
use larder_core::mode::WriteMode;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 512;
/// More than the kernel's number of background requests.
const DEPTH: u32 = 128;
const WRITES: usize = 2000;

/// A mapping that several threads store to.
struct Map(*mut [AtomicU64; PAGE / 8]);

// SAFETY: its words are used only as atomics.
unsafe impl Sync for Map {}

impl Map {
    fn word(&self, page: usize) -> &AtomicU64 {
        // SAFETY: the mapping has that many pages.
        let page = unsafe { self.0.add(page % PAGES) };
        // SAFETY: the mapping exists until the process ends.
        unsafe { &(*page)[0] }
    }
}

/// Writes to all pages of a file in turn, with `DEPTH` writes in flight, while two threads store to
/// them.
fn write_beside_stores(path: &Path) {
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = rustix::fs::open(path, flags, Mode::RWXU).expect("room");
    rustix::fs::ftruncate(&file, (PAGES * PAGE) as u64).expect("room");
    let direct = rustix::fs::open(path, OFlags::RDWR | OFlags::DIRECT, Mode::empty());
    let direct = direct.expect("it is there");
    let (both, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    let len = PAGES * PAGE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, both, shared, &file, 0) };
    let map = Map(map.expect("it can be mapped").cast());
    let has_ended = AtomicBool::new(false);
    let store = |step: usize| {
        for number in 0.. {
            if has_ended.load(Ordering::Relaxed) {
                break;
            }
            map.word(number * step).fetch_add(1, Ordering::Relaxed);
        }
    };
    let bytes = Aligned([7; PAGE]);
    std::thread::scope(|scope| {
        for step in [1, 31] {
            scope.spawn(move || store(step));
        }
        let mut ring = IoUring::new(DEPTH).expect("the kernel has io_uring");
        let (mut begun, mut done) = (0, 0);
        while done < WRITES {
            while begun < WRITES && begun - done < DEPTH as usize {
                let descriptor = types::Fd(direct.as_raw_fd());
                let write = opcode::Write::new(descriptor, bytes.0.as_ptr(), 4096);
                let at = (begun * 7 % PAGES * PAGE) as u64;
                let write = write.offset(at).build();
                // SAFETY: the bytes and the descriptor stay until all writes have completed.
                unsafe { ring.submission().push(&write) }.expect("there is room for it");
                begun += 1;
            }
            ring.submit_and_wait(1).expect("the kernel takes them");
            for write in ring.completion() {
                assert_eq!(write.result(), 4096);
                done += 1;
            }
        }
        has_ended.store(true, Ordering::Relaxed);
    });
}

/// The part of the test that another process runs.
#[test]
fn part_of_another_process() {
    let Some(words) = elsewhere::arguments("asynchronous") else { return };
    let [path] = words.as_slice() else { panic!("{words:?}") };
    write_beside_stores(Path::new(path));
}

fn run(setting: Setting) {
    if !can_mount() {
        return;
    }
    let service = Service::new(setting);
    let words = [service.path("file").display().to_string()];
    elsewhere::run("asynchronous", "directory::asynchronous::part_of_another_process", &words);
    service.end();
}

#[test]
fn many_asynchronous_writes_beside_stores_to_a_mapping_come_to_an_end() {
    run(Setting::default());
}

#[test]
fn many_asynchronous_writes_beside_stores_come_to_an_end_with_little_memory() {
    run(Setting { memory: 8 * MIB, mode: WriteMode::Through, plain: true, ..Setting::default() });
}
