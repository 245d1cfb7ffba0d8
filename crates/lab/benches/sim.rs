//! Speed of the simulator and errors of its estimates, for `cargo xtask prove`.
//!
//! * `prepare OUT [TRACE...]`: writes traces in the format that the peer reads, one reference per
//!   page, and one of 10 million references drawn from a zipf distribution;
//! * `replace TRACE POLICY PAGES`: one pass with one cache, reading included, as JSON;
//! * `promises NAME TRACE`: claims about the exact curve of LRU, about one pass for eight sizes of
//!   eight policies, and about sampled curves, which are compared with the exact one;
//! * `miniatures TRACE SEEDS`: curves of other policies against caches of full size.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZero;
use std::path::Path;
use std::time::Instant;

use larder_core::curve::estimate::Estimate;
use larder_core::curve::miniature::{self, Miniature, NOT_ESTIMATED};
use larder_core::curve::sampled::{SAMPLE_PAGES, SampledCurve};
use larder_core::policy::PolicyKind;
use larder_core::replace::{self, IndexKind};
use larder_core::units::as_f64;
use larder_lab::random::Random;
use larder_lab::sim::curve::{Exact, ExactCurve};
use larder_lab::sim::references::{Batch, Reference, References, Split};
use larder_lab::sim::sweep::{self, SweepItem};
use larder_lab::trace::{self, OpenOptions};
use larder_testing::claim;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sizes of the sweep and of the estimates, per cent of the footprint.
const SIZES: [u64; 8] = [1, 2, 5, 10, 20, 30, 40, 50];
/// Pages from which the zipf trace is drawn; a little over a million of them occur.
const ZIPF_PAGES: u32 = 1_600_000;
const ZIPF_REFERENCES: u32 = 10_000_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["prepare", out, ref traces @ ..] => prepare(Path::new(out), traces),
        ["replace", trace, policy, pages] => run_policy(trace, policy, pages.parse()?),
        ["promises", name, trace] => {
            exact(name, trace)?;
            sampled(name, trace)?;
            sweep(name, trace)?;
            check_intervals(name, trace, 200)
        }
        ["miniatures", trace, seeds] => miniatures(trace, seeds.parse()?),
        // As a test: a short run that needs no trace.
        [] => smoke(),
        _ => Err("see the head of this file for how to run it".into()),
    }
}

fn open(trace: &str) -> Result<References> {
    let source = trace::open(Path::new(trace), &OpenOptions::default())?;
    let split = Split::native(source.addressing());
    Ok(References::new(source, split))
}

/// Calls `run` with all references, batch by batch.
fn for_each_batch(trace: &str, mut run: impl FnMut(&[Reference])) -> Result<()> {
    let (mut references, mut batch) = (open(trace)?, Batch::default());
    loop {
        references.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            return Ok(());
        }
        run(&batch.references);
    }
}

fn exact_curve(trace: &str) -> Result<ExactCurve> {
    let mut exact = Exact::new();
    for_each_batch(trace, |batch| exact.run(batch))?;
    Ok(exact.curve())
}

fn ratio(part: u64, whole: u64) -> f64 {
    larder_schema::share(part, whole).unwrap_or_default()
}

fn prepare(out: &Path, traces: &[&str]) -> Result<()> {
    for trace in traces {
        let name = Path::new(trace).file_name().ok_or("a trace has a name")?.to_string_lossy();
        let name = name.split('.').next().unwrap_or_default().to_owned();
        let mut to = BufWriter::new(File::create(out.join(name + ".oracleGeneral"))?);
        let mut written = Ok(());
        for_each_batch(trace, |batch| {
            if written.is_ok() {
                written = batch.iter().try_for_each(|r| record(&mut to, r.page));
            }
        })?;
        written?;
    }
    let mut to = BufWriter::new(File::create(out.join("zipf.oracleGeneral"))?);
    let mut sum = 0.0;
    let ranks: Vec<f64> = (1..=ZIPF_PAGES)
        .map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        })
        .collect();
    let mut random = Random::from_seed(1);
    for _ in 0..ZIPF_REFERENCES {
        let drawn = random.unit() * sum;
        let rank = ranks.partition_point(|&below| below <= drawn);
        // Hot pages are spread over all page numbers.
        record(&mut to, larder_core::mix(rank as u64) >> 20)?;
    }
    Ok(to.flush()?)
}

/// Writes one reference in the format oracleGeneral: time, object, size, next reference.
fn record(to: &mut impl Write, page: u64) -> std::io::Result<()> {
    to.write_all(&1_u32.to_le_bytes())?;
    to.write_all(&page.to_le_bytes())?;
    to.write_all(&1_u32.to_le_bytes())?;
    to.write_all(&(-1_i64).to_le_bytes())
}

fn run_policy(trace: &str, policy: &str, pages: u32) -> Result<()> {
    let policy = PolicyKind::from_name(policy).ok_or("no such policy")?;
    let started = Instant::now();
    let mut cache = replace::cache(policy, pages, IndexKind::Page);
    for_each_batch(trace, |batch| cache.run(batch, &[]))?;
    let seconds = started.elapsed().as_secs_f64();
    let counts = cache.counts();
    let miss_ratio = ratio(counts.misses().references, counts.all().references);
    let references = counts.all().references;
    println!(r#"{{"seconds": {seconds}, "references": {references}, "miss_ratio": {miss_ratio}}}"#);
    Ok(())
}

fn exact(name: &str, trace: &str) -> Result<()> {
    let started = Instant::now();
    let curve = exact_curve(trace)?;
    let rate = as_f64(curve.references()) / started.elapsed().as_secs_f64() / 1e6;
    println!(r#"{{"references": {}, "footprint": {}}}"#, curve.references(), curve.footprint());
    let what = format!("{name}: the exact curve, at least 4 million references per second");
    claim(what, format!("{rate:.1} million per s"), "", rate >= 4.0);
    Ok(())
}

/// Measures the sampled curve over references in memory.
fn sampled(name: &str, trace: &str) -> Result<()> {
    let mut all = Vec::new();
    for_each_batch(trace, |batch| all.extend_from_slice(batch))?;
    let started = Instant::now();
    let mut sampled = SampledCurve::new(SAMPLE_PAGES, 1);
    sampled.run(&all);
    let rate = as_f64(sampled.references()) / started.elapsed().as_secs_f64() / 1e6;
    // The sample of a trace of few pages has most references: it takes as long as the exact curve.
    if sampled.rate() > 0.1 {
        println!("{name}: the sampled curve, {rate:.1} million references per second");
        return Ok(());
    }
    let what = format!("{name}: the sampled curve, at least 20 million references per second");
    claim(what, format!("{rate:.1} million per s"), "", rate >= 20.0);
    Ok(())
}

/// Eight policies of all kinds.
fn policies() -> Vec<PolicyKind> {
    ["lru", "fifo", "clock", "2q", "arc", "s3fifo", "sieve", "wtinylfu"]
        .into_iter()
        .filter_map(PolicyKind::from_name)
        .collect()
}

fn sizes(footprint: u64) -> Vec<u32> {
    SIZES.iter().map(|per_cent| u32::try_from(footprint * per_cent / 100).unwrap_or(1)).collect()
}

fn sweep(name: &str, trace: &str) -> Result<()> {
    let footprint = exact_curve(trace)?.footprint();
    let pages = sizes(footprint);
    let plan: Vec<SweepItem> = policies()
        .into_iter()
        .flat_map(|policy| {
            pages.iter().map(move |&capacity| SweepItem { policy: policy.into(), capacity })
        })
        .collect();
    let run = |plan: &[SweepItem]| -> Result<f64> {
        let started = Instant::now();
        sweep::run(open(trace)?, plan, Some(footprint), NonZero::<usize>::MIN, |_| ())?;
        Ok(started.elapsed().as_secs_f64())
    };
    let lru = run(&plan[..1])?;
    let separate = plan.chunks(1).map(run).sum::<Result<f64>>()?;
    let together = run(&plan)?;
    let started = Instant::now();
    let mut miniature = Miniature::new(&policies(), &pages, footprint, 1);
    for_each_batch(trace, |batch| miniature.run(batch))?;
    let passes = started.elapsed().as_secs_f64() / lru;
    claim(
        format!("{name}: one pass for 8 sizes of 8 policies, at most 0.7 of separate passes"),
        format!("{:.2} ({together:.1} s of {separate:.1} s, one core)", together / separate),
        "",
        together <= 0.7 * separate,
    );
    // Of a trace of fewer pages, the samples are a large part.
    if footprint < 10 * miniature::SAMPLE_PAGES {
        println!("{name}: the same with sampling, {passes:.1} passes of lru");
        return Ok(());
    }
    let what = format!("{name}: the same with sampling, at most the time of 12 passes of lru");
    claim(what, format!("{passes:.1} passes"), "", passes <= 12.0);
    Ok(())
}

/// Differences between estimates and the true values.
#[derive(Default)]
struct ErrorStatistics {
    count: u32,
    held: u32,
    error: f64,
    width: f64,
}

impl ErrorStatistics {
    fn add(&mut self, estimate: Estimate, truth: f64) {
        self.count += 1;
        self.held += u32::from(estimate.holds(truth));
        self.error += (estimate.hit_ratio - truth).abs();
        self.width += estimate.high - estimate.low;
    }

    fn print(&self, what: &str) {
        let count = f64::from(self.count);
        println!(
            r#"{{"what": "{what}", "mean_error": {:.5}, "held": {:.4}, "bar_half": {:.5}}}"#,
            self.error / count,
            f64::from(self.held) / count,
            self.width / count / 2.0
        );
    }
}

fn check_intervals(name: &str, trace: &str, seeds: u32) -> Result<()> {
    let mut all = Vec::new();
    for_each_batch(trace, |batch| all.extend_from_slice(batch))?;
    let mut exact = Exact::new();
    exact.run(&all);
    let curve = exact.curve();
    let pages = sizes(curve.footprint());
    let mut total = ErrorStatistics::default();
    for seed in 0..seeds {
        let mut sampled = SampledCurve::new(SAMPLE_PAGES, seed.into());
        sampled.run(&all);
        for &pages in &pages {
            let truth = curve.hit_ratio(pages.into()).ok_or("references")?;
            total.add(sampled.hit_ratio(pages.into()).ok_or("references")?, truth);
        }
    }
    total.print("lru sampled");
    let count = f64::from(total.count);
    let (error, held) = (total.error / count, f64::from(total.held) / count);
    claim(
        format!("{name}: sampled curve, mean error at most 0.5 points; 91 % of intervals hold"),
        format!("{:.2} points, {:.1} % of {seeds} seeds", error * 100.0, held * 100.0),
        "",
        error <= 0.005 && held >= 0.91,
    );
    Ok(())
}

fn miniatures(trace: &str, seeds: u32) -> Result<()> {
    let mut all = Vec::new();
    for_each_batch(trace, |batch| all.extend_from_slice(batch))?;
    let mut exact = Exact::new();
    exact.run(&all);
    let pages = sizes(exact.curve().footprint());
    let footprint = u64::from(pages[0]) * 100;
    let policies: Vec<PolicyKind> =
        policies().into_iter().filter(|&kind| kind != NOT_ESTIMATED).collect();
    let mut miniatures = Vec::new();
    for seed in 0..seeds {
        let mut miniature = Miniature::new(&policies, &pages, footprint, seed.into());
        all.chunks(4096).for_each(|batch| miniature.run(batch));
        miniatures.push(miniature);
    }
    for (number, policy) in policies.into_iter().enumerate() {
        let mut total = ErrorStatistics::default();
        for (size, &capacity) in pages.iter().enumerate() {
            let mut cache = replace::cache(policy, capacity, IndexKind::Page);
            all.chunks(4096).for_each(|batch| cache.run(batch, &[]));
            let counts = cache.counts();
            let truth = ratio(counts.hits().references, counts.all().references);
            for miniature in &miniatures {
                total.add(miniature.hit_ratio(number, size).ok_or("references")?, truth);
            }
        }
        total.print(&format!("{} in miniature", policy.name()));
    }
    Ok(())
}

fn smoke() -> Result<()> {
    let path =
        std::env::temp_dir().join(format!("larder-sim-{}.oracleGeneral", std::process::id()));
    let mut to = BufWriter::new(File::create(&path)?);
    (0..5_000_u64).try_for_each(|at| record(&mut to, at * at % 701))?;
    to.flush()?;
    let trace = path.to_str().ok_or("a path in UTF-8")?;
    let result = run_policy(trace, "lru", 50)
        .and_then(|()| exact("smoke", trace))
        .and_then(|()| check_intervals("smoke", trace, 20))
        .and_then(|()| miniatures(trace, 2));
    std::fs::remove_file(&path)?;
    result
}
