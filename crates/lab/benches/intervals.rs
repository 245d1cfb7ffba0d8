//! Coverage of the confidence intervals of sampled hit ratios, for `cargo xtask prove intervals`.
//!
//! `cargo bench --package larder-lab --bench intervals -- [--quick] [TRACE...]` compares the
//! intervals of `larder sim --curve` and of `larder size` with the hit ratios of caches of full
//! size, for each trace, policy, size and seed, and prints a row for each trace and policy. Results
//! that are counted over the whole trace have no interval and are left out. A trace of which
//! nearly all pages would be sampled is sampled less than by the commands. Without `--bench`, as in
//! `cargo test --benches`, a short run checks that it works.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a bench prints")]

use larder_core::curve::estimate::Estimate;
use larder_core::curve::miniature::{self, Miniature, NOT_ESTIMATED};
use larder_core::curve::sampled::{self, SampledCurve};
use larder_core::policy::PolicyKind;
use larder_core::replace::{self, IndexKind};
use larder_core::units::as_f64;
use larder_lab::sim::curve::{Exact, ExactCurve};
use larder_lab::sim::references::{Batch, Reference, References, Split};
use larder_lab::trace::synth::{Pattern, Synth, SynthOptions};
use larder_lab::trace::{self, BoxedSource, OpenOptions};
use larder_testing::{claim, shared_trace};
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sizes of the caches in per cent of the footprint.
const SIZES: [u64; 3] = [10, 25, 50];
/// Recorded traces: names in the table, files, and the maximum number of references.
const RECORDED: [(&str, &str, usize); 4] = [
    ("OLTP", "arc_OLTP.lis.zst", 250_000),
    ("P3", "arc_P3.lis.zst", 250_000),
    ("CloudPhysics", "cloudPhysicsIO.vscsi", 800_000),
    ("TPC-C", "mqsim_tpcc-small.trace", 250_000),
];
/// Generated traces: patterns and pages.
const GENERATED: [(Pattern, u64); 5] = [
    (Pattern::Zipf, 150_000),
    (Pattern::Mix, 40_000),
    (Pattern::Database, 60_000),
    (Pattern::Loop, 50_000),
    (Pattern::Uniform, 60_000),
];
/// References of a generated trace.
const REQUESTS: u64 = 200_000;
const BATCH: usize = 4096;
/// Samples of a trace with at most this many times the pages of a sample contain one page in this
/// many.
const SAMPLED_SHARE: u64 = 6;
/// The required share of intervals that hold.
const COVERAGE: f64 = 0.93;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        return smoke();
    }
    let names: Vec<&str> =
        args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    let seeds = if args.iter().any(|arg| arg == "--quick") { 10 } else { 100 };
    let is_selected = |name: &str| names.is_empty() || names.contains(&name);
    println!("| trace | method | results | inside | median width | mean error | largest error |");
    println!("|---|---|--:|--:|--:|--:|--:|");
    for (name, file, most) in RECORDED.into_iter().filter(|trace| is_selected(trace.0)) {
        match shared_trace(file) {
            Some(path) => {
                let source = trace::open(&path, &OpenOptions::default())?;
                measure(name, &read(source, most)?, seeds)?;
            }
            None => claim(statement(name), "it is not in ../shared/traces", "", None),
        }
    }
    for (pattern, pages) in GENERATED.into_iter().filter(|(it, _)| is_selected(it.name())) {
        measure(pattern.name(), &generated(pattern, REQUESTS, pages)?, seeds)?;
    }
    Ok(())
}

/// A short run that needs no trace.
fn smoke() -> Result<()> {
    measure("smoke", &generated(Pattern::Zipf, 50_000, 40_000)?, 2)
}

fn generated(pattern: Pattern, requests: u64, pages: u64) -> Result<Vec<Reference>> {
    let options = SynthOptions { pattern, requests, pages, ..SynthOptions::default() };
    read(Box::new(Synth::new(options)?), usize::MAX)
}

/// Reads the first references of a trace, at most `most`.
fn read(source: BoxedSource, most: usize) -> Result<Vec<Reference>> {
    let mut references = References::new(source, Split::Pages(4096));
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    while all.len() < most {
        references.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            break;
        }
        all.append(&mut batch.references);
    }
    all.truncate(most);
    Ok(all)
}

fn statement(name: &str) -> String {
    format!("{name}: at least 93 % of the intervals hold, for every policy")
}

/// Intervals of one method on one trace.
#[derive(Default)]
struct Coverage {
    held: u32,
    widths: Vec<f64>,
    error: f64,
    largest_error: f64,
}

impl Coverage {
    fn add(&mut self, estimate: Estimate, truth: f64) {
        let error = (estimate.hit_ratio - truth).abs();
        self.held += u32::from(estimate.holds(truth));
        self.widths.push(estimate.high - estimate.low);
        self.error += error;
        self.largest_error = self.largest_error.max(error);
    }

    fn count(&self) -> f64 {
        as_f64(self.widths.len() as u64)
    }

    fn share(&self) -> f64 {
        f64::from(self.held) / self.count()
    }

    fn median_width(&mut self) -> f64 {
        self.widths.sort_by(f64::total_cmp);
        self.widths[self.widths.len() / 2]
    }
}

/// The hit ratio of a cache of full size.
fn counted(all: &[Reference], policy: PolicyKind, pages: u32) -> f64 {
    let mut cache = replace::cache(policy, pages, IndexKind::Page);
    all.chunks(BATCH).for_each(|batch| cache.run(batch, &[]));
    let counts = cache.counts();
    as_f64(counts.hits().references) / as_f64(counts.all().references)
}

/// Returns the number of sampled pages: that of the commands, unless it is nearly all pages.
fn sample(footprint: u64, pages: u64) -> u64 {
    if footprint > SAMPLED_SHARE * pages { pages } else { footprint / SAMPLED_SHARE }
}

fn measure(name: &str, all: &[Reference], seeds: u64) -> Result<()> {
    let mut exact = Exact::new();
    exact.run(all);
    let curve = exact.curve();
    let footprint = curve.footprint();
    let pages = SIZES.map(|size| u32::try_from(footprint * size / 100));
    let pages: Vec<u32> = pages.into_iter().collect::<std::result::Result<_, _>>()?;
    let mut rows = vec![("sim --curve", sampled_curve(all, &curve, &pages, seeds)?)];
    rows.extend(miniatures(all, footprint, &pages, seeds)?);
    let mut worst: Option<(f64, &str)> = None;
    for (method, mut coverage) in rows {
        if coverage.widths.is_empty() {
            println!("| {name} | `{method}` | counted | | | | |");
            continue;
        }
        let share = coverage.share();
        if worst.is_none_or(|(lowest, _)| share < lowest) {
            worst = Some((share, method));
        }
        println!(
            "| {name} | `{method}` | {} | {:.1} % | {:.2} | {:.2} | {:.2} |",
            coverage.widths.len(),
            100.0 * share,
            100.0 * coverage.median_width(),
            100.0 * coverage.error / coverage.count(),
            100.0 * coverage.largest_error,
        );
    }
    let (share, method) = worst.ok_or("a trace with estimates")?;
    let figure = format!("lowest: {:.1} % ({method}), {seeds} seeds", 100.0 * share);
    claim(statement(name), figure, "", share >= COVERAGE);
    Ok(())
}

/// Returns the coverage of the curve of LRU.
fn sampled_curve(
    all: &[Reference],
    curve: &ExactCurve,
    pages: &[u32],
    seeds: u64,
) -> Result<Coverage> {
    let size = sample(curve.footprint(), sampled::SAMPLE_PAGES as u64);
    let mut coverage = Coverage::default();
    for seed in 0..seeds {
        let mut sampled = SampledCurve::new(usize::try_from(size)?, seed);
        sampled.run(all);
        for &pages in pages {
            let truth = curve.hit_ratio(pages.into()).ok_or("references")?;
            coverage.add(sampled.hit_ratio(pages.into()).ok_or("references")?, truth);
        }
    }
    Ok(coverage)
}

/// Returns the coverage of each policy with miniatures.
fn miniatures(
    all: &[Reference],
    footprint: u64,
    pages: &[u32],
    seeds: u64,
) -> Result<Vec<(&'static str, Coverage)>> {
    let policies: Vec<PolicyKind> =
        PolicyKind::ALL.into_iter().filter(|&kind| kind != NOT_ESTIMATED).collect();
    let truths: Vec<Vec<f64>> = policies
        .iter()
        .map(|&policy| pages.iter().map(|&pages| counted(all, policy, pages)).collect())
        .collect();
    let mut rows: Vec<_> = policies.iter().map(|kind| (kind.name(), Coverage::default())).collect();
    let sample = sample(footprint, miniature::SAMPLE_PAGES);
    for seed in 0..seeds {
        let mut miniature = Miniature::with_sample(&policies, pages, (footprint, sample), seed);
        all.chunks(BATCH).for_each(|batch| miniature.run(batch));
        for (policy, (_, coverage)) in rows.iter_mut().enumerate() {
            for size in (0..pages.len()).filter(|&size| !miniature.is_whole(size)) {
                let estimate = miniature.hit_ratio(policy, size).ok_or("references")?;
                coverage.add(estimate, truths[policy][size]);
            }
        }
    }
    Ok(rows)
}
