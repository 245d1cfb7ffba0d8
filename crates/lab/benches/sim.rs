//! How fast the simulator is.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a bench prints")]

use larder_core::policy::PolicyKind;
use larder_lab::sim::references::Reference;
use larder_lab::sim::replace;
use std::time::Instant;

fn sweep(bytes: &[u8], fp: u32) {
    use larder_lab::sim::interner::Interner;
    let n = bytes.len() / 24;
    let batch_len: usize = std::env::var("BATCH").map_or(4096, |b| b.parse().unwrap());
    let refs: Vec<Reference> = bytes
        .chunks_exact(24)
        .map(|c| Reference {
            page: u64::from_le_bytes(c[4..12].try_into().unwrap()),
            bytes: 1,
            write: false,
            partial: false,
            first: true,
        })
        .collect();
    let pct = [1, 2, 5, 10, 20, 30, 40, 50];
    let mut sum = 0.0;
    for kind in PolicyKind::ALL {
        for p in pct {
            let t = Instant::now();
            let mut cache = replace::cache(kind, fp / 100 * p, replace::FindBy::Page);
            for b in refs.chunks(4096) {
                cache.run(b, &[]);
            }
            sum += t.elapsed().as_secs_f64();
        }
    }
    for numbered in [false, true] {
        let t = Instant::now();
        let by = if numbered { replace::FindBy::Number } else { replace::FindBy::Page };
        let mut caches: Vec<_> = PolicyKind::ALL
            .iter()
            .flat_map(|k| pct.map(|p| replace::cache(*k, fp / 100 * p, by)))
            .collect();
        let mut interner = Interner::new();
        let mut numbers = Vec::new();
        let mut inter = 0.0;
        for b in refs.chunks(batch_len) {
            let t = Instant::now();
            interner.numbers(b, &mut numbers);
            inter += t.elapsed().as_secs_f64();
            for c in &mut caches {
                c.run(b, &numbers);
            }
        }
        let s = t.elapsed().as_secs_f64();
        println!(
            "numbered {numbered} sep {sum:.2} sweep {s:.2} ratio {:.2} interning {:.1} ns",
            s / sum,
            inter / n as f64 * 1e9
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let bytes = std::fs::read(&args[0]).unwrap();
    let cap: u32 = args[1].parse().unwrap();
    if args.len() > 2 {
        return sweep(&bytes, args[2].parse().unwrap());
    }
    for _ in 0..3 {
        let t = Instant::now();
        let mut exact = larder_lab::sim::curve::exact::Exact::new();
        let mut batch = Vec::new();
        for chunk in bytes.chunks(24 * 4096) {
            batch.clear();
            batch.extend(chunk.chunks_exact(24).map(|c| Reference {
                page: u64::from_le_bytes(c[4..12].try_into().unwrap()),
                bytes: 1,
                write: false,
                partial: false,
                first: true,
            }));
            exact.run(&batch);
        }
        let n = bytes.len() / 24;
        println!(
            "exact {:.4} {:.1} ns",
            1.0 - exact.curve().hit_ratio(cap.into()).unwrap(),
            t.elapsed().as_secs_f64() / n as f64 * 1e9
        );
    }
    for kind in PolicyKind::ALL {
        let mut best = f64::MAX;
        let mut miss = 0.0;
        for _ in 0..3 {
            let t = Instant::now();
            let mut cache = replace::cache(kind, cap, replace::FindBy::Page);
            let mut batch = Vec::new();
            for chunk in bytes.chunks(24 * 4096) {
                batch.clear();
                batch.extend(chunk.chunks_exact(24).map(|c| Reference {
                    page: u64::from_le_bytes(c[4..12].try_into().unwrap()),
                    bytes: 1,
                    write: false,
                    partial: false,
                    first: true,
                }));
                cache.run(&batch, &[]);
            }
            let c = cache.counts();
            miss = c.misses().references as f64 / c.all().references as f64;
            best = best.min(t.elapsed().as_secs_f64());
        }
        let n = bytes.len() / 24;
        println!("{} {} miss {miss:.4} {:.1} ns", args[0], kind.name(), best / n as f64 * 1e9);
    }
}
