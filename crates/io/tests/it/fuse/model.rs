//! Random operations of several threads against vectors of bytes.

use super::{MIB, Service, can_mount};
use crate::common::{Random, rig::Memory};
use larder_core::clock::MILLISECOND;
use larder_core::store::DelayStore;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes of one thread's part; the borders are in the middle of sectors.
const PART: u64 = 7 * MIB + 333;
const LENGTH: u64 = 21 * MIB + 512 * 3;

/// One thread, its part of the volume and the expected content.
struct ModelThread {
    file: File,
    random: Random,
    base: u64,
    model: Vec<u8>,
}

impl ModelThread {
    /// Returns a mostly small range, up to 4 MiB, rarely aligned.
    fn range(&mut self) -> Range<usize> {
        let bits = self.random.below(23);
        let len = (1 + self.random.below(1 << bits)).min(self.model.len());
        let start = self.random.below(self.model.len() - len + 1);
        if self.random.below(4) == 0 {
            start & !4095..(start & !4095) + len
        } else {
            start..start + len
        }
    }

    fn step(&mut self) {
        let range = self.range();
        let (at, len) = (self.base + range.start as u64, range.len());
        match self.random.below(20) {
            0 => self.file.sync_data().expect("the store works"),
            n @ 1..4 => {
                let flags =
                    if n == 1 { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE };
                let flags = flags | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, at, len as u64).expect("zeros");
                self.model[range].fill(0);
            }
            4..12 => {
                let bytes = self.random.bytes(len);
                self.file.write_all_at(&bytes, at).expect("room");
                self.model[range].copy_from_slice(&bytes);
            }
            _ => {
                let mut bytes = vec![0xee; len];
                self.file.read_exact_at(&mut bytes, at).expect("bytes");
                assert!(bytes == self.model[range.clone()], "{range:?} of {} is other", self.base);
            }
        }
    }

    /// Runs the steps; returns the expected content of this part of the volume.
    fn run(mut self, steps: usize) -> Vec<u8> {
        for _ in 0..steps {
            self.step();
        }
        self.model
    }
}

fn threads_match_their_models(service: Service, memory: &Memory, steps: usize, seed: u64) {
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let start = |i: u64| {
            // One thread uses direct I/O; the kernel keeps no pages for the others either.
            let flags = if i == 1 { OFlags::DIRECT } else { OFlags::empty() };
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.custom_flags(flags.bits().cast_signed());
            let file = options.open(service.path("disk")).expect("it is there");
            let base = i * PART;
            let model = vec![0; usize::try_from(PART.min(LENGTH - base)).expect("megabytes")];
            let random = Random::new(seed + i);
            scope.spawn(move || ModelThread { file, random, base, model }.run(steps))
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no player fails")).collect()
    });
    let file = service.open();
    for (i, model) in models.iter().enumerate() {
        let mut bytes = vec![1; model.len()];
        file.read_exact_at(&mut bytes, i as u64 * PART).expect("all can be read");
        assert!(bytes == *model, "part {i} as another reads it");
    }
    file.sync_all().expect("the store works");
    for (i, model) in models.iter().enumerate() {
        let bytes = memory.bytes(i as u64 * PART, model.len());
        assert!(bytes == *model, "part {i} as the store has it after an fsync");
    }
    drop(file);
    service.end();
}

#[test]
fn threads_that_read_and_write_match_their_models() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(LENGTH);
    let service = Service::new(16 * MIB, LENGTH, memory.clone());
    threads_match_their_models(service, &memory, 250, 6100);
}

#[test]
fn a_cache_that_is_too_small_and_a_slow_store_change_nothing() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(LENGTH);
    let slow = DelayStore::new(memory.clone(), MILLISECOND);
    let service = Service::new(8 * MIB, LENGTH, slow);
    threads_match_their_models(service, &memory, 60, 6200);
}

#[test]
fn a_mapping_shows_what_was_written_and_writes_what_it_is_told() {
    if !can_mount() {
        return;
    }
    let memory = Memory::new(MIB);
    let service = Service::new(8 * MIB, MIB, memory.clone());
    let file = service.open();
    file.write_all_at(&[7; 10_000], 5_000).expect("room");
    let len = 64 << 10;
    let (read_write, shared) =
        (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, read_write, shared, &file, 0) };
    let start = start.expect("shared mappings are allowed").cast::<u8>();
    // SAFETY: the mapping has that many bytes, and no other code uses it.
    let mapped = unsafe { std::slice::from_raw_parts_mut(start, len) };
    assert_eq!((mapped[4_999], mapped[5_000], mapped[14_999], mapped[15_000]), (0, 7, 7, 0));
    mapped[20_000..30_000].fill(9);
    file.sync_data().expect("the store works");
    assert!(memory.bytes(20_000, 10_000) == [9; 10_000], "in the store after an fsync");
    let mut bytes = [0; 10_000];
    file.read_exact_at(&mut bytes, 20_000).expect("bytes");
    assert!(bytes == [9; 10_000]);
    // SAFETY: the range is the mapping from above, which is not used any more.
    unsafe { rustix::mm::munmap(start.cast(), len) }.expect("it is mapped");
    drop(file);
    service.end();
}
