//! What `--policy auto` comes to over a trace, beside each policy that it chooses from; for
//! `cargo xtask prove auto`.
//!
//! `cargo bench --package larder-lab --bench tuning -- auto TRACE PERCENT...`

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use larder_core::curve::candidates::CANDIDATES;
use larder_core::policy::PolicyKind;
use larder_lab::sim::auto::AutoCache;
use larder_lab::sim::curve::exact::Exact;
use larder_lab::sim::references::{Batch, References, Split};
use larder_lab::sim::replace::Changeable;
use larder_lab::trace::{self, OpenOptions};
use std::error::Error;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["auto", trace, ref sizes @ ..] => auto(trace, sizes),
        ["phases", trace, size] => phases(trace, size),
        ["curve", trace, ref sizes @ ..] => curve(trace, sizes),
        _ => Err("see the head of this file for how to run it".into()),
    }
}

fn pages(trace: &str) -> Result<Vec<u64>> {
    let source = trace::open(Path::new(trace), &OpenOptions::default())?;
    let mut references = References::new(source, Split::Pages(4096));
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

fn percent(hits: u64, all: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    let ratio = hits as f64 / all as f64;
    ratio * 100.0
}

fn auto(trace: &str, sizes: &[&str]) -> Result<()> {
    let pages = pages(trace)?;
    let footprint = footprint(&pages);
    let warm = pages.len() / 4;
    println!("{trace}: {} references, {footprint} pages", pages.len());
    for size in sizes {
        let capacity = u32::try_from(footprint * size.parse::<u64>()? / 100)?;
        print!("{size:>3} % {capacity:>7}");
        let mut best = 0.0_f64;
        let all: &[PolicyKind] = &CANDIDATES;
        for &kind in all {
            let mut cache = Changeable::new(kind, capacity);
            let mut hits = 0;
            for (at, &page) in pages.iter().enumerate() {
                hits += u64::from(cache.touch(page) && at >= warm);
            }
            let ratio = percent(hits, pages.len() - warm);
            best = best.max(ratio);
            print!(" {}={ratio:.2}", kind.name());
        }
        println!();
        for seed in 0..3 {
            let mut cache = AutoCache::new(PolicyKind::S3Fifo, capacity, seed);
            let mut hits = 0;
            for (at, &page) in pages.iter().enumerate() {
                hits += u64::from(cache.touch(page) && at >= warm);
            }
            let ratio = percent(hits, pages.len() - warm);
            println!("     auto {ratio:.2} {:+.2} {:?}", ratio - best, cache.switches());
        }
    }
    Ok(())
}

fn curve(trace: &str, sizes: &[&str]) -> Result<()> {
    let pages = pages(trace)?;
    let mut exact = Exact::new();
    let references: Vec<_> = pages
        .iter()
        .map(|&page| larder_lab::sim::references::Reference {
            page,
            bytes: 4096,
            write: false,
            partial: false,
            first: true,
        })
        .collect();
    exact.run(&references);
    let exact = exact.curve();
    let footprint = exact.footprint();
    for size in sizes {
        let capacity = u32::try_from(footprint * size.parse::<u64>()? / 100)?;
        for seed in 0..3 {
            let mut cache = AutoCache::new(PolicyKind::S3Fifo, capacity, seed);
            pages.iter().for_each(|&page| {
                cache.touch(page);
            });
            let (mut sum, mut n, mut held, mut most) = (0.0, 0.0, 0, 0.0_f64);
            for point in cache.tracker().lifetime_curve(1) {
                let (made, at) = (point.estimate, point.bytes);
                let truth = exact.hit_ratio(at).ok_or("none")?;
                let off = (made.hit_ratio - truth).abs() * 100.0;
                sum += off;
                n += 1.0;
                most = most.max(off);
                held += i32::from(made.holds(truth));
            }
            println!(
                "{size:>3} % {capacity:>7} mean {:.2} most {most:.2} held {held}/{n}",
                sum / n
            );
        }
    }
    Ok(())
}

fn phases(trace: &str, size: &str) -> Result<()> {
    let pages = pages(trace)?;
    let footprint = footprint(&pages);
    let capacity = u32::try_from(footprint * size.parse::<u64>()? / 100)?;
    let window = (capacity as usize * 2).max(16384);
    let mut real: Vec<Changeable> =
        CANDIDATES.iter().map(|&k| Changeable::new(k, capacity)).collect();
    let mut small: Vec<Vec<Changeable>> = (0..2)
        .map(|_| CANDIDATES.iter().map(|&k| Changeable::new(k, capacity.min(1024))).collect())
        .collect();
    for batch in pages.chunks(window) {
        for cache in &mut real {
            let hits = batch.iter().filter(|&&page| cache.touch(page)).count();
            print!(" {:6.2}", percent(hits as u64, batch.len()));
        }
        for (salt, caches) in small.iter_mut().enumerate() {
            print!("  |");
            for cache in caches {
                let limit =
                    if capacity <= 1024 { u64::MAX } else { u64::MAX / u64::from(capacity) * 1024 };
                let mut n = 0;
                let mut hits = 0;
                for &page in batch {
                    if larder_core::mix(page ^ larder_core::mix(salt as u64 + 3)) < limit {
                        n += 1;
                        hits += u64::from(cache.touch(page));
                    }
                }
                print!(" {:6.2}", percent(hits, n));
            }
        }
        println!();
    }
    Ok(())
}
