//! Claims for `cargo xtask prove` about decisions of the cache on the shared traces: the default
//! policy, the curve of the running cache, and the division of a pool.
//!
//! `cargo bench --package larder-lab --bench tuning -- NAME [--quick]`, where NAME is one of
//! `default-policy`, `curve`, `policy-curve` (the second part of `curve`), `share`. Without a name,
//! as in `cargo test --benches`, it does nothing.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

mod policy_curve;

use larder_core::cache::ShareMode;
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::replace::{self, Counts, IndexKind};
use larder_core::store::Geometry;
use larder_core::tunables::Tunables;
use larder_core::units::as_f64;
use larder_core::volume::VolumeOptions;
use larder_lab::sim::curve::Exact;
use larder_lab::sim::engine::{
    self, CacheSimulationOptions, Clients, Pace, RequestTime, StoreModel, VolumeLengths,
};
use larder_lab::sim::min::Future;
use larder_lab::sim::references::{Batch, Reference, References, Split};
use larder_lab::sim::sharing::{MemoryDivision, SharingExperiment, hit_ratio};
use larder_lab::trace::{self, BoxedSource, OpenOptions};
use larder_testing::{claim, shared_trace};
use std::error::Error;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The traces, and their names in the tables.
const TRACES: [(&str, &str); 4] = [
    ("arc_OLTP.lis.zst", "OLTP"),
    ("arc_P3.lis.zst", "P3"),
    ("cloudPhysicsIO.vscsi", "CloudPhysics"),
    ("mqsim_tpcc-small.trace", "TPC-C"),
];
/// Sizes in per cent of the footprint; the short form takes the second.
const SIZES: [u64; 4] = [1, 5, 10, 20];
/// Traces with fewer references are left out, except for the default policy.
const REFERENCES_MIN: usize = 100_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let sizes = if is_quick { &SIZES[1..2] } else { &SIZES[..] };
    match args.first().map(String::as_str) {
        Some("default-policy") => default_policy(),
        Some("curve") => curve(sizes).and_then(|()| policy_curve::run(is_quick)),
        Some("policy-curve") => policy_curve::run(is_quick),
        Some("share") => share(),
        None => Ok(()),
        Some(_) => Err("unknown arguments: the top of this file shows the usage".into()),
    }
}

/// Returns the available traces with their names.
fn traces() -> Vec<(&'static str, PathBuf)> {
    TRACES.iter().filter_map(|&(file, name)| Some((name, shared_trace(file)?))).collect()
}

fn open(trace: &Path) -> Result<BoxedSource> {
    Ok(trace::open(trace, &OpenOptions::default())?)
}

/// Reads all references of a trace.
fn references(trace: &Path) -> Result<Vec<Reference>> {
    let mut references = References::new(open(trace)?, Split::Pages(4096));
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    loop {
        references.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            return Ok(all);
        }
        all.append(&mut batch.references);
    }
}

fn exact(references: &[Reference]) -> larder_lab::sim::curve::ExactCurve {
    let mut exact = Exact::new();
    exact.run(references);
    exact.curve()
}

fn part(footprint: u64, percent: u64) -> Result<u32> {
    Ok(u32::try_from(footprint * percent / 100)?)
}

/// Describes the mean and the maximum of `values` in percentage points, and returns whether both
/// are within `bounds`. Returns `None` if there are no values.
fn mean_and_most(values: &[f64], bounds: [f64; 2]) -> Option<(String, bool)> {
    let mean = values.iter().sum::<f64>() / as_f64(values.len() as u64);
    let most = values.iter().copied().reduce(f64::max)?;
    let text = format!("mean {:.2}, most {:.2} points", mean * 100.0, most * 100.0);
    Some((text, mean <= bounds[0] && most <= bounds[1]))
}

/// Compares the engine's default policy with all others, by the mean hit ratio over all sizes and
/// traces. Prints the table of docs/policies.md, the best policy first.
fn default_policy() -> Result<()> {
    /// Smaller differences count as a tie, in per cent of references.
    const TIE_POINTS: f64 = 0.05;
    let what = "the engine's default policy has the best hit ratio over the block traces";
    let traces = traces();
    if traces.len() < TRACES.len() {
        claim(what, "not all four traces are in ../shared/traces", "", None);
        return Ok(());
    }
    let mut rows = vec![("min", Vec::new())];
    rows.extend(PolicyKind::ALL.map(|policy| (policy.name(), Vec::new())));
    let ratio = |counts: Counts| as_f64(counts.hits().references) / as_f64(counts.all().references);
    for (_, trace) in &traces {
        let all = references(trace)?;
        let mut future = Future::new();
        future.add(&all)?;
        let known = future.known();
        for size in SIZES {
            let capacity = part(known.footprint(), size)?;
            rows[0].1.push(100.0 * ratio(known.run(capacity).counts));
            for (policy, row) in PolicyKind::ALL.into_iter().zip(&mut rows[1..]) {
                let mut cache = replace::cache(policy, capacity, IndexKind::Page);
                all.chunks(4096).for_each(|batch| cache.run(batch, &[]));
                row.1.push(100.0 * ratio(cache.counts()));
            }
        }
    }
    let mean = |row: &[f64]| row.iter().sum::<f64>() / as_f64(row.len() as u64);
    rows.sort_by(|one, other| mean(&other.1).total_cmp(&mean(&one.1)));
    for (name, row) in &rows {
        let cells: Vec<String> = row.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!("{name:<9} {} mean {:.3}", cells.join(" "), mean(row));
    }
    let geometry = Geometry { length: 4096, granule: 512, read_only: false };
    let default = VolumeOptions::new("default", geometry).policy.name();
    let (best, most) = rows.iter().find(|row| row.0 != "min").ok_or("no policy")?;
    let (_, ours) = rows.iter().find(|row| row.0 == default).ok_or("no default")?;
    let (ours, most) = (mean(ours), mean(most));
    let (figure, peer) = (format!("{default} {ours:.3} %"), format!("best: {best} {most:.3} %"));
    claim(what, figure, peer, ours >= most - TIE_POINTS);
    Ok(())
}

/// Compares the online curve of the simulated cache with the exact one.
fn curve(sizes: &[u64]) -> Result<()> {
    let what = "the online curve is at most 1 point off the exact one on average";
    let (mut all, mut held) = (Vec::new(), 0);
    for (name, trace) in traces() {
        let references = references(&trace)?;
        if references.len() < REFERENCES_MIN {
            continue;
        }
        let exact = exact(&references);
        let lengths = VolumeLengths::of(&mut open(&trace)?)?;
        for &size in sizes {
            let options = whole_options(part(exact.footprint(), size)?)?;
            let outcome = engine::simulate(&mut open(&trace)?, &lengths, &options, |_| ())?;
            // Each of these traces has one volume.
            let report = outcome.curves.into_iter().flatten().next().ok_or("the curve is kept")?;
            let mut errors = Vec::new();
            for point in report.lifetime_points {
                let truth = exact.hit_ratio(point.bytes / 4096).ok_or("references")?;
                let estimate = point.estimate;
                held += u32::from(estimate.low <= truth && truth <= estimate.high);
                errors.push((estimate.hit_ratio - truth).abs());
            }
            let (figure, _) = mean_and_most(&errors, [1.0; 2]).ok_or("the curve has no point")?;
            println!("{name}, {size} %: {} points, off by {figure}", errors.len());
            all.append(&mut errors);
        }
    }
    match mean_and_most(&all, [0.01, 1.0]) {
        Some((figure, holds)) => {
            let bars = f64::from(held) / as_f64(all.len() as u64) * 100.0;
            claim(what, format!("{figure}; {bars:.0} % of the intervals hold"), "", holds);
        }
        None => claim(what, "no trace in ../shared/traces", "", None),
    }
    Ok(())
}

fn whole_options(frames: u32) -> Result<CacheSimulationOptions> {
    // No read-ahead: the exact curve counts only the references of clients.
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0)?;
    Ok(CacheSimulationOptions {
        page_cache: None,
        frames,
        shards: 1,
        page_blocks: 1,
        policy: PolicyKind::S3Fifo.into(),
        write_mode: WriteMode::Back,
        store: StoreModel::Instant,
        clients: Clients::synchronous(1),
        pace: Pace::Closed {
            gap: RequestTime { fixed: 100_000, bytes_per_s: None },
            think: RequestTime::default(),
        },
        wake: 0,
        reply: 0,
        hint: Hint::Normal,
        tunables,
    })
}

/// Compares `--share auto` with every fixed division in eighths, for two volumes in one pool.
fn share() -> Result<()> {
    for policy in [PolicyKind::Lru, PolicyKind::S3Fifo] {
        let sharing = SharingExperiment {
            frames: 4_096,
            hot_blocks: 12_000,
            hot_tenths: 5,
            policy,
            requests: 300_000,
        };
        let percent = |division| -> Result<f64> { Ok(100.0 * hit_ratio(&sharing, division)?) };
        let (mut best, mut most) = (0, f64::NEG_INFINITY);
        for eighth in 0..=8 {
            let ratio = percent(MemoryDivision::Fixed(sharing.frames / 8 * eighth))?;
            if ratio >= most {
                (best, most) = (eighth, ratio);
            }
        }
        let coldest = percent(MemoryDivision::Mode(ShareMode::Coldest))?;
        let auto = percent(MemoryDivision::Mode(ShareMode::Auto))?;
        claim(
            format!("--share auto is within 1 point of the best fixed division, {}", policy.name()),
            format!("{auto:.2} %"),
            format!("hot {best}/8 of the memory: {most:.2} %; coldest: {coldest:.2} %"),
            auto >= most - 1.0,
        );
    }
    Ok(())
}
