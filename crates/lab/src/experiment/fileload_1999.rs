//! The Fileload study of February 1999: fragmentation, placement, RAID 10 and an add-on cache,
//! repeated on a modeled machine.
//!
//! Published are the results, the files (100 MB, fragmented ones in 394 to 470 extents), their
//! places, the reads (8 KiB, and 64 KiB of a database) and the hints. The disk is `scsi-1999`, and
//! `assumptions.rs` has the rest.

mod assumptions;
mod trial;

use super::published::{Published, figure};
use crate::steps::run_all;
use assumptions::{Assumptions, VARIATIONS};
use larder_core::units::as_f64;
use larder_schema::experiment::{Curve, Experiment, Line, Variation};
use larder_schema::mean;
use std::num::NonZero;
use std::ops::RangeInclusive;
use trial::Trial;

/// Extents of a fragmented file.
const EXTENTS: RangeInclusive<u64> = 394..=470;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Maximum number of seeds of the curve, and of each variation.
const FEW_SEEDS: u64 = 3;

const READ_AHEAD: &str = "the disk's own read-ahead decides which part of the time the seeks \
                          between extents take (see: twice the disk's read-ahead).";
const LOCKSTEP: &str = "the users of the model stay at the same place of their files, where \
                        intertwined extents lie next to each other; at different places this \
                        figure and the one before change signs (see: users at different places).";
const PLACES: &str = "the contiguous files lie at both ends of the disk, the fragmented ones in \
                      one place; with misses this decides (see: contiguous files together).";
const OVERHEAD: &str = "the overhead of a command is that of a disk without a RAID controller \
                        (see: no overhead of the disk).";

const FIGURES: [Published; 10] = [
    (
        "1 user, no system cache: contiguous ahead of fragmented",
        "30 %",
        [25.0, 35.0],
        "%",
        READ_AHEAD,
    ),
    ("1 user, sequential-scan caching: contiguous ahead", "17 %", [12.0, 22.0], "%", ""),
    (
        "4 users: fragmented ahead of contiguous at both ends",
        "about 10 %",
        [5.0, 15.0],
        "%",
        LOCKSTEP,
    ),
    ("4 users: contiguous together ahead of fragmented", "about 7 %", [4.0, 10.0], "%", LOCKSTEP),
    ("database, 8 KiB, cached: fragmented ahead", "within 5 %", [-5.0, 5.0], "%", PLACES),
    ("database, 64 KiB, cached: fragmented ahead", "0 to 5 %", [0.0, 5.0], "%", PLACES),
    ("the best single file is a contiguous one", "always", [100.0, 100.0], "%", ""),
    ("outer edge ahead of the middle", "up to 30 %", [10.0, 30.0], "%", ""),
    ("RAID 10, 1 user: times one disk", "3.5 to 4 x", [3.5, 4.5], "x", OVERHEAD),
    ("RAID 10, database in the cache: ahead of one disk", "no difference", [-3.0, 3.0], "%", ""),
];

/// Sizes of the add-on cache, in MB of 2^20 bytes: up to all four files.
const CACHES: [u64; 12] = [16, 64, 96, 128, 160, 192, 208, 224, 240, 256, 320, 400];
/// The middle of the published speedups, of a cache whose size was not published.
const PUBLISHED_SPEEDUP: f64 = 5.5;
/// Pages of the add-on cache, bytes.
const PAGES: [u64; 2] = [8 * KIB, 32 * KIB];

/// A step of the experiment, with its seed.
#[derive(Clone, Copy, Debug)]
enum Step {
    Figures(u64),
    Speedups(u64),
    /// With the number of the variation.
    Variation(u64, usize),
}

/// The result of a step.
enum StepResult {
    Figures([f64; FIGURES.len()]),
    Speedups([[f64; CACHES.len()]; PAGES.len()]),
}

/// Returns the steps, with those of the figures first.
fn steps(seeds: u64) -> Vec<Step> {
    let few = 1..=seeds.min(FEW_SEEDS);
    let varied = (0..VARIATIONS.len())
        .flat_map(|number| few.clone().map(move |seed| Step::Variation(seed, number)));
    let all = (1..=seeds).map(Step::Figures).chain(few.clone().map(Step::Speedups));
    all.chain(varied).collect()
}

impl Step {
    fn run(self) -> StepResult {
        let mut assumptions = Assumptions::published_disk();
        match self {
            Step::Figures(seed) => StepResult::Figures(Trial::new(&assumptions, seed).figures()),
            Step::Speedups(seed) => StepResult::Speedups(Trial::new(&assumptions, seed).speedups()),
            Step::Variation(seed, number) => {
                (VARIATIONS[number].1)(&mut assumptions);
                StepResult::Figures(Trial::new(&assumptions, seed).figures())
            }
        }
    }
}

/// Returns the number of calls of `progress` in [`run`].
#[must_use]
pub fn step_count(seeds: u64) -> u64 {
    steps(seeds).len() as u64
}

/// Runs the experiment with the seeds from 1 on, and with other assumptions. `progress` is called
/// after each step.
#[must_use]
pub fn run(seeds: u64, threads: NonZero<usize>, progress: &mut dyn FnMut()) -> Experiment {
    let steps = steps(seeds);
    let results = run_all(steps.len(), threads, |index| steps[index].run(), progress);
    gather(seeds, &steps, results)
}

/// Returns the experiment with the results of its steps.
fn gather(seeds: u64, steps: &[Step], results: Vec<StepResult>) -> Experiment {
    let mut values = [const { Vec::new() }; FIGURES.len()];
    let mut varied = [const { [const { Vec::new() }; FIGURES.len()] }; VARIATIONS.len()];
    let mut speedups = Vec::new();
    for (step, result) in steps.iter().zip(results) {
        match (step, result) {
            (_, StepResult::Speedups(of_seed)) => speedups.push(of_seed),
            (Step::Variation(_, number), StepResult::Figures(figures)) => {
                varied[*number].iter_mut().zip(figures).for_each(|(all, it)| all.push(it));
            }
            (_, StepResult::Figures(figures)) => {
                values.iter_mut().zip(figures).for_each(|(all, it)| all.push(it));
            }
        }
    }
    let figures =
        FIGURES.into_iter().zip(values).map(|(published, values)| figure(published, values));
    let variations = VARIATIONS.iter().zip(varied).map(|((name, _), figures)| {
        let means = figures.iter().filter_map(|values| mean(values)).collect();
        Variation { name, means }
    });
    Experiment {
        name: "fileload-1999",
        title: "Fileload study, February 1999",
        machine: Assumptions::published_disk().sentences(),
        seeds,
        figures: figures.collect(),
        curves: vec![speedup_curve(&speedups)],
        variations: variations.collect(),
        variation_seeds: seeds.min(FEW_SEEDS),
    }
}

/// Returns the curve of speedups; `speedups` has those of each seed.
fn speedup_curve(speedups: &[[[f64; CACHES.len()]; PAGES.len()]]) -> Curve {
    let line = |page: usize| {
        let point = |(size, mib): (usize, u64)| {
            let values: Vec<f64> = speedups.iter().map(|seed| seed[page][size]).collect();
            Some((as_f64(mib), mean(&values)?))
        };
        let points = CACHES.into_iter().enumerate().filter_map(point).collect();
        Line { name: format!("pages of {} KiB", PAGES[page] / KIB), points }
    };
    let published = Line {
        name: "published: 5 to 6 x, size unknown".to_owned(),
        points: CACHES.map(|mib| (as_f64(mib), PUBLISHED_SPEEDUP)).to_vec(),
    };
    Curve {
        name: "throughput with an add-on cache, times that without any cache",
        over: "MiB of the cache",
        unit: "x",
        lines: (0..PAGES.len()).map(line).chain([published]).collect(),
    }
}

#[cfg(test)]
mod tests;
