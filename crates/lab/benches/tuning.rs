//! What the running cache knows and decides, over traces: for `cargo xtask prove auto`,
//! `online-curve` and `share`, which read what this prints.
//!
//! * `auto TRACE PERCENT...`: `--policy auto` beside each policy that it chooses from, at parts of
//!   the footprint; lines `PERCENT,PAGES,NAME,HIT_RATIO,SWITCHES` over what comes after the first
//!   quarter of the references.
//! * `curve TRACE PERCENT...`: the curve that the whole cache has kept, at parts of the footprint,
//!   beside the exact one; lines `PERCENT,BYTES,ONLINE,LOW,HIGH,EXACT`.
//! * `share`: two volumes in one pool; lines `POLICY,DIVISION,HIT_RATIO`.
//!
//! `cargo bench --package larder-lab --bench tuning -- NAME ...`. Without a name, as in
//! `cargo test --benches`, a moment of the first shows that it works.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use larder_core::cache::ShareMode;
use larder_core::curve::candidates::CANDIDATES;
use larder_core::curve::estimate::as_f64;
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_lab::rehearsal::sharing::{Division, Sharing, hit_ratio};
use larder_lab::sim::auto::AutoCache;
use larder_lab::sim::curve::exact::Exact;
use larder_lab::sim::references::{Batch, References, Split};
use larder_lab::sim::replace::Changeable;
use larder_lab::sim::whole::{self, Lengths, Pace, StoreModel, WholeOptions};
use larder_lab::trace::{self, BoxedSource, OpenOptions};
use std::error::Error;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The part of the references that is warm-up: one in so many.
const WARM_UP: usize = 4;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["auto", trace, ref sizes @ ..] => {
            let pages = pages(trace)?;
            let footprint = footprint(&pages);
            for size in sizes {
                auto(&pages, size, part(footprint, size)?);
            }
            Ok(())
        }
        ["curve", trace, ref sizes @ ..] => curve(trace, sizes),
        ["share"] => share(),
        [] => {
            auto(&(0..40_000).map(|n| n * n % 977).collect::<Vec<_>>(), "10", 97);
            Ok(())
        }
        _ => Err("see the head of this file for how to run it".into()),
    }
}

fn part(footprint: u64, percent: &str) -> Result<u32> {
    Ok(u32::try_from(footprint * percent.parse::<u64>()? / 100)?)
}

fn open(trace: &str) -> Result<BoxedSource> {
    Ok(trace::open(Path::new(trace), &OpenOptions::default())?)
}

/// The pages of a trace, one for each reference.
fn pages(trace: &str) -> Result<Vec<u64>> {
    let mut references = References::new(open(trace)?, Split::Pages(4096));
    let (mut batch, mut pages) = (Batch::default(), Vec::new());
    loop {
        references.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            return Ok(pages);
        }
        pages.extend(batch.references.iter().map(|reference| reference.page));
    }
}

fn footprint(pages: &[u64]) -> u64 {
    let mut sorted = pages.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() as u64
}

/// The hit ratio after the warm-up.
fn warm(pages: &[u64], mut touch: impl FnMut(u64) -> bool) -> f64 {
    let begin = pages.len() / WARM_UP;
    let touched = pages.iter().enumerate().filter(|&(at, &page)| touch(page) && at >= begin);
    as_f64(touched.count() as u64) / as_f64((pages.len() - begin) as u64)
}

fn auto(pages: &[u64], percent: &str, capacity: u32) {
    for kind in CANDIDATES {
        let mut cache = Changeable::new(kind, capacity);
        let ratio = warm(pages, |page| cache.touch(page));
        println!("{percent},{capacity},{},{ratio:.6},0", kind.name());
    }
    let mut cache = AutoCache::new(PolicyKind::S3Fifo, capacity, 0);
    let ratio = warm(pages, |page| cache.touch(page));
    let switches = cache.switches().len();
    println!("{percent},{capacity},auto,{ratio:.6},{switches}");
}

fn curve(trace: &str, sizes: &[&str]) -> Result<()> {
    let mut exact = Exact::new();
    let mut references = References::new(open(trace)?, Split::Pages(4096));
    let mut batch = Batch::default();
    loop {
        references.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            break;
        }
        exact.run(&batch.references);
    }
    let exact = exact.curve();
    let lengths = Lengths::of(&mut open(trace)?)?;
    // Nothing is read ahead: the exact curve is of what clients ask for.
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0)?;
    for size in sizes {
        let options = WholeOptions {
            frames: part(exact.footprint(), size)?,
            shards: 1,
            page_blocks: 1,
            policy: PolicyKind::S3Fifo,
            write_mode: WriteMode::Back,
            store: StoreModel::Instant,
            clients: 1,
            pace: Pace::Closed { gap: 100_000, think: 0 },
            hint: Hint::Normal,
            tunables: tunables.clone(),
        };
        let outcome = whole::simulate(&mut open(trace)?, &lengths, &options, |_| ())?;
        // All of these traces are of one volume.
        let report = outcome.curves.into_iter().flatten().next().ok_or("the curve is kept")?;
        for point in report.lifetime_points {
            let truth = exact.hit_ratio(point.bytes / 4096).ok_or("references")?;
            let made = point.estimate;
            println!(
                "{size},{},{:.6},{:.6},{:.6},{truth:.6}",
                point.bytes, made.hit_ratio, made.low, made.high
            );
        }
    }
    Ok(())
}

fn share() -> Result<()> {
    for policy in [PolicyKind::Lru, PolicyKind::S3Fifo] {
        let sharing =
            Sharing { frames: 4_096, hot_blocks: 12_000, hot_tenths: 5, policy, requests: 300_000 };
        for eighth in 0..=8 {
            let frames = sharing.frames / 8 * eighth;
            let ratio = hit_ratio(&sharing, Division::Fixed(frames))?;
            println!("{},{eighth}/8,{ratio:.6}", policy.name());
        }
        for (name, mode) in [("coldest", ShareMode::Coldest), ("auto", ShareMode::Auto)] {
            let ratio = hit_ratio(&sharing, Division::Mode(mode))?;
            println!("{},{name},{ratio:.6}", policy.name());
        }
    }
    Ok(())
}
