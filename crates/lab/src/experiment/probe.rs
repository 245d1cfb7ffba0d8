//! Response Probe on the file cache of Windows NT, measured for the file-cache chapter of January
//! 2002: three sizes of file and cache, and a program that leaks memory.
//!
//! Published are the files, the pattern (random records of 4 KiB, one read to three writes, ten
//! minutes) and the results; the disk is `scsi-1999`. The spread of the seeks ([`Probe::middle`])
//! is an assumption. The processor time of a record is derived from the 186 reads per second of
//! scenario 1, which therefore are no figure here.

use super::published::{Published, capacity, figure, geometry};
use crate::cache_simulation::{CacheSimulation, Clients};
use crate::file_system::{FileMap, FileStore};
use crate::model::{DeviceModel, DiskSpec, StoreModel};
use crate::sim::engine::frames_of;
use crate::steps::run_all;
use crate::workload::probe::Probe;
use larder_core::clock::{Nanos, SECOND};
use larder_core::counters::{Counter, Totals};
use larder_core::policy::PolicyKind;
use larder_core::store::Store;
use larder_core::tunables::Tunables;
use larder_core::units::{BLOCK_BYTES_U64, as_f64};
use larder_core::volume::VolumeOptions;
use larder_schema::experiment::{Curve, Experiment, Line, Variation};
use std::num::NonZero;

const MIB: u64 = 1 << 20;
/// Length of a run.
const TIME: Nanos = 600 * SECOND;
/// Interval of the points of a curve.
const INTERVAL: Nanos = 10 * SECOND;
/// Processor time of a record, with which scenario 1 has 186 reads per second.
const RECORD_TIME: Nanos = 1_344_000;

/// The file, and the memory that the cache may take, bytes.
struct Scenario {
    file_bytes: u64,
    cache_bytes: u64,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { file_bytes: 16 * MIB, cache_bytes: 26 * MIB },
    Scenario { file_bytes: 128 * MIB, cache_bytes: 26 * MIB },
    Scenario { file_bytes: 128 * MIB, cache_bytes: 40 * MIB },
];

const FLUSHED: &str = "by the published rules a page is written some seconds after its first \
                       change; at the published rate it stays dirty for minutes (see: dirty for 5 \
                       minutes).";
const HITS: &str = "pages that have left the system's cache stay in memory for a while, and \
                    reading them is a hit as well (see: 20 MB more).";
const AGE: &str = "the age at which a dirty page is written decides; the pages of the published \
                   system became older (see: dirty for 5 minutes).";
const GROWN: &str = "the published cache did not keep all of the file, though it could.";

/// Figures of a scenario: hits, reads, flushes, pages, and resident memory.
const PER_SCENARIO: usize = 5;
/// The figures, with the number of the scenario, and the number of the figure in it.
const FIGURES: [(usize, usize, Published); 12] = [
    (0, 0, ("1: 16 MB file: read hits", "99.9 %", [94.9, 100.0], "%", "")),
    (0, 2, ("1: lazy-write flushes", "1.9/s", [0.95, 3.8], "/s", FLUSHED)),
    (0, 3, ("1: pages flushed", "7.6/s", [3.8, 15.2], "/s", FLUSHED)),
    (0, 4, ("1: cache grows to", "13 MB", [11.0, 15.0], "MB", GROWN)),
    (1, 0, ("2: 128 MB file: read hits", "48 %", [43.0, 53.0], "%", HITS)),
    (1, 1, ("2: reads", "below 70/s", [35.0, 70.0], "/s", "")),
    (1, 2, ("2: lazy-write flushes", "about 30/s", [15.0, 60.0], "/s", AGE)),
    (1, 3, ("2: pages flushed", "about 50/s", [25.0, 100.0], "/s", AGE)),
    (2, 0, ("3: 128 MB file, cache favored: read hits", "61 to 69 %", [56.0, 74.0], "%", HITS)),
    (2, 1, ("3: reads", "about 74/s", [37.0, 148.0], "/s", "")),
    (2, 2, ("3: lazy-write flushes", "about 21/s", [10.5, 42.0], "/s", AGE)),
    (2, 3, ("3: pages flushed", "below 35/s", [17.5, 35.0], "/s", AGE)),
];

/// The cache, as it may be changed.
#[derive(Clone)]
struct Settings {
    policy: PolicyKind,
    tunables: Tunables,
    /// Memory in addition to that of the scenario, bytes.
    more_bytes: u64,
}

impl Settings {
    fn published() -> Self {
        Settings { policy: PolicyKind::Lru, tunables: Tunables::nt(), more_bytes: 0 }
    }
}

type Change = fn(&mut Settings);

/// Other settings.
const VARIATIONS: [(&str, Change); 3] = [
    ("20 MB more", |it| it.more_bytes = 20 * MIB),
    ("policy s3fifo", |it| it.policy = PolicyKind::S3Fifo),
    ("dirty for 5 minutes", |it| {
        for (name, value) in [("age-max", 300_000), ("dirty-threshold", 900), ("dirty-limit", 900)]
        {
            it.tunables.set(name, value).expect("in its range");
        }
    }),
];

/// The result of one run.
struct Outcome {
    figures: [f64; PER_SCENARIO],
    /// Seconds and pages flushed per second.
    flushed: Vec<(f64, f64)>,
    /// Seconds and MB of resident pages.
    resident: Vec<(f64, f64)>,
}

/// Returns the number of calls of `progress` in [`run`].
#[must_use]
pub fn step_count(seeds: u64) -> u64 {
    (seeds + VARIATIONS.len() as u64) * SCENARIOS.len() as u64 + LEAKS.len() as u64
}

/// Runs the experiment with the seeds from 1 on. `progress` is called after each run.
#[must_use]
pub fn run(seeds: u64, threads: NonZero<usize>, progress: &mut dyn FnMut()) -> Experiment {
    let steps: Vec<(u64, usize)> = (1..=seeds)
        .flat_map(|seed| (0..SCENARIOS.len()).map(move |number| (seed, number)))
        .collect();
    let outcomes = run_all(
        steps.len(),
        threads,
        |index| measure(&SCENARIOS[steps[index].1], &Settings::published(), steps[index].0),
        progress,
    );
    let varied = |index: usize| {
        let mut settings = Settings::published();
        (VARIATIONS[index / SCENARIOS.len()].1)(&mut settings);
        measure(&SCENARIOS[index % SCENARIOS.len()], &settings, 1)
    };
    let varied = run_all(VARIATIONS.len() * SCENARIOS.len(), threads, varied, progress);
    let varied = VARIATIONS.iter().zip(varied.chunks(SCENARIOS.len()));
    let leaks = run_all(LEAKS.len(), threads, |index| leak(LEAKS[index].1), progress);
    let of_outcomes = |(scenario, index, published): (usize, usize, Published)| {
        let of_scenario = steps.iter().zip(&outcomes).filter(|((_, it), _)| *it == scenario);
        let values = of_scenario.map(|(_, outcome)| outcome.figures[index]).collect();
        figure(published, values)
    };
    let over_time = |name, unit, points: fn(&Outcome) -> &Vec<(f64, f64)>| {
        let line = |(number, outcome): (usize, &Outcome)| Line {
            name: format!("scenario {}", number + 1),
            points: points(outcome).clone(),
        };
        let first_seed = outcomes.iter().take(SCENARIOS.len()).enumerate();
        Curve { name, over: "s", unit, lines: first_seed.map(line).collect() }
    };
    let leaks = LEAKS.iter().zip(leaks);
    Experiment {
        name: "probe",
        title: "Response Probe on the file cache of Windows NT, January 2002",
        machine: machine(),
        seeds,
        figures: FIGURES.into_iter().map(of_outcomes).collect(),
        curves: vec![
            over_time("pages that the lazy writer flushes", "pages/s", |it| &it.flushed),
            over_time("resident pages", "MB", |it| &it.resident),
            Curve {
                name: "read hits of scenario 1 while a program leaks memory",
                over: "MB leaked",
                unit: "%",
                lines: leaks
                    .map(|((name, _), points)| Line { name: (*name).to_owned(), points })
                    .collect(),
            },
        ],
        variations: varied
            .map(|((name, _), outcomes)| Variation {
                name,
                means: FIGURES
                    .map(|(scenario, index, _)| outcomes[scenario].figures[index])
                    .to_vec(),
            })
            .collect(),
        variation_seeds: 1,
    }
}

fn machine() -> Vec<String> {
    vec![
        "Disk: scsi-1999; the file is contiguous in the middle. Cache: preset nt, LRU, pages of 4 \
         KiB; its maximum is the size to which the published cache grew: 26, 26 and 40 MB."
            .to_owned(),
        "Assumptions: the standard deviation of the seeks is a sixth of the file (the most \
         frequent 26 and 40 MB then have 42 and 61 % of the references); a record takes \
         1.34 ms of processor time, with which scenario 1 has the published 186 reads per second."
            .to_owned(),
        "Not modeled: paging of programs.".to_owned(),
    ]
}

/// The cache, the file and its requests.
struct ProbeRun {
    simulation: CacheSimulation<FileStore>,
    probe: Probe,
}

impl ProbeRun {
    fn new(file_bytes: u64, cache_bytes: u64, settings: &Settings) -> Self {
        let mut probe = Probe::random(file_bytes);
        probe.think.mean = as_f64(RECORD_TIME);
        let spec = DiskSpec::scsi_1999();
        let device = StoreModel::Device(DeviceModel::Disk(spec)).build(geometry(&spec, 1));
        let start = capacity(&spec) / 2 / MIB * MIB;
        let map = FileMap::contiguous(start..start + file_bytes);
        let store = FileStore::all(device, &[map]).remove(0);
        let mut options = VolumeOptions::new("probe", store.geometry());
        options.policy = settings.policy;
        options.tunables = settings.tunables.clone();
        let volumes = [(options, store)];
        let simulation = CacheSimulation::new(
            frames_of(cache_bytes + settings.more_bytes),
            1,
            volumes,
            Clients::synchronous(1),
        );
        ProbeRun { simulation, probe }
    }

    /// Serves requests for a time, and calls `observe` after each [`INTERVAL`] with the seconds so
    /// far.
    fn serve(
        &mut self,
        seed: u64,
        time: Nanos,
        mut observe: impl FnMut(&mut CacheSimulation<FileStore>, f64),
    ) {
        let ProbeRun { simulation, probe } = self;
        let begin = simulation.now();
        let mut next = begin + INTERVAL;
        for request in probe.requests(seed) {
            simulation.serve(&request).expect("stores do not fail");
            while simulation.now() >= next {
                observe(simulation, as_f64(next - begin) / as_f64(SECOND));
                next += INTERVAL;
            }
            if simulation.now() >= begin + time {
                return;
            }
        }
    }
}

fn measure(scenario: &Scenario, settings: &Settings, seed: u64) -> Outcome {
    let mut run = ProbeRun::new(scenario.file_bytes, scenario.cache_bytes, settings);
    let (mut flushed, mut resident) = (Vec::new(), Vec::new());
    let mut written_before = 0;
    run.serve(seed, TIME, |simulation, at| {
        let written = simulation.totals(0).get(Counter::LazyWriteBlocks);
        let per_s = as_f64(written - written_before) * as_f64(SECOND) / as_f64(INTERVAL);
        written_before = written;
        flushed.push((at, per_s));
        resident.push((at, resident_mib(simulation)));
    });
    let resident_at_end = resident_mib(&run.simulation);
    let totals = run.simulation.finish().remove(0);
    let per_s = |counter| as_f64(totals.get(counter)) / (as_f64(TIME) / as_f64(SECOND));
    let figures = [
        hit_percent(&totals),
        per_s(Counter::ReadRequests),
        per_s(Counter::LazyWrites),
        per_s(Counter::LazyWriteBlocks),
        resident_at_end,
    ];
    Outcome { figures, flushed, resident }
}

/// Caches of the leak: the memory below which they do not shrink, bytes.
const LEAKS: [(&str, u64); 2] = [("minimum of 1 MB", MIB), ("minimum of 16 MB", 16 * MIB)];
/// Intervals in which the cache fills, before the program takes memory.
const FILLING: u64 = 30;
/// Memory that the program takes in each interval.
const LEAKED: u64 = MIB;

/// Returns the read hits of scenario 1 by leaked memory. The cache gives up what the program takes,
/// down to its minimum.
fn leak(minimum: u64) -> Vec<(f64, f64)> {
    let Scenario { file_bytes, cache_bytes } = SCENARIOS[0];
    let mut run = ProbeRun::new(file_bytes, cache_bytes, &Settings::published());
    let intervals = cache_bytes / LEAKED;
    let (mut points, mut before) = (Vec::new(), Totals::default());
    let (mut taken, mut passed) = (0, 0);
    run.serve(1, (FILLING + intervals + 1) * INTERVAL, |simulation, _| {
        let totals = simulation.totals(0);
        passed += 1;
        if passed <= FILLING {
            before = totals;
            return;
        }
        let hits = as_f64(totals.read_hits() - before.read_hits());
        let pages = as_f64(totals.read_pages() - before.read_pages()).max(1.0);
        points.push((as_f64(taken / MIB), 100.0 * hits / pages));
        before = totals;
        taken += LEAKED;
        let left = cache_bytes.saturating_sub(taken).max(minimum);
        simulation.set_memory(frames_of(left)).expect("a size within its limits");
    });
    points
}

fn resident_mib(simulation: &CacheSimulation<FileStore>) -> f64 {
    as_f64(simulation.resident_blocks(0) * BLOCK_BYTES_U64) / as_f64(MIB)
}

fn hit_percent(totals: &Totals) -> f64 {
    100.0 * totals.read_hit_ratio().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_fits_hits_and_its_writes_are_absorbed() {
        let mut run = ProbeRun::new(4 * MIB, 8 * MIB, &Settings::published());
        run.serve(1, 30 * SECOND, |_, _| ());
        let totals = run.simulation.finish().remove(0);
        assert!(hit_percent(&totals) > 80.0, "{}", hit_percent(&totals));
        let [written, flushed] =
            [Counter::WriteRequests, Counter::LazyWriteBlocks].map(|it| totals.get(it));
        assert!(flushed < written / 2, "{flushed} of {written}");
    }
}
