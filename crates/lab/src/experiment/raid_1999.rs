//! The study of RAID levels and of the allocation unit, about 1999.
//!
//! Levels: four disks `scsi-1999`; requests at random are 4 KiB at depth 32, in order 64 KiB reads
//! at depth 8 and 1 MiB writes at depth 8. Published are ranks, and the maximum factors of writes.
//! Allocation unit: a file server with RAID level 5 of three disks and a controller cache of 16 MB,
//! four client machines on 100 Mbit/s, and a load that increases in steps; published is that 64 KiB
//! units serve over 5 Mbit/s more than 4 KiB units at a high load.
//! Failures: reads from arrays with a failed disk, and beside its rebuild; nothing is published.

mod allocation_unit;
mod failures;
mod levels;

use super::published::{Published, figure};
use crate::steps::run_all;
use allocation_unit::{CLIENTS, UNITS};
use larder_core::units::as_f64;
use larder_schema::experiment::{Curve, Experiment, Line};
use larder_schema::mean;
use std::num::NonZero;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const COPIES: &str = "each copy is read, so that mirrors read at random as fast as a stripe.";
const PARITY: &str = "one chunk of each row is parity, over which the heads pass without reading.";
const WHOLE_STRIPES: &str = "1 MiB is more than a stripe, so that most of the parity is written \
                             without a read.";

/// Ranks of levels 10 and 5 for each workload, factors of writes, and the gain of the allocation
/// unit. Ranks are those of three levels; rates within 10 % have the same one.
const FIGURES: [Published; 13] = [
    ("random reads: rank of RAID 10", "2nd", [2.0, 2.0], "", COPIES),
    ("random reads: rank of RAID 5", "1st, as RAID 0", [1.0, 1.0], "", ""),
    ("random writes: rank of RAID 10", "2nd", [2.0, 2.0], "", ""),
    ("random writes: rank of RAID 5", "3rd", [3.0, 3.0], "", ""),
    ("sequential reads: rank of RAID 10", "3rd", [3.0, 3.0], "", ""),
    ("sequential reads: rank of RAID 5", "1st, as RAID 0", [1.0, 1.0], "", PARITY),
    ("sequential writes: rank of RAID 10", "2nd", [2.0, 2.0], "", WHOLE_STRIPES),
    ("sequential writes: rank of RAID 5", "3rd", [3.0, 3.0], "", WHOLE_STRIPES),
    ("random writes: RAID 10 slower than RAID 0", "up to 2 x", [1.0, 2.2], "x", ""),
    ("random writes: RAID 5 slower than RAID 0", "up to 4 x", [1.0, 4.4], "x", ""),
    ("sequential writes: RAID 10 slower than RAID 0", "up to 2 x", [1.0, 2.2], "x", ""),
    ("sequential writes: RAID 5 slower than RAID 0", "up to 4 x", [1.0, 4.4], "x", ""),
    ("highest load: units of 64 KiB ahead of 4 KiB", "over 5 Mbit/s", [5.0, 100.0], "Mbit/s", ""),
];
/// Those of the levels.
const RESULTS: usize = FIGURES.len() - 1;

enum StepResult {
    Failures(Box<[failures::Rates; 3]>),
    Levels([f64; RESULTS]),
    /// Mbit/s by number of clients.
    Served([f64; CLIENTS.len()]),
}

/// The parts of a seed: the levels, each allocation unit, and failures.
const PARTS: usize = 1 + UNITS.len() + 1;

/// Returns the number of calls of `progress` in [`run`].
#[must_use]
pub fn step_count(seeds: u64) -> u64 {
    seeds * PARTS as u64
}

/// Runs the experiment with the seeds from 1 on. `progress` is called after each step.
#[must_use]
pub fn run(seeds: u64, threads: NonZero<usize>, progress: &mut dyn FnMut()) -> Experiment {
    let count = usize::try_from(step_count(seeds)).expect("a few steps");
    let step = |index: usize| {
        let seed = (index / PARTS) as u64 + 1;
        match (index % PARTS).checked_sub(1) {
            None => StepResult::Levels(levels::results(seed)),
            Some(unit) if unit < UNITS.len() => {
                StepResult::Served(allocation_unit::served(UNITS[unit], seed))
            }
            Some(_) => StepResult::Failures(Box::new(failures::rates(seed))),
        }
    };
    let results = run_all(count, threads, step, progress);
    let (mut of_failures, mut values) = (Vec::new(), [const { Vec::new() }; FIGURES.len()]);
    for of_seed in results.chunks(PARTS) {
        let mut served = Vec::new();
        for result in of_seed {
            match result {
                StepResult::Levels(results) => {
                    values.iter_mut().zip(results).for_each(|(all, it)| all.push(*it));
                }
                StepResult::Failures(rates) => of_failures.push(**rates),
                StepResult::Served(by_clients) => served.push(by_clients[CLIENTS.len() - 1]),
            }
        }
        values[RESULTS].push(served[served.len() - 1] - served[0]);
    }
    let figures =
        FIGURES.into_iter().zip(values).map(|(published, values)| figure(published, values));
    Experiment {
        name: "raid-1999",
        title: "Study of RAID levels and of the allocation unit, about 1999",
        machine: machine(),
        seeds,
        figures: figures.collect(),
        curves: std::iter::once(served_curve(&results))
            .chain(failures::curves(&of_failures))
            .collect(),
        variations: Vec::new(),
        variation_seeds: 0,
    }
}

fn machine() -> Vec<String> {
    let mut sentences = vec![
        "Levels: 4 disks scsi-1999 with chunks of 64 KiB, without a cache; level 10 for the \
         published level 1. Random requests: 4 KiB \
         at depth 32; sequential reads: 64 KiB at depth 8; sequential writes: 1 MiB at depth 8."
            .to_owned(),
    ];
    sentences.extend(allocation_unit::sentences());
    sentences.push(failures::sentence());
    sentences
}

/// Returns the served Mbit/s by number of clients, for each allocation unit.
fn served_curve(results: &[StepResult]) -> Curve {
    let line = |unit: usize| {
        let of_unit = results.chunks(PARTS).filter_map(|of_seed| match of_seed.get(unit + 1) {
            Some(StepResult::Served(by_clients)) => Some(by_clients),
            _ => None,
        });
        let point = |(index, clients): (usize, u64)| {
            let values: Vec<f64> = of_unit.clone().map(|by_clients| by_clients[index]).collect();
            Some((as_f64(clients), mean(&values)?))
        };
        let points = CLIENTS.into_iter().enumerate().filter_map(point).collect();
        Line { name: format!("units of {} KiB", UNITS[unit] / KIB), points }
    };
    Curve {
        name: "files served over the load",
        over: "clients",
        unit: "Mbit/s",
        lines: (0..UNITS.len()).map(line).collect(),
    }
}
