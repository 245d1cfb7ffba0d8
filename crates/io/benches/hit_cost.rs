//! Instructions per hit with and without the hit-ratio curve, for `cargo xtask prove curve-cost`.
//! The program runs itself under callgrind, which counts the instructions in [`measured`]. It
//! measures no time.
//!
//! `cargo bench --package larder-io --bench hit_cost -- claims [--quick]`. Without arguments, as in
//! `cargo test --benches`, a short run on a few MiB checks that it works.

use larder_core::completion::NoWaker;
use larder_core::policy::PolicyKind;
use larder_core::request::{Request, RequestOp, Session, SessionLimit};
use larder_core::store::{Geometry, MemoryStore};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{ArenaCache, ArenaSession, Engine, EngineOptions};
use larder_io::store::TimedStore;
use larder_testing::{claim, has_tool};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::hint::black_box;
use std::process::Command;

/// Number of measured hits.
const HITS: u32 = 400_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["claims"] => claims(&["256", "1024"]),
        ["claims", "--quick"] => claims(&["256"]),
        [mib, curve @ ("curve" | "none")] => {
            run(mib.parse().expect("a number"), HITS.into(), curve == "curve");
        }
        _ => run(8, 10_000, true),
    }
}

/// Prints the claims about the cost of the curve for caches of these sizes.
fn claims(sizes: &[&str]) {
    for mib in sizes {
        let statement =
            format!("the curve adds at most 1 % to the instructions of a hit, {mib} MiB");
        if !has_tool("valgrind") {
            return claim(statement, "valgrind is not installed", "", None);
        }
        let [without, with] = ["none", "curve"].map(|curve| instructions(mib, curve));
        let cost = (with - without) / without;
        let figure = format!("{with:.2} instructions, {:+.2} %", cost * 100.0);
        claim(statement, figure, format!("without the curve {without:.2}"), cost <= 0.01);
    }
}

/// Returns the instructions per hit of 4 KiB, including its copy.
fn instructions(mib: &str, curve: &str) -> f64 {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*hit_cost*measured*")
        .arg(std::env::current_exe().expect("a program has a path"))
        .args([mib, curve])
        .output()
        .expect("valgrind starts");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "valgrind failed: {text}");
    let count = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    let count: f64 = count.expect("callgrind prints a count");
    count / f64::from(HITS)
}

fn run(mib: u64, hits: u64, curve: bool) {
    let policy = PolicyKind::S3Fifo;
    let engine = Engine::new(EngineOptions {
        // The tables of the cache take about a twentieth.
        memory_bytes: (mib << 20) / 8 * 9 + (16 << 20),
        huge_pages: false,
        lock: false,
        threads: 1,
        policy_bytes: policy.bytes_per_page(),
    })
    .expect("there is memory for the bench");
    let geometry = Geometry { length: mib << 20, granule: 512, read_only: false };
    let options = VolumeOptions { policy, curve, ..VolumeOptions::new("bench", geometry) };
    let store = TimedStore::new(MemoryStore::new(geometry), engine.clock());
    let volume = engine.add_volume(options, Box::new(store)).expect("a thread for the volume");
    let cache = engine.cache();
    let mut filler = engine.blocking_session(&volume).expect("the volume is open");
    let whole = Request::new(RequestOp::Populate, 0..mib << 20);
    filler.submit(whole, &[], |_, _| {}).expect("a store in memory works");
    let limit = SessionLimit::Own(u64::MAX);
    let session = Session::open(cache, &volume, Box::new(NoWaker), limit);
    let mut session = session.expect("the volume is open");
    let blocks = (mib << 20) / BLOCK_BYTES_U64;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let offsets: Vec<u64> =
        (0..hits).map(|_| random.next_u64() % blocks * BLOCK_BYTES_U64).collect();
    let mut to = vec![0; 4096];
    let found = measured(cache, &mut session, &offsets, &mut to);
    black_box(&to);
    assert_eq!(found, hits, "everything is resident");
    let report = cache.curve(&volume, engine.now());
    assert_eq!(report.is_some(), curve, "the curve is kept as asked");
    if let Some(report) = report {
        assert!(report.references > 0, "references were counted");
    }
    session.close(cache);
    drop(filler);
    engine.shut_down();
}

/// Runs the measured hits; returns the number of hits.
#[inline(never)]
fn measured(
    cache: &ArenaCache,
    session: &mut ArenaSession<()>,
    offsets: &[u64],
    to: &mut [u8],
) -> u64 {
    offsets.iter().map(|&offset| u64::from(session.read_hit(cache, offset, to))).sum()
}
