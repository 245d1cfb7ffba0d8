//! The charts of the documentation, as SVG.

use anyhow::{Context, Result, bail};
use larder_core::clock::SECOND;
use larder_core::counters::Counter;
use larder_core::store::{Geometry, MemoryStore};
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use larder_lab::cache_simulation::{CacheSimulation, Clients};
use larder_lab::model::{Disk, ModeledStore};
use larder_lab::workload::probe::Probe;
use larder_report::chart::{Axis, Chart};
use larder_schema::run::Run;
use larder_schema::sizing::Sizing;

/// Maximum size of the cache on the machine on which the scenario was measured.
const CACHE_BYTES: u64 = 26 << 20;
/// Mean think time: with it the scenario has the 186 reads and 550 writes a second that were
/// measured.
const THINK_NS: f64 = 1.36e6;
const SECONDS: u64 = 60;
const SEED: u64 = 1998;

/// Draws Probe scenario 1: dirty data, and the writes of the lazy writer, over time.
///
/// The file fits the cache; writes are absorbed, and dirty data accumulates until its age limit and
/// is then written in one burst, in disk order. The chart uses the production cache with the preset
/// `nt`, on a virtual clock, in front of the modeled 7,200 rpm disk: it is reproducible.
#[expect(clippy::cast_precision_loss, reason = "points of a chart")]
pub(super) fn saw_tooth() -> Result<String> {
    let mut probe = Probe::scenario_1(CACHE_BYTES);
    probe.think.mean = THINK_NS;
    let geometry = Geometry { length: probe.file_bytes, granule: 512, read_only: false };
    let mut options = VolumeOptions::new("probe", geometry);
    options.tunables = Tunables::nt();
    let disk = Disk::seven_thousand_two_hundred(geometry.length);
    let store = ModeledStore::new(MemoryStore::new(geometry), disk);
    let frames = u32::try_from(CACHE_BYTES / BLOCK_BYTES_U64).expect("26 MiB");
    let mut simulation =
        CacheSimulation::new(frames, 1, [(options, store)], Clients::synchronous(1));
    let begin = simulation.now();
    let (mut dirty, mut written) = (Vec::new(), Vec::new());
    let mut next = begin;
    let mut written_before = 0;
    for request in probe.requests(SEED) {
        simulation.serve(&request)?;
        while simulation.now() >= next {
            let at = (next - begin) as f64 / SECOND as f64;
            let total = simulation.totals(0).get(Counter::LazyWriteBlocks);
            dirty.push((at, simulation.unclean_blocks(0) as f64));
            written.push((at, (total - written_before) as f64 * 4.0));
            written_before = total;
            next += SECOND / 4;
        }
        if simulation.now() > begin + SECONDS * SECOND {
            break;
        }
    }
    simulation.finish();
    let mut chart = Chart::new(
        "Probe scenario 1: a 16 MiB file, a cache of 26 MiB, one read to three writes",
        Axis::new("time", "s"),
        Axis::new("blocks of 4 KiB", "blocks"),
    );
    chart.line("dirty", dirty);
    chart.line("written lazily per second", written);
    chart.to_svg_file(900, 420).context("draw the chart")
}

/// The recorded result of `larder size --json` on a trace, relative to the root of the repository.
const SIZING_RECORD: &str = "bench-runs/sizing.json";

/// Draws the hit-ratio curve of a recorded result of `larder size`.
pub(super) fn curve() -> Result<String> {
    let text =
        std::fs::read_to_string(SIZING_RECORD).with_context(|| format!("read {SIZING_RECORD}"))?;
    let sizing: Sizing =
        serde_json::from_str(&text).with_context(|| format!("read {SIZING_RECORD}"))?;
    Ok(larder_report::sizing::to_curve_svg(&sizing))
}

/// The recorded run of a leak, relative to the root of the repository.
const LEAK_RECORD: &str = "bench-runs/leak.json";

/// Draws a leak and a floor: the recorded run of `cargo xtask prove leak`.
pub(super) fn leak() -> Result<String> {
    let text =
        std::fs::read_to_string(LEAK_RECORD).with_context(|| format!("read {LEAK_RECORD}"))?;
    let run = Run::from_json(&text).with_context(|| format!("read {LEAK_RECORD}"))?;
    let Some((time, series)) = run.samples.split_first() else {
        bail!("{LEAK_RECORD} has no samples")
    };
    let mut chart = Chart::new(
        "A process leaks memory on a host with 640 MiB",
        Axis::new("time", "s"),
        Axis::new("memory", "MiB"),
    );
    for sample in series {
        chart.line(&sample.series, time.values.iter().copied().zip(sample.values.iter().copied()));
    }
    chart.to_svg_file(900, 420).context("draw the chart")
}
