//! The seven workloads of reads whose exact answer is known.

use super::rig::{FILE_PAGES, GroundTruth, requests};
use larder_host::residency::{of_range, page_bytes};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Name of a workload, and the function that runs it on the file.
pub(crate) type Workload = (&'static str, fn(&File) -> GroundTruth);

pub(crate) const WORKLOADS: &[Workload] = &[
    ("random 4 KiB, no read-ahead", |file| {
        fadvise(file, 0, None, Advice::Random).unwrap();
        random(file, 6000, 1, 1)
    }),
    ("random 4 KiB", |file| random(file, 6000, 1, 1)),
    ("in order, 4 KiB", |file| in_order(file, 8192, 1)),
    ("in order, 64 KiB", |file| in_order(file, 512, 16)),
    ("random 16 KiB", |file| random(file, 4000, 4, 4)),
    ("random 1 MiB", |file| random(file, 60, 256, 256)),
    ("random 4 to 160 KiB", |file| random(file, 3000, 1, 40)),
];

/// Pseudorandom numbers from a fixed seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Reads pages, and adds to `truth` how many of them were resident right before.
pub(crate) fn read(file: &File, first: u64, pages: u64, truth: &mut GroundTruth) {
    let page = page_bytes();
    let before = of_range(file, first * page, pages * page).unwrap();
    truth.hits += before.resident;
    truth.misses += before.pages - before.resident;
    let mut buffer = vec![0; usize::try_from(pages * page).unwrap()];
    file.read_exact_at(&mut buffer, first * page).unwrap();
}

/// Reads `least` to `most` pages at a time, at multiples of `least`.
fn random(file: &File, full: u64, least: u64, most: u64) -> GroundTruth {
    let (mut random, mut truth) = (Random(0x9e37_79b9_7f4a_7c15), GroundTruth::default());
    for _ in 0..requests(full) {
        let pages = least + random.below(most - least + 1);
        let first = random.below((FILE_PAGES - most) / least) * least;
        read(file, first, pages, &mut truth);
    }
    truth
}

fn in_order(file: &File, full: u64, pages: u64) -> GroundTruth {
    let mut truth = GroundTruth::default();
    for number in 0..requests(full) {
        read(file, number * pages, pages, &mut truth);
    }
    truth
}
